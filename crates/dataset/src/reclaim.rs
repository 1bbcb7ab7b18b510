//! Space that destroying snapshots would free: `zfs destroy -nv pool/a@first%last`.
//!
//! Idea: a block held only by a run of snapshots was born after the version before the run and died before
//! the version after it. It is therefore on a deadlist of the versions after the first, up to the one after
//! the last.
//!
//! ```text
//!   before ---- first ---- ... ---- last ---- after
//!          born here          dead here: on the deadlists of what follows first, up to after
//! ```
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_space_wouldfree`).

use cenote_boxed::boxed;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::Result;
use cenote_object::deadlist::Deadlist;
use cenote_object::trail::Trail;

use crate::dataset::{Dataset, read_phys};
use crate::space::EARLIER;

impl Dataset {
    /// Bytes freed by destroying this snapshot, `last` and all between.
    ///
    /// # Errors
    /// A deadlist is damaged; `last` is not this snapshot or a later one of the same dataset.
    #[boxed]
    pub async fn reclaimable_through(&self, last: &Dataset) -> Result<u64> {
        let mos = self.mos();
        let mut bytes = 0u64;
        let mut trail = Trail::new(mos.objset(), EARLIER);
        let mut at = DatasetId(last.phys().next_snapshot.0);
        while at != self.id() {
            trail.enter(ObjectId(at.0))?;
            let (version, _) = read_phys(mos, at).await?;
            if version.prev_snapshot_txg < self.creation_txg() {
                let why = format!("'{}' is not a later version of '{}'", last.name(), self.name());
                return Err(mos.objset().damaged(version.dir, why));
            }
            let deadlist = Deadlist::open(mos.objset(), version.deadlist).await?;
            bytes = bytes.saturating_add(deadlist.bytes_born_after(self.phys().prev_snapshot_txg).await?);
            at = DatasetId(version.prev_snapshot.0);
        }
        Ok(bytes)
    }
}
