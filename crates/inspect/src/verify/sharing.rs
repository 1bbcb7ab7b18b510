//! Blocks with several references: deduplicated and cloned blocks.
//!
//! Idea: each block is verified and counted once, so pointers to possibly shared blocks are compared with
//! those met before. Pointers to deduplicated blocks are marked; for a cloned block, the block reference
//! table (BRT) has its address and the number of additional references.
//!
//! A pointer written before its dedup entry gained copies (because `copies=` was raised) names fewer copies
//! than are allocated; the table's entry then replaces it.
//!
//! Memory: some 32 bytes for each deduplicated block and each BRT entry. Dedup entries with one copy, nearly
//! all, are not kept.
//!
//! Source: OpenZFS `zdb.c` (`zdb_count_block`), `ddt.c`, `brt.c`.

use std::collections::{HashMap, HashSet};

use cenote_dataset::Mos;
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::ddt::{DdtValue, ddt_blkptr};
use cenote_format::units::VdevId;
use cenote_object::Result;

/// How a pointer relates to those met before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occurrence {
    /// The first pointer to its block.
    First,
    /// Its block was met before and is deduplicated.
    Deduped,
    /// Its block was met before and is cloned.
    Cloned,
}

/// Address of a first copy.
type Address = (VdevId, u64);

/// References still to come to a cloned block.
#[derive(Debug, Clone, Copy)]
struct Clones {
    left: u64,
    met: bool,
}

/// The tables, and which of their entries were met.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    deduped: HashSet<Address>,
    wide: HashMap<Address, [Dva; 3]>,
    cloned: HashMap<Address, Clones>,
    /// Deduplicated blocks without references: allocated until their entries leave the log.
    pub(super) unreferenced: Vec<Blkptr>,
}

impl Sharing {
    /// Reads the tables as far as they are needed.
    ///
    /// # Errors
    /// A table is damaged.
    pub(super) async fn load(mos: &Mos) -> Result<Sharing> {
        let mut sharing = Sharing::default();
        for table in mos.cloned_blocks().await? {
            let mut entries = table.entries();
            while let Some(batch) = entries.next_batch().await {
                for entry in batch?.into_iter().filter(|entry| entry.count > 0) {
                    let clones = Clones { left: entry.count, met: false };
                    sharing.cloned.insert((table.vdev, entry.offset_bytes), clones);
                }
            }
        }
        for table in mos.dedup_tables().await? {
            let mut entries = table.entries().await?;
            while let Some(batch) = entries.next_batch().await {
                let batch = batch?;
                // Legacy entries have separate addresses for each number of copies, and pointers name all.
                if batch.iter().any(|item| matches!(item.value, DdtValue::Traditional(_))) {
                    break;
                }
                for item in batch {
                    sharing.keep_wide(&item.value);
                    let unreferenced = item.value.phys().filter(|set| set.refcount == 0);
                    let pointers = unreferenced.map(|set| ddt_blkptr(table.checksum_id, &item.key, &set));
                    sharing.unreferenced.extend(pointers);
                }
            }
        }
        Ok(sharing)
    }

    /// Registers a pointer to a block on disk.
    pub(super) fn meet(&mut self, bp: &Blkptr) -> Occurrence {
        let Some(first) = bp.dvas().next() else { return Occurrence::First };
        let address = (first.vdev, first.offset_bytes);
        if bp.is_dedup() {
            return if self.deduped.insert(address) { Occurrence::First } else { Occurrence::Deduped };
        }
        let Some(clones) = self.cloned.get_mut(&address) else { return Occurrence::First };
        if !clones.met {
            clones.met = true;
            return Occurrence::First;
        }
        clones.left -= 1;
        if clones.left == 0 {
            // A reference beyond the table's count is reported as an overlap.
            self.cloned.remove(&address);
        }
        Occurrence::Cloned
    }

    /// The pointer with all copies of its dedup entry.
    pub(super) fn widen(&self, bp: Blkptr) -> Blkptr {
        let Some(first) = bp.dvas().next().filter(|_| bp.is_dedup()) else { return bp };
        let Some(dvas) = self.wide.get(&(first.vdev, first.offset_bytes)) else { return bp };
        let mut words = *bp.words();
        // The third DVA of an encrypted block's pointer does not hold an address.
        let places = if bp.is_encrypted() { 2 } else { 3 };
        for (pair, dva) in words.chunks_exact_mut(2).zip(dvas).take(places) {
            pair.copy_from_slice(&dva.to_words());
        }
        Blkptr::from_words(words)
    }

    fn keep_wide(&mut self, value: &DdtValue) {
        for phys in value.phys() {
            if phys.dvas[1].asize.0 != 0 {
                let first = phys.dvas[0];
                self.wide.insert((first.vdev, first.offset_bytes), phys.dvas);
            }
        }
    }
}
