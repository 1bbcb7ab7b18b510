//! The worst problem of a pool and the advice for it: the lines `status:`, `action:` and `see:`.
//!
//! Idea: the worst problem is shown, ranked in OpenZFS's order, with OpenZFS's message id where it has one.
//! The wording addresses a reader of the pool: this program repairs nothing itself here, so repairs refer to
//! OpenZFS.
//!
//! Source: OpenZFS `libzfs_status.c` (`check_status`): the order and the ids.

use std::borrow::Cow;

use cenote_pool::{
    ErrorCounts, FailMode, PoolHealth, Standstill, Trouble, VdevClass, VdevKind, VdevState, VdevStatus,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problems::Problems;

/// A problem and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// OpenZFS's message id.
    pub id: Option<Cow<'static, str>>,
    /// Problem.
    pub status: Cow<'static, str>,
    /// Remedy.
    pub action: Cow<'static, str>,
    /// No problem; newer software could do better.
    pub is_advice: bool,
}

/// The worst problem.
pub fn judge(health: &PoolHealth, circumstances: Problems) -> Option<Reason> {
    let worst = corrupted(health, circumstances)
        .or_else(|| standstill(health))
        .or_else(|| under_way(circumstances))
        .or_else(|| lost(health))
        .or_else(|| lost_states(circumstances))
        .or_else(|| (circumstances.data_errors > 0).then_some(DATA_ERRORS))
        .or_else(|| degraded(health));
    match worst {
        // Neither of two problems hides the other.
        Some(worst) if circumstances.left_by_another => {
            let action = format!(
                "{} The machine that used the pool last did not export it: {LEAVE_ALONE}",
                worst.action
            );
            Some(Reason { action: action.into(), ..worst })
        }
        Some(worst) => Some(worst),
        None => left_by_another(circumstances).or_else(|| dated(circumstances)),
    }
}

const fn reason(id: Option<&'static str>, status: &'static str, action: &'static str) -> Option<Reason> {
    let id = match id {
        Some(id) => Some(Cow::Borrowed(id)),
        None => None,
    };
    Some(Reason { id, status: Cow::Borrowed(status), action: Cow::Borrowed(action), is_advice: false })
}

/// // The older state was only opened; `-n` checks that it is intact.
fn corrupted(health: &PoolHealth, circumstances: Problems) -> Option<Reason> {
    let corrupted = circumstances.corrupted?;
    let name = &health.root.name;
    let force = if circumstances.left_by_another { " -f" } else { "" };
    let action = match corrupted.way_back {
        Some(way) => format!(
            "The state of txg {}, written {}, can be opened. Rewinding to it can't be undone and loses the \
             changes of the {} after it. 'zpool import -F -n {name}' checks that state and changes nothing; \
             'zpool import -F{force} {name}' rewinds to it. Scrub the pool afterwards.",
            way.txg,
            way.time(),
            way.lost,
        ),
        None => format!(
            "No older state can be opened. 'cenote rescue {name} FOLDER' saves what is still readable; then \
             recreate the pool and restore the rest from a backup."
        ),
    };
    let status = "The pool metadata is corrupted, and the pool cannot be opened.";
    Some(Reason {
        id: Some("ZFS-8000-72".into()),
        status: status.into(),
        action: action.into(),
        is_advice: false,
    })
}

const ATTACH: &str = "Attach the missing devices, or name the folders or files that hold them with --disks.";

const DATA_ERRORS: Reason = Reason {
    id: Some(Cow::Borrowed("ZFS-8000-8A")),
    status: Cow::Borrowed("Earlier scrubs or reads met blocks that could not be repaired."),
    action: Cow::Borrowed("Restore the files concerned from a copy: 'zpool status -v' lists them."),
    is_advice: false,
};

fn standstill(health: &PoolHealth) -> Option<Reason> {
    const MEND: &str = "Make sure that the devices are connected and work, then run 'zpool clear'. 'zpool \
        export -f' gives up changes that are not on disk.";
    match health.standstill? {
        Standstill::Suspended(FailMode::Continue) => reason(
            Some("ZFS-8000-JQ"),
            "Devices fail, and redundancy does not cover them: changes wait for them, and programs that make \
             more get errors.",
            MEND,
        ),
        Standstill::Suspended(FailMode::Wait | FailMode::Panic) => reason(
            Some("ZFS-8000-HC"),
            "Devices fail, and redundancy does not cover them: changes, and programs that make more, wait \
             for them.",
            MEND,
        ),
        Standstill::Multihost => reason(
            Some("ZFS-8000-MM"),
            "The pool is suspended because multihost writes failed or were delayed; another system could \
             import the pool undetected.",
            "Make sure that the devices are connected. 'zpool export -f' lets the pool go as it is on disk, \
             and 'zpool import' opens it again if no other system has it.",
        ),
        Standstill::Stopped => reason(
            None,
            "A transaction group could not be written: the pool takes no more changes.",
            "'zpool export -f' lets the pool go as it is on disk, and 'zpool import' opens it again.",
        ),
    }
}

fn under_way(circumstances: Problems) -> Option<Reason> {
    match (circumstances.resilvering, circumstances.is_open) {
        (false, _) => None,
        (true, true) => reason(
            None,
            "Devices are being resilvered. Until that is complete, they don't count as redundancy.",
            "Wait for it: 'zpool wait -t resilver' returns when it is complete.",
        ),
        (true, false) => reason(
            None,
            "Devices were being resilvered when the pool was last written.",
            "Reading needs no action. 'cenote zpool resilver' continues it, and so does OpenZFS at import.",
        ),
    }
}

/// The newest uberblocks are gone from all devices.
fn lost_states(circumstances: Problems) -> Option<Reason> {
    let lost = circumstances.lost?;
    let action = format!(
        "As far as can be known: {lost}. If another copy of a device is at hand, import the pool from that; \
         the next changes write over what is left of newer states."
    );
    let status = "The pool's newest uberblocks are damaged on all devices: it was opened as it was before.";
    Some(Reason { id: None, status: status.into(), action: action.into(), is_advice: false })
}

const LEAVE_ALONE: &str = "make sure that no other machine has it imported.";

fn left_by_another(circumstances: Problems) -> Option<Reason> {
    if !circumstances.left_by_another {
        return None;
    }
    reason(
        Some("ZFS-8000-EY"),
        "The pool was last in use by another machine and was not exported there.",
        "Make sure that no other machine has it imported: the data read could change meanwhile. Its newest \
         synchronous writes may exist only in the intent logs: --replay shows them.",
    )
}

fn any(health: &PoolHealth, test: impl Fn(&VdevStatus) -> bool) -> bool {
    let mut found = false;
    health.root.walk(&mut |vdev| found |= test(vdev));
    found
}

fn is_missing(vdev: &VdevStatus) -> bool {
    matches!(vdev.trouble, Some(Trouble::CannotOpen { .. }))
}

fn is_cut_short(vdev: &VdevStatus) -> bool {
    vdev.trouble == Some(Trouble::TooSmall)
}

fn is_refuted(vdev: &VdevStatus) -> bool {
    let is_leaf = vdev.kind != VdevKind::Root;
    is_leaf && matches!(vdev.trouble, Some(Trouble::InvalidLabel | Trouble::CorruptedData))
}

/// Problems with devices that lose data.
fn lost(health: &PoolHealth) -> Option<Reason> {
    let opens = health.is_importable();
    if any(health, |vdev| vdev.kind == VdevKind::Missing) {
        return reason(
            Some("ZFS-8000-6X"),
            "Devices are missing, and the devices found do not identify them.",
            "Search more paths with --disks.",
        );
    }
    let is_lost_log = |vdev: &VdevStatus| vdev.class == VdevClass::Log && vdev.state < VdevState::Degraded;
    if health.root.children.iter().any(is_lost_log) {
        return reason(
            Some("ZFS-8000-K4"),
            "A log device is missing. Synchronous writes stored only there can't be shown; everything else \
             can.",
            "Attach the missing devices, or name the folders or files that hold them with --disks. If they \
             are lost and commands that write are refused, 'zpool import -m' discards what only they hold.",
        );
    }
    if !opens && any(health, |vdev| vdev.state == VdevState::Faulted) {
        return reason(
            None,
            "Devices were taken out of use because of persistent errors, and too few are left.",
            "Use 'zpool clear' if they are healthy; otherwise 'cenote rescue' copies out what is readable.",
        );
    }
    if !opens && any(health, is_cut_short) {
        return reason(
            Some("ZFS-8000-5E"),
            "Devices are smaller than before, as if cut short. The data beyond their end is missing, and \
             redundancy does not cover it.",
            "Copy those disks or images again in full to restore the pool. If there is nothing to copy from, \
             'cenote verify' reports what is lost, and 'cenote rescue' saves the rest.",
        );
    }
    if !opens && any(health, is_missing) {
        return reason(Some("ZFS-8000-3C"), "Devices could not be found, and too few are left.", ATTACH);
    }
    None
}

/// Problems with devices that redundancy covers.
fn degraded(health: &PoolHealth) -> Option<Reason> {
    if any(health, |vdev| vdev.state == VdevState::Faulted) {
        return reason(
            None,
            "Devices were taken out of use because of persistent errors; redundancy covers them.",
            "Replace the faulted devices, or use 'zpool clear' if they are healthy.",
        );
    }
    if any(health, is_missing) {
        return reason(Some("ZFS-8000-2Q"), "Devices could not be found; redundancy covers them.", ATTACH);
    }
    if any(health, is_refuted) {
        return reason(
            Some("ZFS-8000-4J"),
            "Devices were taken out of use because their labels are gone or are other devices'; redundancy \
             covers them.",
            "Replace them with 'zpool replace': what is at the same path will do.",
        );
    }
    if any(health, is_cut_short) {
        return reason(
            Some("ZFS-8000-4J"),
            "Devices are smaller than before, as if cut short; redundancy covers them.",
            "Copy those disks or images again in full, or replace them with 'zpool replace'.",
        );
    }
    if any(health, |vdev| vdev.errors != ErrorCounts::default()) {
        return reason(
            Some("ZFS-8000-9P"),
            "Devices returned errors while the pool was read; redundancy covered them.",
            "Run 'cenote verify' to find the damage; replace the devices if errors continue.",
        );
    }
    if any(health, |vdev| vdev.state == VdevState::Offline) {
        return reason(
            None,
            "Devices were taken offline by the administrator; redundancy covers them.",
            "Bring them online with 'zpool online', or replace them.",
        );
    }
    if any(health, |vdev| vdev.state == VdevState::Removed) {
        return reason(
            None,
            "Devices were removed from the machine; redundancy covers them.",
            "Attach them again, and use 'zpool online' if that does not bring them back; or replace them.",
        );
    }
    None
}

/// Features that newer software could use.
fn dated(circumstances: Problems) -> Option<Reason> {
    let advice = |status: &'static str, action: &'static str| {
        Some(Reason { id: None, status: status.into(), action: action.into(), is_advice: true })
    };
    if circumstances.is_legacy {
        return advice(
            "The pool has a format from before feature flags.",
            "Reading needs no action. 'zpool upgrade' of OpenZFS enables newer features; older software then \
             can't read the pool.",
        );
    }
    if circumstances.lacks_features {
        return advice(
            "Some features that OpenZFS has are not enabled on the pool.",
            "Reading needs no action. 'zpool upgrade' of OpenZFS enables them; older software then may be \
             unable to read the pool.",
        );
    }
    None
}

impl Reason {
    /// The page about it.
    pub fn page(&self) -> Option<String> {
        self.id.as_ref().map(|id| format!("https://openzfs.github.io/openzfs-docs/msg/{id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_pool_is_resilvered_and_another_one_was() {
        let status = |is_open| {
            let now = Problems { resilvering: true, is_open, ..Problems::default() };
            under_way(now).unwrap().status
        };
        assert!(status(true).starts_with("Devices are being resilvered"));
        assert!(status(false).contains("when the pool was last written"));
    }
}
