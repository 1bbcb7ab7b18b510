//! Facts about a piece of work before it runs: the files it needs, and its duration.

use super::Work;
use crate::load::job::{Job, Jobs};
use crate::load::tree::{Leaf, Shape};

/// Minimum size of a small file or folder on most file systems.
const SMALL_BYTES: u64 = 4096;

/// Files and their size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// Works with equal names share the same files.
    pub name: String,
    /// Total size.
    pub bytes: u64,
}

impl Work {
    /// Space it needs, as far as known: work with a time limit checks its space itself.
    pub fn needs(&self) -> Vec<Needed> {
        let one = |bytes| vec![Needed { name: "work".into(), bytes }];
        let tree = |shape: &Shape| {
            let each = match shape.leaf {
                Leaf::Folder => SMALL_BYTES,
                Leaf::File { bytes } => bytes.next_multiple_of(SMALL_BYTES),
            };
            shape.count.saturating_mul(each)
        };
        match self {
            Work::Io(Jobs(jobs)) => jobs.iter().flat_map(files).collect(),
            Work::Tree(work) if work.steps.iter().all(|step| step.seconds.is_none()) => {
                one(tree(&work.shape))
            }
            Work::Tree(_) => Vec::new(),
            Work::Scan(scan) => scan.tree.iter().flat_map(|shape| one(tree(shape))).collect(),
            Work::Bonnie(bonnie) => one(bonnie.size_bytes),
            // The disks are sparse files: they hold the data, one wiped disk, and a copy of it, or a new one.
            Work::Recovery(recovery) if recovery.devices.is_empty() => {
                let filled = u128::from(recovery.disk_bytes) * recovery.disks as u128;
                let filled = (filled * u128::from(recovery.fill_percent) / 100) as u64;
                one(filled.saturating_add(recovery.disk_bytes.saturating_mul(2)))
            }
            Work::Recovery(_) => Vec::new(),
        }
    }

    /// Bytes of its data set, if that has a size.
    pub fn data_bytes(&self) -> Option<u64> {
        let mut needs = self.needs();
        needs.dedup_by(|a, b| a.name == b.name);
        (!needs.is_empty()).then(|| needs.iter().map(|needed| needed.bytes).sum())
    }

    /// Duration in nanoseconds, if fixed, without the time to create its files.
    pub fn measured_ns(&self) -> Option<u64> {
        match self {
            Work::Io(Jobs(jobs)) => {
                let mut groups: Vec<u64> = Vec::new();
                for job in jobs {
                    let takes =
                        job.runtime_ns?.saturating_add(job.ramp_ns).saturating_add(job.start_delay_ns);
                    match groups.last_mut() {
                        Some(group) if !job.stonewall => *group = (*group).max(takes),
                        _ => groups.push(takes),
                    }
                }
                Some(groups.iter().sum())
            }
            Work::Tree(work) => {
                let seconds = work.steps.iter().map(|step| step.seconds);
                seconds.sum::<Option<u64>>().map(|seconds| seconds.saturating_mul(1_000_000_000))
            }
            _ => None,
        }
    }
}

fn files(job: &Job) -> Vec<Needed> {
    let bytes = job.offset_bytes.saturating_add(job.size_bytes);
    let named = |name: String| Needed { name, bytes };
    match &job.filename {
        Some(name) => vec![named(name.display().to_string())],
        None => (0..job.workers.max(1)).map(|number| named(format!("{}.{number}", job.name))).collect(),
    }
}
