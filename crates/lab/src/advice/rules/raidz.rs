//! The cost of small blocks on RAID-Z.
//!
//! On a RAID-Z of n disks with parity p, a block of d data sectors is stored in rows of n - p data sectors.
//! Each row adds p sectors of parity, and the total is rounded up to a multiple of p + 1, so that no gap is
//! too small for any block:
//!
//! ```text
//! raidz2 of 8, 4 KiB sectors, 8 KiB block: D D P P x x    6 sectors for 2 of data; nominally 2.67
//! ```

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::item::{Evidence, Gauge, Risk, Severity};
use crate::load::machine::zpool::{Class, Dataset, DatasetKind, Pool, Vdev, VdevKind};
use crate::unit::Unit;

pub(super) const RAIDZ_PADDING: Rule = Rule {
    id: "raidz-width-padding",
    about: "Blocks so small that RAID-Z parity and padding exceed their nominal share.",
    reason: "Each block has its own parity, and its allocation is rounded up to a multiple of parity + 1 \
        sectors. On a wide RAID-Z, small blocks cost as much as on a mirror or more, and random reads run at \
        the speed of one disk. For large blocks the width hardly matters: the old rule of 2^n + parity disks \
        is unnecessary with compression, and ignoring it costs only a few percent without.",
    sources: &[
        "module/zfs/vdev_raidz.c: vdev_raidz_asize",
        "OpenZFS documentation, Basic Concepts, RAIDZ, Space efficiency",
        "OpenZFS documentation, Workload Tuning, RAID-Z stripe width",
    ],
    check: |facts| facts.pools.iter().flat_map(padding).collect(),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Raidz {
    width: u64,
    parity: u64,
    ashift: u32,
}

impl Raidz {
    fn of(vdev: &Vdev) -> Option<Raidz> {
        let VdevKind::Raidz(parity) = vdev.kind else { return None };
        let (width, parity) = (vdev.children.len() as u64, u64::from(parity));
        (width > parity).then_some(Raidz { width, parity, ashift: vdev.ashift?.clamp(9, 16) })
    }

    fn allocated(self, bytes: u64) -> u64 {
        let data = bytes.div_ceil(1 << self.ashift).max(1);
        let sectors = data + self.parity * data.div_ceil(self.width - self.parity);
        sectors.next_multiple_of(self.parity + 1) << self.ashift
    }

    /// Excess over the nominal share of parity, in percent of the allocation.
    fn loss_percent(self, bytes: u64) -> f64 {
        let promised = bytes as f64 * self.width as f64 / (self.width - self.parity) as f64;
        (1.0 - promised / self.allocated(bytes) as f64).max(0.0) * 100.0
    }

    /// Smallest block that loses less than a tenth.
    fn good_block(self) -> u64 {
        (12..=20).map(|shift| 1 << shift).find(|bytes| self.loss_percent(*bytes) < 10.0).unwrap_or(1 << 20)
    }
}

/// Datasets that use less than this share of their pool's allocated space are skipped.
const WORTH_TELLING: f64 = 0.01;

fn padding(pool: &Pool) -> Vec<Finding> {
    let Some(raidz) = pool.class(Class::Normal).filter_map(Raidz::of).max_by_key(|raidz| raidz.width) else {
        return Vec::new();
    };
    let least = pool.allocated_bytes.unwrap_or(0) as f64 * WORTH_TELLING;
    let large = |dataset: &&Dataset| dataset.used_by_itself_bytes as f64 > least;
    pool.datasets.iter().filter(large).map(|dataset| padding_of(raidz, pool, dataset)).collect()
}

fn padding_of(raidz: Raidz, pool: &Pool, dataset: &Dataset) -> Finding {
    let sector = 1_u64 << raidz.ashift;
    let block = dataset.block_bytes();
    // Blocks are compressed to whole sectors; the ratio is a mean, and so is this.
    let stored = ((block as f64 / dataset.compress_ratio) as u64)
        .next_multiple_of(sector)
        .clamp(sector, block.max(sector));
    let loss = raidz.loss_percent(stored);
    let gauge = Gauge { value: loss, unit: Unit::Percent, raise: 20.0, clear: 15.0 };
    Finding::measured(&dataset.name, gauge, || {
        let good = raidz.good_block();
        let bytes = |bytes: u64| Unit::Bytes.show(bytes as f64);
        let property = dataset.block_property();
        let (commands, caution) = match dataset.kind {
            DatasetKind::Volume(_) => (
                vec![
                    format!("zfs create -s -V SIZE -o {property}={good} {}-new", dataset.name),
                    format!("dd if=/dev/zvol/{0} of=/dev/zvol/{0}-new bs=1M conv=sparse", dataset.name),
                ],
                "volblocksize is fixed when a volume is created: copy it while nothing uses it, and do not \
                 mix up `if` and `of`. A guest that writes less than a block at a time then pays with \
                 read-modify-write; such volumes do better on mirrors.",
            ),
            DatasetKind::Filesystem(_) => (
                vec![format!("zfs set {property}={good} {}", dataset.name)],
                "It applies only to files written from then on. Databases with small writes pay with \
                 read-modify-write; they do better on mirrors.",
            ),
        };
        Problem {
            severity: if loss >= 30.0 { Severity::Warning } else { Severity::Notice },
            summary: format!(
                "Blocks of {} on {} waste {} of their space.",
                bytes(stored),
                shape(raidz),
                Unit::Percent.show(loss)
            ),
            evidence: vec![
                Evidence::number(property, block as f64, Unit::Bytes),
                Evidence::number("compression ratio", dataset.compress_ratio, Unit::Number),
                Evidence::number("sector", sector as f64, Unit::Bytes),
                Evidence::number("allocated per block", raidz.allocated(stored) as f64, Unit::Bytes),
                Evidence::number("wasted beyond nominal parity", loss, Unit::Percent),
                Evidence::number("used by the dataset", dataset.used_by_itself_bytes as f64, Unit::Bytes),
                Evidence::number(
                    "waste with blocks of ".to_owned() + &bytes(good),
                    raidz.loss_percent(good),
                    Unit::Percent,
                ),
                Evidence::word("pool", &pool.name),
            ],
            remedy: remedy(&commands, Risk::Medium, caution),
        }
    })
}

fn shape(raidz: Raidz) -> String {
    format!("raidz{} of {}", raidz.parity, raidz.width)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with the asize that `zdb -dddddd` shows for such blocks, and the table in OpenZFS's
    /// documentation.
    #[test]
    fn allocation_matches_openzfs() {
        let raidz = |width, parity| Raidz { width, parity, ashift: 12 };
        let sectors = |raidz: Raidz, data: u64| raidz.allocated(data << 12) >> 12;
        assert_eq!(sectors(raidz(8, 2), 2), 6, "8 KiB: 2 data, 2 parity, 2 padding");
        assert_eq!(sectors(raidz(5, 1), 1), 2, "one sector is mirrored");
        assert_eq!(sectors(raidz(5, 1), 4), 6, "4 data, 1 parity, 1 padding");
        assert_eq!(sectors(raidz(6, 2), 32), 48, "128 KiB: eight full rows");
        assert_eq!(sectors(raidz(7, 3), 3), 8, "3 data, 3 parity, 2 padding");
        assert_eq!(raidz(6, 2).loss_percent(128 << 10), 0.0);
        assert!((raidz(8, 2).loss_percent(8 << 10) - 55.6).abs() < 0.1);
    }

    #[test]
    fn no_block_takes_less_than_its_data_and_parity() {
        for width in 2..20 {
            for parity in 1..=3.min(width - 1) {
                let raidz = Raidz { width, parity, ashift: 12 };
                for bytes in (1..=512).map(|sectors| sectors << 12) {
                    let allocated = raidz.allocated(bytes);
                    assert!(allocated >= bytes + (parity << 12));
                    assert_eq!((allocated >> 12) % (parity + 1), 0);
                }
            }
        }
    }
}
