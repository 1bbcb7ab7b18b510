//! Whose block it is: dataset, snapshots, file, byte range; and what can't be reached if it is gone.
//!
//! Idea: a damaged block is met in the oldest version of a dataset that has it. Later versions share it until one has
//! replaced it, and none gets it back; so the last that shares it is found by halving, comparing pointers at the same place.
//!
//! This runs for findings only, after all blocks are read.

use cenote_dataset::object::SPILL_BLOCK;
use cenote_dataset::{Mos, Objset};
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::dnode::{DNODE_MIN_BYTES, DNODES_PER_BLOCK, ObjectType};
use cenote_format::units::DatasetId;
use cenote_pool::Place;
use std::fmt;

use super::family::Family;

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

/// Finds owners. Ask for one dataset's after the other: only the last is kept open.
pub(super) struct Owners<'a> {
    mos: &'a Mos,
    /// The last dataset that was asked for; no family: it can't be opened.
    last: Option<(DatasetId, Option<Family>)>,
}

impl<'a> Owners<'a> {
    pub(super) fn new(mos: &'a Mos) -> Owners<'a> {
        Owners { mos, last: None }
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
        let Some(family) = self.family(place.dataset).await else {
            owner.dataset = Some(format!("dataset {}", place.dataset));
            return owner;
        };
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

    async fn family(&mut self, dataset: DatasetId) -> Option<&Family> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != dataset) {
            self.last = Some((dataset, Family::of(self.mos, dataset).await));
        }
        self.last.as_ref()?.1.as_ref()
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
