//! What is wrong with a pool and what to do: the lines `status:`, `action:` and `see:`.
//!
//! Idea: of all that is wrong the worst counts, in OpenZFS's order, with OpenZFS's message id where it has one. The words are for
//! someone who reads a pool with this program: it mends nothing, so what mends the pool is OpenZFS's to do.
//!
//! Source: OpenZFS `libzfs_status.c` (`check_status`): the order and the ids.

use cenote_dataset::{FeatureState, Mos};
use cenote_format::features::SPA_VERSION_FEATURES;
use cenote_format::scan::{ScanFunc, ScanState};
use cenote_pool::{
    ErrorCounts, FoundPool, PoolHealth, PoolState, Trouble, VdevClass, VdevKind, VdevState, VdevStatus,
};

use crate::outcome::CliError;

/// What is wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// OpenZFS's message id.
    pub id: Option<&'static str>,
    /// What is wrong.
    pub status: &'static str,
    /// What to do.
    pub action: &'static str,
    /// Nothing is wrong: newer software could do better.
    pub is_advice: bool,
}

/// What beside the state of vdevs can be wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// A resilver was under way.
    pub resilvering: bool,
    /// The pool was in use by another machine, and not exported.
    pub left_by_another: bool,
    /// Entries of the error log.
    pub data_errors: usize,
    /// The version is from before feature flags.
    pub is_legacy: bool,
    /// Features are disabled, and not because the administrator chose a set.
    pub lacks_features: bool,
}

impl Circumstances {
    /// What labels alone tell.
    pub fn of_found(found: &FoundPool) -> Circumstances {
        let by_this = found.config.hostid.is_none() || found.config.hostid == this_hostid();
        Circumstances {
            left_by_another: found.state() == PoolState::Active && !by_this,
            is_legacy: found.config.version < SPA_VERSION_FEATURES,
            ..Circumstances::default()
        }
    }

    /// What an opened pool tells.
    pub async fn of_pool(mos: &Mos) -> Result<Circumstances, CliError> {
        let scan = mos.scan_status().await?;
        let resilvers = |scan: &cenote_format::scan::ScanPhys| {
            ScanFunc::from(scan.func) == ScanFunc::Resilver
                && ScanState::from(scan.state) == ScanState::Scanning
        };
        let features = mos.features().await?;
        let is_chosen = mos.pool().config().compatibility.as_ref().is_some_and(|set| set != "off");
        let found = Circumstances::of_found(mos.pool().found());
        Ok(Circumstances {
            resilvering: scan.as_ref().is_some_and(resilvers),
            data_errors: mos.error_log().await?.len(),
            lacks_features: !is_chosen && features.iter().any(|(_, state)| *state == FeatureState::Disabled),
            ..found
        })
    }
}

/// The number that this machine writes into labels, if it has one.
fn this_hostid() -> Option<u64> {
    let bytes = std::fs::read("/etc/hostid").ok()?;
    bytes.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes).into()).filter(|&id| id != 0)
}

/// The worst of all that is wrong.
pub fn judge(health: &PoolHealth, circumstances: Circumstances) -> Option<Reason> {
    under_way(circumstances)
        .or_else(|| lost(health))
        .or_else(|| (circumstances.data_errors > 0).then_some(DATA_ERRORS))
        .or_else(|| degraded(health))
        .or_else(|| dated(circumstances))
}

const fn reason(id: Option<&'static str>, status: &'static str, action: &'static str) -> Option<Reason> {
    Some(Reason { id, status, action, is_advice: false })
}

const ATTACH: &str = "Attach the missing devices, or name the folders or files that hold them with -d.";

const DATA_ERRORS: Reason = Reason {
    id: Some("ZFS-8000-8A"),
    status: "Earlier scrubs or reads met blocks that could not be repaired.",
    action: "Restore the files concerned from a copy: 'status -v' lists them.",
    is_advice: false,
};

/// What others are doing with the pool.
fn under_way(circumstances: Circumstances) -> Option<Reason> {
    if circumstances.resilvering {
        return reason(
            None,
            "Devices were being resilvered when the pool was last written.",
            "Nothing has to be done for reading. OpenZFS goes on with the resilver when it imports the pool for writing.",
        );
    }
    if circumstances.left_by_another {
        return reason(
            Some("ZFS-8000-EY"),
            "The pool was last in use by another machine and was not exported there.",
            "Make sure that no other machine has it imported: what is read could change meanwhile. Its newest synchronous \
             writes may be in the intent logs only: --replay shows them.",
        );
    }
    None
}

/// Some vdev satisfies a test.
fn any(health: &PoolHealth, test: impl Fn(&VdevStatus) -> bool) -> bool {
    let mut found = false;
    health.root.walk(&mut |vdev| found |= test(vdev));
    found
}

fn is_missing(vdev: &VdevStatus) -> bool {
    matches!(vdev.trouble, Some(Trouble::CannotOpen { .. }))
}

/// Devices that something is lost with.
fn lost(health: &PoolHealth) -> Option<Reason> {
    let opens = health.is_importable();
    if any(health, |vdev| vdev.kind == VdevKind::Missing) {
        return reason(
            Some("ZFS-8000-6X"),
            "Devices are missing, and those found do not say what they were.",
            "Search more places for devices, with -d.",
        );
    }
    let is_lost_log = |vdev: &VdevStatus| vdev.class == VdevClass::Log && vdev.state < VdevState::Degraded;
    if health.root.children.iter().any(is_lost_log) {
        return reason(
            Some("ZFS-8000-K4"),
            "A log device is missing. Synchronous writes whose only copy was there can't be shown; all else can.",
            "Attach the missing devices, or name the folders or files that hold them with -d. If they are lost and commands \
             that write are refused, 'zpool import -m' gives up what only they have.",
        );
    }
    if !opens && any(health, |vdev| vdev.state == VdevState::Faulted) {
        return reason(
            None,
            "Devices were taken out of use because of persistent errors, and too few are left.",
            "Use 'zpool clear' of OpenZFS if they are sound; else 'cenote rescue' copies out what can be read.",
        );
    }
    if !opens && any(health, is_missing) {
        return reason(Some("ZFS-8000-3C"), "Devices could not be found, and too few are left.", ATTACH);
    }
    None
}

/// Devices that redundancy makes up for.
fn degraded(health: &PoolHealth) -> Option<Reason> {
    if any(health, |vdev| vdev.state == VdevState::Faulted) {
        return reason(
            None,
            "Devices were taken out of use because of persistent errors; redundancy makes up for them.",
            "Replace the faulted devices, or use 'zpool clear' of OpenZFS if they are sound.",
        );
    }
    if any(health, is_missing) {
        return reason(
            Some("ZFS-8000-2Q"),
            "Devices could not be found; redundancy makes up for them.",
            ATTACH,
        );
    }
    if any(health, |vdev| vdev.errors != ErrorCounts::default()) {
        return reason(
            Some("ZFS-8000-9P"),
            "Devices returned errors while the pool was read; redundancy made up for them.",
            "See with 'cenote verify' what is damaged; replace the devices if errors go on.",
        );
    }
    if any(health, |vdev| vdev.state == VdevState::Offline) {
        return reason(
            None,
            "Devices were taken offline by the administrator; redundancy makes up for them.",
            "Take them online with 'zpool online' of OpenZFS, or replace them.",
        );
    }
    if any(health, |vdev| vdev.state == VdevState::Removed) {
        return reason(
            None,
            "Devices were removed from the machine; redundancy makes up for them.",
            "Attach them again, or replace them.",
        );
    }
    None
}

/// What newer software could do better.
fn dated(circumstances: Circumstances) -> Option<Reason> {
    let advice = |status, action| Some(Reason { id: None, status, action, is_advice: true });
    if circumstances.is_legacy {
        return advice(
            "The pool has a format from before feature flags.",
            "Nothing has to be done for reading. 'zpool upgrade' of OpenZFS enables newer features; older software then \
             can't read the pool.",
        );
    }
    if circumstances.lacks_features {
        return advice(
            "Some features that OpenZFS has are not enabled on the pool.",
            "Nothing has to be done for reading. 'zpool upgrade' of OpenZFS enables them; older software then may not be \
             able to read the pool.",
        );
    }
    None
}

/// A labelled paragraph: its lines at most 80 columns wide, those after the first indented by a tab.
pub fn paragraph(label: &str, text: &str) -> String {
    const TAB_COLUMNS: usize = 8;
    const COLUMNS: usize = 80;
    let (mut out, mut column) = (format!("{label}:"), label.len() + 1);
    for (i, word) in text.split_whitespace().enumerate() {
        if i > 0 && column + 1 + word.len() > COLUMNS {
            out.push_str("\n\t");
            column = TAB_COLUMNS;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out + "\n"
}

impl Reason {
    /// The page about it.
    pub fn page(&self) -> Option<String> {
        self.id.map(|id| format!("https://openzfs.github.io/openzfs-docs/msg/{id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_wrapped_and_indented() {
        let text = "word ".repeat(30);
        let out = paragraph("status", &text);
        assert!(out.lines().all(|line| line.replace('\t', "        ").len() <= 80), "{out}");
        assert!(out.lines().skip(1).all(|line| line.starts_with('\t')) && out.starts_with("status: word"));
        assert_eq!(out.split_whitespace().count(), 31);
    }
}
