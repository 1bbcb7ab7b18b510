//! Counts block pointers the way `zdb -b` does.
//!
//! Sums include a deduplicated or cloned block for each reference; additional references are also summed
//! separately, so that `allocated - deduped - cloned` equals the allocation in the space maps. Embedded
//! blocks count with their logical size and take no space; holes and redacted blocks do not count.
//!
//! Source: OpenZFS `zdb.c` (`zdb_count_block`), for the counts.

use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use std::collections::BTreeMap;

/// Sums over block pointers.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Sums {
    /// Pointers, including embedded ones.
    pub count: u64,
    /// Copies that are gang blocks.
    pub ganged: u64,
    /// Logical bytes.
    pub logical_bytes: u64,
    /// Stored bytes of one copy, without parity.
    pub physical_bytes: u64,
    /// Bytes allocated on the vdevs: all copies, with parity and padding.
    pub allocated_bytes: u64,
    /// Pointers with at least two copies on one top-level vdev.
    pub ditto_same_vdev: u64,
    /// Pointers with at least two copies in one metaslab.
    pub ditto_same_metaslab: u64,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.count += other.count;
        self.ganged += other.ganged;
        // Sizes in damaged pointers may have any value of up to 48 bits: let the sums saturate.
        self.logical_bytes = self.logical_bytes.saturating_add(other.logical_bytes);
        self.physical_bytes = self.physical_bytes.saturating_add(other.physical_bytes);
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.ditto_same_vdev += other.ditto_same_vdev;
        self.ditto_same_metaslab += other.ditto_same_metaslab;
    }
}

/// Additional references to blocks that were met before.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Shared {
    /// References beyond the first.
    pub count: u64,
    /// Bytes they would take if each had its own block.
    pub allocated_bytes: u64,
}

impl Shared {
    pub(crate) fn add(&mut self, allocated_bytes: u64) {
        self.count += 1;
        self.allocated_bytes = self.allocated_bytes.saturating_add(allocated_bytes);
    }
}

/// Sums of the blocks of one type at one level.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct TypeSums {
    /// The object type's name, or `deferred free`.
    pub object_type: String,
    /// 0 for data, 1 and up for indirect blocks.
    pub level: u8,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// All counts.
#[derive(
    Debug, Default, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Counts {
    /// Over all types and levels.
    pub total: Sums,
    /// Each type at each level that occurs.
    pub by_type: Vec<TypeSums>,
    /// References to deduplicated blocks beyond the first.
    pub deduped: Shared,
    /// References to cloned blocks beyond the first.
    pub cloned: Shared,
    /// Embedded pointers by type (0 is data).
    pub embedded: BTreeMap<u8, u64>,
}

/// The name under which a pointer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Under {
    /// Its own type.
    Type,
    /// Deferred frees of any type.
    DeferredFree,
}

/// Marks a pending free, which has no type here; no object type has this number.
const DEFERRED: u8 = 0xff;

#[derive(Debug, Default)]
pub(crate) struct Counter {
    sums: BTreeMap<(u8, u8), Sums>,
    pub(crate) deduped: Shared,
    pub(crate) cloned: Shared,
    embedded: BTreeMap<u8, u64>,
}

impl Counter {
    /// Counts a pointer. `metaslab_shift` of a vdev tells which copies share a metaslab.
    pub(crate) fn add(&mut self, bp: &Blkptr, under: Under, metaslab_shift: impl Fn(u64) -> u32) {
        let mut one = Sums {
            count: 1,
            logical_bytes: bp.lsize().0,
            physical_bytes: if bp.is_embedded() { 0 } else { bp.psize().0 },
            allocated_bytes: bp.asize().0,
            ..Sums::default()
        };
        if bp.is_embedded() {
            *self.embedded.entry(bp.embedded_type()).or_default() += 1;
        } else {
            one.ganged = bp.dvas().filter(|dva| dva.gang).count() as u64;
            let mut dvas = bp.dvas();
            let copies = [dvas.next(), dvas.next(), dvas.next()];
            let pairs = [(copies[0], copies[1]), (copies[0], copies[2]), (copies[1], copies[2])];
            for (a, b) in pairs.into_iter().filter_map(|(a, b)| Some((a?, b?))) {
                if a.vdev == b.vdev {
                    one.ditto_same_vdev = 1;
                    let shift = metaslab_shift(a.vdev.0).min(63);
                    if a.offset_bytes >> shift == b.offset_bytes >> shift {
                        one.ditto_same_metaslab = 1;
                    }
                }
            }
        }
        let kind = if under == Under::DeferredFree { DEFERRED } else { bp.object_type().0 };
        self.sums.entry((kind, bp.level())).or_default().add(&one);
    }

    pub(crate) fn finish(&self) -> Counts {
        let mut total = Sums::default();
        self.sums.values().for_each(|sums| total.add(sums));
        let by_type = self.sums.iter().map(|(&(kind, level), &sums)| {
            let object_type =
                if kind == DEFERRED { "deferred free".into() } else { ObjectType(kind).to_string() };
            TypeSums { object_type, level, sums }
        });
        Counts {
            total,
            by_type: by_type.collect(),
            deduped: self.deduped,
            cloned: self.cloned,
            embedded: self.embedded.clone(),
        }
    }
}
