//! Corrective receives: lost blocks of a snapshot are restored from a stream of that snapshot.
//!
//! Idea: the snapshot's tree stays as it is, and no txg changes for it. All copies of each block in the
//! stream are verified. A bad copy is repaired from another, as by a scrub. If all are lost, they are written
//! anew from the stream, but only if that makes the block which its pointer names.
//!
//! Invariant: the snapshot can't be destroyed meanwhile, and its space is not reused.
//!
//! Source: OpenZFS `dmu_recv.c` (`receive_process_write_record`, `do_corrective_recv`).

use std::collections::{BTreeMap, BTreeSet};

use cenote_boxed::boxed;
use cenote_dataset::errlog::LoggedError;
use cenote_dataset::{Dataset, Mos};
use cenote_engine::{Engine, SnapshotHold};
use cenote_format::blkptr::BlkptrKind;
use cenote_format::units::{BlockId, DatasetId, ObjectId, Txg};
use cenote_object::{DatasetError, Objset, Result};
use cenote_pool::{Fault, IoClass, Kept, Restored, VerifyItem, Zbookmark};

use crate::pool::errors::looked_at;

/// A block that a stream has.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Its object.
    pub object: ObjectId,
    /// Offset in the object.
    pub offset: u64,
    /// Logical size.
    pub logical_bytes: u64,
    /// Content.
    pub kept: Kept,
}

/// A lost block could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum CorrectError {
    /// The stream's block is not the lost one.
    #[error("object {object} offset {offset}: the stream's block is another")]
    Mismatch {
        /// Its object.
        object: ObjectId,
        /// Offset in the object.
        offset: u64,
    },
    /// The stream splits blocks that the pool has whole.
    #[error("object {object} offset {offset}: the stream has blocks of another size")]
    Size {
        /// Its object.
        object: ObjectId,
        /// Offset in the object.
        offset: u64,
    },
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] DatasetError),
}

/// The result of a corrective receive.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Corrected {
    /// Blocks verified.
    pub blocks: u64,
    /// Lost blocks restored from the stream.
    pub restored: u64,
}

/// A snapshot being corrected.
pub struct Correction {
    engine: Engine,
    mos: Mos,
    snapshot: Dataset,
    objset: Objset,
    /// Restored blocks, by place and birth.
    restored: BTreeSet<(ObjectId, BlockId, Txg)>,
    done: Corrected,
    _hold: SnapshotHold,
}

impl Correction {
    /// Begins to correct a snapshot. Blocks in the clear need the key of an encrypted one.
    ///
    /// # Errors
    /// No such snapshot; its key is not loaded; the pool can't be written.
    #[boxed]
    pub async fn begin(engine: &Engine, name: &str, is_raw: bool) -> Result<Correction> {
        let (_, snapshot) = engine.snapshot(name).await?;
        let hold = snapshot.hold().ok_or_else(|| DatasetError::NoDataset { name: name.into() })?;
        // Labels must mark the pool as in use before any repair write.
        engine.force_sync().await?;
        let mos = engine.mos_to_mend().await?;
        let snapshot = mos.dataset(name).await?;
        let objset = match is_raw {
            true => snapshot.readable_objset().await?,
            false => {
                snapshot.key().await?;
                snapshot.objset().await?
            }
        };
        let (restored, done) = (BTreeSet::new(), Corrected::default());
        Ok(Correction { engine: engine.clone(), mos, snapshot, objset, restored, done, _hold: hold })
    }

    /// Verifies these blocks, and restores the lost ones.
    ///
    /// # Errors
    /// An object can't be read; a lost block can't be restored.
    #[boxed]
    pub async fn correct(&mut self, offers: Vec<Offer>) -> Result<(), CorrectError> {
        let mut items = Vec::new();
        let mut offered = Vec::new();
        for offer in offers {
            let object = self.objset.object(offer.object).await?;
            let block = BlockId(offer.offset / object.block_bytes());
            let bp = object.blkptr(0, block).await?;
            if bp.kind() != BlkptrKind::Normal {
                continue;
            }
            let is_whole = offer.offset.is_multiple_of(object.block_bytes())
                && offer.logical_bytes == object.block_bytes();
            let dataset = self.objset.dataset_id();
            items
                .push(VerifyItem { bp, place: Zbookmark { dataset, object: offer.object, level: 0, block } });
            offered.push((offer, is_whole));
        }
        self.done.blocks += items.len() as u64;
        let pool = self.mos.pool().for_class(IoClass::Scrub);
        let mut bad: BTreeMap<usize, bool> = BTreeMap::new();
        for finding in pool.verify_many(items.clone()).await {
            *bad.entry(finding.item).or_default() |= finding.fault == Fault::Lost;
        }
        for (at, is_lost) in bad {
            let (Some(item), Some((offer, is_whole))) = (items.get(at), offered.get(at)) else { continue };
            let (object, offset) = (offer.object, offer.offset);
            if !is_lost {
                pool.repair().scrub(vec![*item]).await;
                continue;
            }
            if !is_whole {
                return Err(CorrectError::Size { object, offset });
            }
            let restored = pool.repair().restore(&item.bp, &offer.kept, self.objset.key(), item.place).await;
            match restored.map_err(DatasetError::from)? {
                Restored::Written => {}
                Restored::Mismatch => return Err(CorrectError::Mismatch { object, offset }),
            }
            let left = pool.verify_many(vec![*item]).await;
            if left.iter().any(|finding| finding.fault == Fault::Lost) {
                return Err(CorrectError::Mismatch { object, offset });
            }
            self.restored.insert((object, item.place.block, item.bp.allocation_birth()));
            self.done.restored += 1;
        }
        Ok(())
    }

    /// Makes restored blocks durable and removes them from the error log; also after an error.
    ///
    /// # Errors
    /// A device fails; the error log can't be written.
    #[boxed]
    pub async fn finish(self) -> Result<Corrected> {
        if self.restored.is_empty() {
            return Ok(self.done);
        }
        let pool = self.mos.pool();
        pool.flush(Txg(pool.uberblock().txg.0 + 1)).await.map_err(DatasetError::from)?;
        let head = self.snapshot.dir().head().await?.id();
        let is_own = |dataset: DatasetId| dataset == self.snapshot.id() || dataset == head;
        let mut errors = self.mos.error_log().await?;
        errors.retain(|error| {
            let LoggedError { place, birth, .. } = error;
            let is_restored = match birth {
                // At this place, the live dataset may have lost a later block, too.
                Some(birth) => {
                    is_own(place.dataset) && self.restored.contains(&(place.object, place.block, *birth))
                }
                None => {
                    let (from, to) = (Txg(0), Txg(u64::MAX));
                    let births = (place.object, place.block, from)..=(place.object, place.block, to);
                    place.dataset == self.snapshot.id() && self.restored.range(births).next().is_some()
                }
            };
            place.level == 0 && is_restored
        });
        if !errors.is_empty() {
            let forget = self.engine.run_on_pool(move |context| {
                Box::pin(async move { looked_at(context, &errors, &[]).await.map(drop) })
            });
            forget.await?;
        }
        Ok(self.done)
    }
}
