//! The owner of a block: dataset, snapshots, file, byte range; and the data unreachable without it.
//!
//! Idea: a damaged block is met in the oldest version of a dataset that has it. Later versions share it until
//! one replaces it, and it never returns. So the last version that shares it is found by binary search,
//! comparing pointers at the same bookmark.
//!
//! This runs only for findings, after all blocks are read.

use std::fmt;

use cenote_dataset::Mos;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::dnode::{DNODE_MIN_BYTES, DNODES_PER_BLOCK, ObjectType};
use cenote_format::units::DatasetId;
use cenote_object::Objset;
use cenote_object::object::SPILL_BLOCK;
use cenote_pool::Zbookmark;

use super::family::Family;

/// The content of a block.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum Part {
    /// Content: bytes of a file, directory or volume.
    Data {
        /// Its offset in the object.
        offset_bytes: u64,
        /// Its length.
        len_bytes: u64,
    },
    /// Attributes of a file that did not fit into its dnode.
    Attributes,
    /// An indirect block: without it a range of the content is unreachable.
    Indirect {
        /// Its level.
        level: u8,
        /// The offset of that range in the object; `None` if the block size is unknown.
        offset_bytes: Option<u64>,
        /// The maximum length of the range.
        len_bytes: Option<u64>,
    },
    /// Dnodes: without them these objects are unreachable.
    Dnodes {
        /// The first object.
        first: u64,
        /// The number of objects, at least 1; `None` if the end is unknown.
        count: Option<u64>,
    },
    /// The head of an object set: without it the whole dataset is unreachable.
    ObjectSet,
    /// A block of the intent log.
    IntentLog,
}

/// The owner of a block.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Owner {
    /// The dataset's name; `None` for the pool's own metadata (the MOS).
    pub dataset: Option<String>,
    /// The dataset's id.
    pub dataset_id: u64,
    /// Later snapshots, the live dataset and clones that share the block.
    pub also_in: Vec<String>,
    /// The object's number.
    pub object: u64,
    /// The object's type.
    pub object_type: String,
    /// The file's path from the dataset's root, if it is a file and can be found.
    pub path: Option<String>,
    /// The content of the block.
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
            Part::Dnodes { first, count: Some(1) } => write!(f, ": dnode of object {first}"),
            Part::Dnodes { first, count: Some(count) } => {
                write!(f, ": dnodes of objects {first} to {}", first + count - 1)
            }
            Part::Dnodes { first: 0, count: None } => f.write_str(": dnodes of all objects"),
            Part::Dnodes { first, count: None } => write!(f, ": dnodes of all objects from {first} on"),
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

/// Looks up owners. Query them grouped by dataset: only the last dataset stays open.
pub(super) struct Owners<'a> {
    mos: &'a Mos,
    /// The last dataset queried; without a family it can't be opened.
    last: Option<(DatasetId, Option<Family>)>,
}

impl<'a> Owners<'a> {
    pub(super) fn new(mos: &'a Mos) -> Owners<'a> {
        Owners { mos, last: None }
    }

    /// The owner of a block or, without a pointer, of a bookmark.
    pub(super) async fn of(&mut self, place: Zbookmark, bp: Option<&Blkptr>) -> Owner {
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
            owner.part = cut(owner.part, Some(self.mos.objset()));
            return owner;
        }
        let Some(family) = self.family(place.dataset).await else {
            owner.dataset = Some(format!("dataset {}", place.dataset));
            owner.part = cut(owner.part, None);
            return owner;
        };
        owner.part = cut(owner.part, family.objset().await);
        owner.dataset = Some(family.name().to_owned());
        if let (Some(set), Part::Indirect { level, .. }) = (family.objset().await, &owner.part) {
            owner.part = indirect(set, &place, *level, lsize).await;
        }
        if place.object.0 != 0 {
            owner.path = family.path(place.object).await;
        }
        if let Some(bp) = bp.filter(|_| !log) {
            owner.also_in = family.sharing(&place, bp).await;
        }
        owner
    }

    /// A dataset's name; `None` for the MOS.
    pub(super) async fn dataset(&mut self, id: DatasetId) -> Option<String> {
        match self.family(id).await {
            _ if id.0 == 0 => None,
            Some(family) => Some(family.name().to_owned()),
            None => Some(format!("dataset {id}")),
        }
    }

    async fn family(&mut self, dataset: DatasetId) -> Option<&Family> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != dataset) {
            self.last = Some((dataset, Family::of(self.mos, dataset).await));
        }
        self.last.as_ref()?.1.as_ref()
    }
}

fn part(place: &Zbookmark, bp: Option<&Blkptr>, lsize: u64) -> Part {
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
            count: Some(count.saturating_mul(per_block)),
        };
    }
    match place.level {
        _ if place.block == SPILL_BLOCK => Part::Attributes,
        0 => Part::Data { offset_bytes: place.block.0.saturating_mul(lsize), len_bytes: lsize },
        level => Part::Indirect { level, offset_bytes: None, len_bytes: None },
    }
}

/// Clips a block's dnodes to the objects that the object set can have.
fn cut(part: Part, set: Option<&Objset>) -> Part {
    let Part::Dnodes { first, count: Some(count) } = part else { return part };
    let objects = match set {
        Some(set) => Some(count.min(set.last_object().0.saturating_sub(first)).max(1)),
        // One block's worth of dnodes is certain.
        None => Some(count).filter(|count| *count <= DNODES_PER_BLOCK),
    };
    Part::Dnodes { first, count: objects }
}

/// The level-0 blocks below a block: the first and their number. `lsize` is the block's own.
fn span(place: &Zbookmark, lsize: u64) -> (u64, u64) {
    let shift = (lsize / BLKPTR_BYTES as u64).checked_ilog2().unwrap_or(0) * u32::from(place.level);
    let count = 1u64.checked_shl(shift).unwrap_or(u64::MAX);
    (place.block.0.saturating_mul(count), count)
}

async fn indirect(set: &Objset, place: &Zbookmark, level: u8, lsize: u64) -> Part {
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
