//! Whose block it is: dataset, snapshots, file, byte range; and what can't be reached if it is gone.
//!
//! Idea: a damaged block is met in the oldest version of a dataset that has it. Later versions share it until one has
//! replaced it, and none gets it back; so the last that shares it is found by halving, comparing pointers at the same place.
//!
//! This runs for findings only, after all blocks are read, and keeps the versions of each dataset that has any.

use cenote_dataset::object::SPILL_BLOCK;
use cenote_dataset::{Dataset, Mos, Objset};
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::dnode::{DNODE_MIN_BYTES, DNODES_PER_BLOCK, ObjectType};
use cenote_format::units::{BlockId, DatasetId, ObjectId};
use cenote_pool::Place;
use std::collections::HashMap;
use std::fmt;

/// Clones looked at for each finding.
const MAX_CLONES: usize = 16;

/// What a block is to its owner.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum Part {
    /// Content: bytes of a file, directory or volume.
    Data {
        /// Where it starts in the object.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
    },
    /// Attributes of a file that did not fit into its dnode.
    Attributes,
    /// An indirect block: without it a range of the content can't be found.
    Indirect {
        /// Its level.
        level: u8,
        /// Where the range starts in the object; `None` if the size of its blocks can't be had.
        offset_bytes: Option<u64>,
        /// How much, at most.
        len_bytes: Option<u64>,
    },
    /// Dnodes: without them these objects can't be found.
    Dnodes {
        /// The first object.
        first: u64,
        /// How many numbers.
        count: u64,
    },
    /// The head of an object set: without it nothing of the dataset can be found.
    ObjectSet,
    /// A block of the intent log.
    IntentLog,
}

/// Whose block it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Owner {
    /// The dataset's name; `None` for the pool's own metadata (the MOS).
    pub dataset: Option<String>,
    /// Its number.
    pub dataset_id: u64,
    /// Later snapshots, the live dataset and clones that have the same block.
    pub also_in: Vec<String>,
    /// The object's number.
    pub object: u64,
    /// The object's type.
    pub object_type: String,
    /// The file's path from the root of its dataset, if it is a file and can be found.
    pub path: Option<String>,
    /// What the block is to it.
    #[serde(flatten)]
    pub part: Part,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dataset.as_deref().unwrap_or("pool metadata"))?;
        match (&self.path, &self.part) {
            (_, Part::ObjectSet | Part::Dnodes { .. } | Part::IntentLog) => {}
            (Some(path), _) => write!(f, ": /{path}")?,
            (None, _) => write!(f, ": object {} ({})", self.object, self.object_type)?,
        }
        match &self.part {
            Part::Data { offset_bytes, len_bytes } => {
                write!(f, ", bytes {offset_bytes} to {}", offset_bytes.saturating_add(*len_bytes))
            }
            Part::Attributes => f.write_str(", attributes"),
            Part::Indirect { offset_bytes: Some(offset), len_bytes: Some(len), .. } => {
                write!(f, ", pointers to bytes {offset} to {}", offset.saturating_add(*len))
            }
            Part::Indirect { level, .. } => write!(f, ", pointers at level {level}"),
            Part::Dnodes { first, count } => {
                write!(f, ": objects {first} to {}", first.saturating_add(count.saturating_sub(1)))
            }
            Part::ObjectSet => f.write_str(": all of it"),
            Part::IntentLog => f.write_str(": intent log"),
        }?;
        match self.also_in.len() {
            0 => Ok(()),
            1 => write!(f, " (also in {})", self.also_in[0]),
            n => write!(f, " (also in {} and {} more)", self.also_in[0], n - 1),
        }
    }
}

/// Finds owners.
pub(super) struct Owners<'a> {
    mos: &'a Mos,
    /// By dataset: all versions under its directory, oldest first, and which one it is.
    versions: HashMap<DatasetId, Option<(Vec<Dataset>, usize)>>,
}

impl<'a> Owners<'a> {
    pub(super) fn new(mos: &'a Mos) -> Owners<'a> {
        Owners { mos, versions: HashMap::new() }
    }

    /// The owner of a block, or (without a pointer) of a place.
    pub(super) async fn of(&mut self, place: Place, bp: Option<&Blkptr>) -> Owner {
        let lsize = bp.map_or(0, |bp| bp.lsize().0);
        let log = bp.is_some_and(|bp| bp.object_type() == ObjectType::INTENT_LOG);
        let mut owner = Owner {
            dataset: None,
            dataset_id: place.dataset.0,
            also_in: Vec::new(),
            object: place.object.0,
            object_type: bp.map_or(String::new(), |bp| bp.object_type().to_string()),
            path: None,
            part: part(&place, bp, lsize),
        };
        if place.dataset.0 == 0 {
            return owner;
        }
        let Some((versions, index)) = self.versions(place.dataset).await else {
            owner.dataset = Some(format!("dataset {}", place.dataset));
            return owner;
        };
        owner.dataset = Some(versions[index].name().to_owned());
        let set = objset(&versions[index]).await;
        if let (Some(set), Part::Indirect { level, .. }) = (&set, &owner.part) {
            owner.part = indirect(set, &place, *level, lsize).await;
        }
        if let Some(set) = set.filter(|_| place.object.0 != 0) {
            owner.path = super::path::of(&set, place.object).await;
        }
        if let Some(bp) = bp.filter(|_| !log) {
            let versions = versions.to_vec();
            owner.also_in = sharing(&versions[index..], &place, bp).await;
        }
        owner
    }

    async fn versions(&mut self, dataset: DatasetId) -> Option<(&[Dataset], usize)> {
        if !self.versions.contains_key(&dataset) {
            let found = find_versions(self.mos, dataset).await;
            self.versions.insert(dataset, found);
        }
        self.versions.get(&dataset)?.as_ref().map(|(versions, index)| (&versions[..], *index))
    }
}

async fn find_versions(mos: &Mos, dataset: DatasetId) -> Option<(Vec<Dataset>, usize)> {
    let this = mos.dataset_by_id(dataset).await.ok()?;
    let Ok(head) = this.dir().head().await else { return Some((vec![this], 0)) };
    let mut versions = head.snapshots().await.unwrap_or_default();
    versions.sort_by_key(|snapshot| snapshot.creation_txg());
    versions.push(head);
    match versions.iter().position(|version| version.id() == dataset) {
        Some(index) => Some((versions, index)),
        None => Some((vec![this], 0)),
    }
}

/// With the key if there is one: dnodes of encrypted datasets need it.
async fn objset(dataset: &Dataset) -> Option<Objset> {
    match dataset.objset().await {
        Ok(set) => Some(set),
        Err(_) => dataset.objset_head().await.ok(),
    }
}

fn part(place: &Place, bp: Option<&Blkptr>, lsize: u64) -> Part {
    let kind = bp.map_or(ObjectType::NONE, Blkptr::object_type);
    if kind == ObjectType::OBJSET {
        return Part::ObjectSet;
    }
    if kind == ObjectType::INTENT_LOG {
        return Part::IntentLog;
    }
    if place.object.0 == 0 {
        let per_block = if place.level == 0 { lsize / DNODE_MIN_BYTES as u64 } else { DNODES_PER_BLOCK };
        let (first, count) = span(place, lsize);
        return Part::Dnodes {
            first: first.saturating_mul(per_block),
            count: count.saturating_mul(per_block),
        };
    }
    match place.level {
        _ if place.block == SPILL_BLOCK => Part::Attributes,
        0 => Part::Data { offset_bytes: place.block.0.saturating_mul(lsize), len_bytes: lsize },
        level => Part::Indirect { level, offset_bytes: None, len_bytes: None },
    }
}

/// Blocks of level 0 under a block: the first and how many. `lsize` is the block's own.
fn span(place: &Place, lsize: u64) -> (u64, u64) {
    let shift = (lsize / BLKPTR_BYTES as u64).checked_ilog2().unwrap_or(0) * u32::from(place.level);
    let count = 1u64.checked_shl(shift).unwrap_or(u64::MAX);
    (place.block.0.saturating_mul(count), count)
}

async fn indirect(set: &Objset, place: &Place, level: u8, lsize: u64) -> Part {
    let Ok(dnode) = set.dnode(place.object).await else {
        return Part::Indirect { level, offset_bytes: None, len_bytes: None };
    };
    let (first, count) = span(place, lsize);
    let block_bytes = u64::from(dnode.data_block_bytes);
    let count = count.min(dnode.max_block_id.0.saturating_add(1).saturating_sub(first));
    Part::Indirect {
        level,
        offset_bytes: Some(first.saturating_mul(block_bytes)),
        len_bytes: Some(count.saturating_mul(block_bytes)),
    }
}

/// Which of the later versions, and of their clones, have the same block as the first.
async fn sharing(versions: &[Dataset], place: &Place, bp: &Blkptr) -> Vec<String> {
    let (mut shared, mut end) = (1, versions.len());
    while shared < end {
        let middle = shared + (end - shared) / 2;
        match has(&versions[middle], place, bp).await {
            true => shared = middle + 1,
            false => end = middle,
        }
    }
    let mut names: Vec<String> =
        versions[1..shared].iter().map(|version| version.name().to_owned()).collect();
    for version in versions[..shared].iter().filter(|version| version.is_snapshot()) {
        for clone in version.clones().await.unwrap_or_default().into_iter().take(MAX_CLONES) {
            if has(&clone, place, bp).await {
                names.push(clone.name().to_owned());
            }
        }
    }
    names
}

async fn has(version: &Dataset, place: &Place, bp: &Blkptr) -> bool {
    let Some(set) = objset(version).await else { return false };
    let same = |other: &Blkptr| {
        other.logical_birth() == bp.logical_birth() && other.dvas().next() == bp.dvas().next()
    };
    if bp.object_type() == ObjectType::OBJSET {
        return same(set.bp());
    }
    let object = match place.object {
        ObjectId(0) => set.meta(),
        id => set.object(id).await.ok(),
    };
    let Some(object) = object else { return false };
    if place.block == SPILL_BLOCK {
        return object.dnode().spill().is_some_and(|spill| same(&spill));
    }
    object.blkptr(place.level, BlockId(place.block.0)).await.is_ok_and(|other| same(&other))
}
