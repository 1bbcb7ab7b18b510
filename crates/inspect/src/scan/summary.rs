//! Totals of a scan: by folder, owner, age, size and vdev class. Each worker sums its batches; the partial
//! sums are merged.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cenote_format::text_or_bytes;
use cenote_fs::FileKind;
use cenote_pool::VdevClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Row, RowBatch};

/// Lower bounds of the size histogram's buckets in bytes: powers of 16 from 0 to 16 TiB.
pub const SIZE_STEPS: [u64; 12] =
    [0, 1, 512, 4 << 10, 32 << 10, 128 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30, 16 << 30, 1 << 40];
/// Lower bounds of the age histogram's buckets, in days since the content last changed.
pub const AGE_STEPS_DAYS: [u64; 8] = [0, 1, 7, 30, 90, 365, 3 * 365, 10 * 365];
/// Most folders with separate totals; the rest is added to their parents.
const MOST_FOLDERS: usize = 100_000;

/// A number of files and their size.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Files, folders and all other types.
    pub files: u64,
    /// Bytes of content.
    pub size_bytes: u64,
    /// Bytes allocated on disk.
    pub allocated_bytes: u64,
}

impl Totals {
    fn add(&mut self, row: &Row) {
        self.merge(Totals {
            files: 1,
            size_bytes: if row.attr.kind() == FileKind::Regular { row.attr.size } else { 0 },
            allocated_bytes: row.attr.allocated_bytes(),
        });
    }

    fn merge(&mut self, other: Totals) {
        self.files += other.files;
        self.size_bytes = self.size_bytes.saturating_add(other.size_bytes);
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
    }
}

/// How a summary groups files.
#[derive(Debug, Clone, Copy)]
pub struct SummaryOptions {
    /// Folders down to this depth get separate totals; 0 means only whole datasets.
    pub depth: u32,
    /// The time from which ages are counted, in seconds since 1970.
    pub now_s: i64,
}

/// Totals of the rows seen so far.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// All files.
    pub all: Totals,
    /// By type letter.
    pub by_type: BTreeMap<char, Totals>,
    /// By dataset, snapshot and folder; a file counts for its folder and for every folder above.
    #[serde(with = "text_or_bytes::map")]
    #[schemars(with = "Vec<(text_or_bytes::TextOrBytes, Totals)>")]
    pub by_folder: BTreeMap<Vec<u8>, Totals>,
    /// Too many folders: some have no separate total. Use a lower depth.
    pub folders_cut: bool,
    /// By owner.
    pub by_owner: BTreeMap<u32, Totals>,
    /// Regular files by size, in the buckets of [`SIZE_STEPS`].
    pub by_size: [Totals; SIZE_STEPS.len()],
    /// Regular files by age of content, in the buckets of [`AGE_STEPS_DAYS`].
    pub by_age: [Totals; AGE_STEPS_DAYS.len()],
    /// By class of the vdev that holds the dnode.
    pub by_class: BTreeMap<Cow<'static, str>, Totals>,
    /// Number of problems.
    pub problems: u64,
}

impl Summary {
    /// Totals of one batch.
    pub fn of(batch: &RowBatch, options: SummaryOptions) -> Summary {
        let mut summary = Summary { problems: batch.problems.len() as u64, ..Summary::default() };
        let mut base = batch.target.dataset.clone().into_bytes();
        if let Some(snapshot) = &batch.target.snapshot {
            base.push(b'@');
            base.extend_from_slice(snapshot.as_bytes());
        }
        for row in &batch.rows {
            summary.add(row, &base, batch.path(row), options);
        }
        summary
    }

    fn add(&mut self, row: &Row, base: &[u8], path: &[u8], options: SummaryOptions) {
        self.all.add(row);
        self.by_type.entry(row.attr.kind().letter()).or_default().add(row);
        self.by_owner.entry(row.attr.owner().0).or_default().add(row);
        self.by_class.entry(class_of(row.class).into()).or_default().add(row);
        if row.attr.kind() == FileKind::Regular {
            self.by_size[step(&SIZE_STEPS, row.attr.size)].add(row);
            let age_s = options.now_s.saturating_sub(row.attr.mtime.seconds).max(0) as u64;
            self.by_age[step(&AGE_STEPS_DAYS, age_s / 86_400)].add(row);
        }
        self.add_to_folder(base, row);
        let is_dir = row.attr.is_dir();
        let mut depth = 0;
        for (at, _) in
            path.iter().enumerate().filter(|&(_, &b)| b == b'/').chain(is_dir.then_some((path.len(), &b'/')))
        {
            depth += 1;
            if depth > options.depth || path == b"." {
                break;
            }
            let folder = [base, b":/", &path[..at]].concat();
            self.add_to_folder(&folder, row);
        }
    }

    fn add_to_folder(&mut self, folder: &[u8], row: &Row) {
        if let Some(totals) = self.by_folder.get_mut(folder) {
            totals.add(row);
        } else if self.by_folder.len() < MOST_FOLDERS {
            self.by_folder.entry(folder.to_vec()).or_default().add(row);
        } else {
            self.folders_cut = true;
        }
    }

    /// Adds another partial summary.
    pub fn merge(&mut self, other: Summary) {
        fn merge_all<K: Ord>(into: &mut BTreeMap<K, Totals>, from: BTreeMap<K, Totals>) {
            from.into_iter().for_each(|(key, totals)| into.entry(key).or_default().merge(totals));
        }
        self.all.merge(other.all);
        merge_all(&mut self.by_type, other.by_type);
        merge_all(&mut self.by_owner, other.by_owner);
        merge_all(&mut self.by_class, other.by_class);
        for (folder, totals) in other.by_folder {
            if self.by_folder.len() < MOST_FOLDERS || self.by_folder.contains_key(&folder) {
                self.by_folder.entry(folder).or_default().merge(totals);
            } else {
                self.folders_cut = true;
            }
        }
        self.folders_cut |= other.folders_cut;
        self.by_size.iter_mut().zip(other.by_size).for_each(|(into, from)| into.merge(from));
        self.by_age.iter_mut().zip(other.by_age).for_each(|(into, from)| into.merge(from));
        self.problems += other.problems;
    }
}

/// The last bucket whose lower bound is not above `value`.
fn step(steps: &[u64], value: u64) -> usize {
    steps.partition_point(|&bound| bound <= value).saturating_sub(1)
}

fn class_of(class: Option<VdevClass>) -> &'static str {
    super::text::class_name(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_step_at_or_below_them() {
        assert_eq!(step(&SIZE_STEPS, 0), 0);
        assert_eq!(step(&SIZE_STEPS, 1), 1);
        assert_eq!(step(&SIZE_STEPS, 511), 1);
        assert_eq!(step(&SIZE_STEPS, u64::MAX), SIZE_STEPS.len() - 1);
        assert_eq!(step(&AGE_STEPS_DAYS, 6), 1);
    }

    #[test]
    fn parts_add_up() {
        let part = Summary {
            all: Totals { files: 2, size_bytes: 10, allocated_bytes: 1024 },
            by_owner: BTreeMap::from([(0, Totals { files: 2, size_bytes: 10, allocated_bytes: 1024 })]),
            ..Summary::default()
        };
        let mut whole = part.clone();
        whole.merge(part);
        assert_eq!(whole.all.files, 4);
        assert_eq!(whole.by_owner[&0].size_bytes, 20);
    }
}
