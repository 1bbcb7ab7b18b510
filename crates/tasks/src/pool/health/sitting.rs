//! Finds slow disks of RAID-Z and dRAID, and lets them sit out reads (vdev property `autosit`).
//!
//! ```text
//!   each check    mean time of the reads of each child since the last check
//!                 the slowest beyond Q3 + vdev_raidz_outlier_insensitivity * IQR: an outlier, counted
//!   each time as many outliers were counted as the vdev has children, all counts fall
//!   a count beyond OUTLIER_LIMIT: that child sits out for vdev_read_sit_out_secs
//! ```
//!
//! Idea: any disk is slow at times, but a sick one repeatedly, by orders of magnitude. Outliers that change
//! from disk to disk cancel out, since all counts fall together.
//!
//! Source: OpenZFS 2.4 `vdev_raidz.c` (`vdev_child_slow_outlier`).

use std::collections::BTreeMap;

use cenote_device::Op;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_object::Result;
use cenote_pool::{LeafIoTable, Pool, VdevConfig, VdevKind};
use cenote_runtime::Instant;

use super::{Surroundings, Symptom};

/// The vdev property that lets a vdev's disks sit out by themselves.
pub const AUTOSIT: &str = "autosit";
/// Fewer say too little about what is usual (`LAT_CHILDREN_MIN`).
const LEAST_CHILDREN: usize = 5;
/// `LAT_OUTLIER_LIMIT`
const OUTLIER_LIMIT: u64 = 20;
/// Most that one check counts.
const MOST_AT_ONCE: u64 = OUTLIER_LIMIT / 4;

/// State kept between checks.
#[derive(Default)]
pub(crate) struct Sitting {
    checked: Option<Instant>,
    /// Reads of each leaf at the last check: number, time.
    reads: BTreeMap<Guid, (u64, u64)>,
    vdevs: BTreeMap<Guid, Outliers>,
}

/// Outliers of a vdev, in all and by child.
#[derive(Default)]
struct Outliers {
    found: u64,
    by_child: Vec<u64>,
}

impl Sitting {
    /// Checks all vdevs, if the last check is long enough ago.
    pub(crate) async fn look(&mut self, engine: &Engine, surroundings: &impl Surroundings) -> Result<()> {
        let (pool, now) = (engine.pool(), engine.runtime().now());
        let settings = engine.background().settings();
        let (interval, duration) = (settings.outlier_interval(), settings.sit_out());
        let is_due = self.checked.is_none_or(|checked| now.since(checked) >= interval);
        let Some(table) = pool.counters().leaf_io().filter(|_| is_due && !duration.is_zero()) else {
            return Ok(());
        };
        self.checked = Some(now);
        let config = pool.tree().config();
        for top in config.vdevs.iter().filter(|top| may_sit_out(top)) {
            // Also where nothing is judged: times count since the last check.
            let times: Vec<u64> = top.children.iter().map(|child| self.mean_ns(&table, child)).collect();
            let zap = engine.mos().await?.vdev_zap(top).await?;
            let is_on = match &zap {
                Some(zap) => zap.get_u64(AUTOSIT).await? == Some(1),
                None => false,
            };
            if !is_on {
                self.vdevs.remove(&top.guid);
                continue;
            }
            let outliers = self.vdevs.entry(top.guid).or_default();
            let slow = outliers.judge(&pool, top, &times, settings.outlier_insensitivity());
            let Some(slow) = slow else { continue };
            for leaf in top.children[slow].leaves() {
                if pool.tree().sit_out(leaf.guid, Some(now + duration)).is_ok() {
                    surroundings.noticed(engine, leaf.guid, Symptom::Slow);
                }
            }
        }
        Ok(())
    }

    /// Mean time of a child's reads since the last check; 0 if none.
    fn mean_ns(&mut self, table: &LeafIoTable, child: &VdevConfig) -> u64 {
        let (mut operations, mut busy_ns) = (0, 0);
        for leaf in child.leaves() {
            let counts = table.of(leaf.guid).counters.of(Op::Read);
            let now = (counts.operations, counts.busy_ns);
            let before = self.reads.insert(leaf.guid, now).unwrap_or(now);
            operations += now.0.saturating_sub(before.0);
            busy_ns += now.1.saturating_sub(before.1);
        }
        busy_ns.checked_div(operations).unwrap_or(0)
    }
}

fn may_sit_out(top: &VdevConfig) -> bool {
    matches!(top.kind, VdevKind::Raidz | VdevKind::Draid) && top.children.len() >= LEAST_CHILDREN
}

impl Outliers {
    /// The child that has been an outlier too often.
    fn judge(&mut self, pool: &Pool, top: &VdevConfig, times: &[u64], insensitivity: u64) -> Option<usize> {
        let sits =
            |child: &VdevConfig| child.leaves().any(|leaf| pool.tree().sits_out(leaf.guid).unwrap_or(true));
        let sitting: Vec<bool> = top.children.iter().map(sits).collect();
        if sitting.iter().filter(|sits| **sits).count() >= top.parity {
            return None;
        }
        self.count(times, &sitting, insensitivity)
    }

    fn count(&mut self, times: &[u64], sitting: &[bool], insensitivity: u64) -> Option<usize> {
        self.by_child.resize(times.len(), 0);
        let (slowest, far) = outlier(times, sitting, insensitivity)?;
        let more = far.clamp(1, MOST_AT_ONCE);
        self.found += more;
        if self.found >= times.len() as u64 {
            self.by_child.iter_mut().for_each(|count| *count = count.saturating_sub(2));
            self.found = 0;
        }
        self.by_child[slowest] += more;
        if self.by_child[slowest] <= OUTLIER_LIMIT {
            return None;
        }
        self.by_child.fill(0);
        Some(slowest)
    }
}

/// The slowest child if far out, and how many ranges it is beyond the fence. All others must have read.
fn outlier(times: &[u64], sitting: &[bool], insensitivity: u64) -> Option<(usize, u64)> {
    if times.iter().zip(sitting).any(|(time, sits)| *time == 0 && !sits) {
        return None;
    }
    let (slowest, &most) = times.iter().enumerate().max_by_key(|(_, time)| **time)?;
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let half = sorted.len() / 2;
    let (q1, q3) = (median(&sorted[..half]), median(&sorted[sorted.len() - half..]));
    // With few values close together, the range says little.
    let range = (q3 - q1).max(q1 / 4).max(1);
    let beyond = most.checked_sub(q3.saturating_add(range.saturating_mul(insensitivity)))?;
    (beyond > 0 && !sitting[slowest]).then_some((slowest, beyond / range))
}

fn median(sorted: &[u64]) -> u64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0,
        len if len % 2 == 0 => sorted[middle - 1] / 2 + sorted[middle] / 2,
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn counted(checks: &[[u64; 6]]) -> Option<usize> {
        let mut outliers = Outliers::default();
        checks.iter().find_map(|times| outliers.count(times, &[false; 6], 50))
    }

    #[test]
    fn a_disk_that_is_always_far_slower_is_found_and_one_that_is_little_slower_is_not() {
        let with = |slow: u64| [5 * MS, 6 * MS, slow, 5 * MS, 7 * MS, 6 * MS];
        assert_eq!(counted(&[with(1000 * MS); 20]), Some(2));
        assert_eq!(counted(&[with(1000 * MS); 4]), None, "one slow second is an accident");
        assert_eq!(counted(&[with(50 * MS); 1000]), None);
        assert_eq!(
            counted(&[[5 * MS, 6 * MS, 0, 5 * MS, 7 * MS, 6 * MS]; 1000]),
            None,
            "it has read nothing"
        );
    }

    #[test]
    fn disks_that_are_slow_in_turn_are_not_found() {
        let slow = |at: usize| std::array::from_fn(|disk| if disk == at { 1000 * MS } else { 5 * MS });
        let checks: Vec<[u64; 6]> = (0..600).map(|check| slow(check % 6)).collect();
        assert_eq!(counted(&checks), None);
    }
}
