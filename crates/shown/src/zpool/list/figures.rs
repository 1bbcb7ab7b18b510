//! The numbers of a vdev in `zpool list -v`.

use cenote_control::answers::VdevStatus;
use cenote_control::zpool::shown::list::Vdevs;
use cenote_format::label::VDEV_LABELS_BYTES;
use cenote_format::units::VdevId;

use crate::numbers::Numbers;

/// The numbers of a vdev; missing ones print as a dash.
#[derive(Default)]
pub struct Figures {
    size: Option<u64>,
    /// Total and allocated bytes.
    space: Option<(u64, u64)>,
    checkpoint: u64,
    expandable: u64,
    fragmentation: Option<u64>,
}

impl Figures {
    /// The value of a column.
    pub fn cell(&self, column: &str, numbers: Numbers) -> String {
        let bytes = |bytes: u64| numbers.count(bytes);
        let percent = |text: String| if numbers.exact { text } else { text + "%" };
        let shown = match (column, self.space) {
            ("size", _) => self.size.map(bytes),
            ("allocated", Some((_, allocated))) => Some(bytes(allocated)),
            ("free", Some((all, allocated))) => Some(bytes(all.saturating_sub(allocated))),
            ("checkpoint", _) if self.checkpoint > 0 => Some(bytes(self.checkpoint)),
            ("expandsize", _) if self.expandable > 0 => Some(bytes(self.expandable)),
            ("fragmentation", Some(_)) => {
                // A cache device or a log counts as unfragmented.
                Some(percent(self.fragmentation.unwrap_or(0).to_string()))
            }
            ("capacity", Some((all, allocated))) => {
                let hundredths = (u128::from(allocated) * 10_000 / u128::from(all.max(1))) as u64;
                let percents = hundredths as f64 / 100.0;
                Some(match hundredths {
                    _ if numbers.exact => (hundredths / 100).to_string(),
                    0..1000 => format!("{percents:.2}%"),
                    1000..10_000 => format!("{percents:.1}%"),
                    _ => format!("{percents:.0}%"),
                })
            }
            _ => None,
        };
        shown.unwrap_or_else(|| "-".into())
    }
}

/// The numbers of a vdev.
pub fn figures(all: &Vdevs, vdev: &VdevStatus, depth: usize) -> Figures {
    let is_top = depth == 2 && all.health.root.children.iter().any(|top| std::ptr::eq(top, vdev));
    let usage = all.usage.iter().find(|usage| is_top && usage.vdev == VdevId(vdev.id)).copied();
    let is_cache = all.health.l2cache.iter().any(|cache| std::ptr::eq(cache, vdev));
    let size = vdev.size_bytes.or(usage.map(|usage| usage.size_bytes));
    match (usage, size) {
        // The content of a cache device is not part of the pool.
        (_, Some(size)) if is_cache => {
            let used = all.cache.iter().find(|cache| cache.vdev == vdev.guid);
            let unused = (size.saturating_sub(VDEV_LABELS_BYTES), 0);
            let space = used.map_or(unused, |cache| (cache.capacity_bytes, cache.used_bytes));
            Figures { size: Some(size), space: Some(space), ..Figures::default() }
        }
        (Some(usage), size) => Figures {
            size,
            space: Some((usage.size_bytes, usage.allocated_bytes)),
            checkpoint: usage.checkpoint_bytes,
            expandable: vdev.expandable_bytes,
            fragmentation: usage.fragmentation_percent,
        },
        (None, size) => Figures { size, ..Figures::default() },
    }
}
