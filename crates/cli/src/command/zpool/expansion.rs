//! The expansion of a RAID-Z in `zpool status`: the one in progress, or else the last.
//!
//! Source: OpenZFS `print_raidz_expand_status`, `raidz_expand_status_nvlist`, `spa_raidz_expand_get_stats`.

use cenote_dataset::Mos;
use cenote_dataset::usage::VdevUsage;
use cenote_format::dsl::names::vdev_zap;
use cenote_format::scan::ScanState;
use cenote_format::units::VdevId;
use cenote_pool::{VdevKind, VdevStatus};

use super::work::name_of;
use crate::outcome::CliError;
use crate::render::{ctime, days_and_clock, nice_number};

/// What the pool says of an expansion.
#[derive(Debug, Clone)]
pub struct Expansion {
    /// The vdev.
    pub vdev: VdevId,
    /// Whether it is in progress, or has ended.
    pub state: ScanState,
    /// In seconds since 1970.
    pub start_s: u64,
    /// The same; 0: it has not ended.
    pub end_s: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Bytes that are allocated on the vdev.
    pub allocated_bytes: u64,
    /// A device is missing, or lacks something.
    pub waits: bool,
}

/// The expansion in progress, or that which ended last.
pub async fn last(mos: &Mos, usage: &[VdevUsage]) -> Result<Option<Expansion>, CliError> {
    let mut found: Option<Expansion> = None;
    for top in mos.pool_config().vdevs.iter().filter(|top| top.kind == VdevKind::Raidz) {
        let Some(zap) = mos.vdev_zap(top).await? else { continue };
        let Some(state) = zap.get_u64(vdev_zap::RAIDZ_EXPAND_STATE).await? else { continue };
        let vdev = VdevId(top.id);
        let used = usage.iter().find(|usage| usage.vdev == vdev);
        let expansion = Expansion {
            vdev,
            state: ScanState::from(state),
            start_s: zap.get_u64(vdev_zap::RAIDZ_EXPAND_START_TIME).await?.unwrap_or(0),
            end_s: zap.get_u64(vdev_zap::RAIDZ_EXPAND_END_TIME).await?.unwrap_or(0),
            copied_bytes: zap.get_u64(vdev_zap::RAIDZ_EXPAND_BYTES_COPIED).await?.unwrap_or(0),
            allocated_bytes: used.map_or(0, |usage| usage.allocated_bytes),
            waits: top.raidz_expanding && mos.pool().reflow_waits_for(vdev).is_some(),
        };
        let rank = |one: &Expansion| (one.state == ScanState::Scanning, one.end_s);
        if found.as_ref().is_none_or(|before| rank(before) < rank(&expansion)) {
            found = Some(expansion);
        }
    }
    Ok(found)
}

impl Expansion {
    /// The lines `expand:`. `now_s`: the time, if the daemon does it.
    pub fn lines(&self, root: &VdevStatus, now_s: Option<u64>) -> String {
        let (name, copied) = (name_of(root, self.vdev.0), nice_number(self.copied_bytes));
        let time = |seconds: u64| ctime(seconds.cast_signed());
        match self.state {
            ScanState::Finished => {
                let took = days_and_clock(self.end_s.saturating_sub(self.start_s));
                format!("expand: expanded {name} copied {copied} in {took}, on {}\n", time(self.end_s))
            }
            ScanState::Scanning => {
                let (start, all) = (time(self.start_s), nice_number(self.allocated_bytes));
                let percent = 100.0 * self.copied_bytes as f64 / self.allocated_bytes.max(1) as f64;
                let (at, to_go) = self.pace(now_s);
                format!(
                    "expand: expansion of {name} in progress since {start}\n\t{copied} / {all} copied{at}, \
                     {percent:.2}% done{to_go}\n"
                )
            }
            _ => String::new(),
        }
    }

    /// How fast it is, and how long it takes yet.
    fn pace(&self, now_s: Option<u64>) -> (String, String) {
        const TOO_LONG_S: u64 = 30 * 24 * 3600;
        let waits = if self.waits { ", paused for resilver or clear" } else { "" };
        let Some(now_s) = now_s else { return (String::new(), waits.into()) };
        let seconds = now_s.saturating_sub(self.start_s).max(1);
        let rate = (self.copied_bytes / seconds).max(1);
        let to_go = match self.allocated_bytes.saturating_sub(self.copied_bytes) / rate {
            _ if self.waits => waits.into(),
            seconds if seconds < TOO_LONG_S => format!(", {} to go", days_and_clock(seconds)),
            _ => ", (copy is slow, no estimated time)".into(),
        };
        (format!(" at {}/s", nice_number(rate)), to_go)
    }
}
