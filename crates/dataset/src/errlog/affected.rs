//! Owners of a damaged block: live datasets, snapshots and clones.
//!
//! Idea: with feature `head_errlog`, the log names a live dataset and the block's birth. Every version with a
//! pointer of that birth at the same position has the block: the dataset unless it replaced it, its later
//! snapshots, their clones, and so on. Snapshots are checked one by one, as in the kernel; each is opened
//! once for the whole log.
//!
//! Source: OpenZFS `spa_errlog.c` (`check_filesystem`).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::{DatasetError, Objset, Result};

use crate::dataset::Dataset;
use crate::errlog::{LoggedError, pointer};
use crate::mos::Mos;

impl Mos {
    /// Objects with blocks in the error log, in every dataset with those blocks; dataset 0 is the MOS. Blocks
    /// without an owner are omitted.
    ///
    /// # Errors
    /// The log is damaged.
    #[boxed]
    pub async fn damaged_objects(&self) -> Result<BTreeSet<(DatasetId, ObjectId)>> {
        let mut objects = BTreeSet::new();
        let mut families = Families::of(self);
        for error in self.error_log().await? {
            let owners = match error.birth {
                Some(birth) => families.owners(&error, birth).await,
                None => Ok(Owners { all: vec![error.place.dataset], ..Owners::default() }),
            };
            // If the owners cannot be determined, list the error as logged.
            let owners = owners.map_or_else(|_| vec![error.place.dataset], |owners| owners.all);
            objects.extend(owners.into_iter().map(|dataset| (dataset, error.place.object)));
        }
        Ok(objects)
    }

    /// Block of each error, with a dataset that has it; `None` if no dataset has it any more. If the log
    /// lacks the birth, the block is the current one at that position. An error means that the path to it is
    /// unreadable.
    #[boxed]
    pub async fn logged_blocks(&self, errors: &[LoggedError]) -> Vec<Result<Option<(DatasetId, Blkptr)>>> {
        let (mut blocks, mut families) = (Vec::new(), Families::of(self));
        for error in errors {
            let block = match error.birth {
                Some(birth) if error.place.dataset != DatasetId(0) => families.block(error, birth).await,
                birth => self.block_now(error, birth).await,
            };
            blocks.push(block);
        }
        blocks
    }

    async fn block_now(
        &self,
        error: &LoggedError,
        birth: Option<Txg>,
    ) -> Result<Option<(DatasetId, Blkptr)>> {
        let dataset = error.place.dataset;
        if dataset != DatasetId(0) && !self.is_dataset(dataset).await? {
            return Ok(None);
        }
        let bp = there(self.pointer_at(&error.place).await)?;
        let is_it = |bp: &Blkptr| birth.is_none_or(|birth| is_born(bp, birth));
        Ok(bp.filter(is_it).map(|bp| (dataset, bp)))
    }

    async fn is_dataset(&self, id: DatasetId) -> Result<bool> {
        match self.dataset_phys(id).await {
            // Another object may have reused the number.
            Err(DatasetError::NoObject { .. } | DatasetError::Format { .. }) => Ok(false),
            phys => phys.map(|_| true),
        }
    }
}

/// Whether a block has the logged birth, which is the logical one in OpenZFS 2.3 and the physical one in 2.4.
fn is_born(bp: &Blkptr, birth: Txg) -> bool {
    bp.logical_birth() == birth || bp.physical_birth().txg() == birth
}

/// `None` for a hole or a missing object.
fn there(found: Result<Blkptr>) -> Result<Option<Blkptr>> {
    match found {
        Err(DatasetError::NoObject { .. }) => Ok(None),
        found => found.map(|bp| (!bp.is_hole()).then_some(bp)),
    }
}

#[derive(Default)]
struct Owners {
    all: Vec<DatasetId>,
    block: Option<Blkptr>,
    /// Error that left some candidates undecided.
    doubt: Option<DatasetError>,
}

/// A live dataset or snapshot.
struct Version {
    dataset: Dataset,
    objset: Objset,
    /// Live clones.
    clones: Vec<DatasetId>,
}

/// Datasets with their snapshots, each opened once.
struct Families<'a> {
    mos: &'a Mos,
    opened: HashMap<DatasetId, Arc<Vec<Version>>>,
    origins: HashMap<DatasetId, Option<(Txg, DatasetId)>>,
}

impl<'a> Families<'a> {
    fn of(mos: &'a Mos) -> Families<'a> {
        Families { mos, opened: HashMap::new(), origins: HashMap::new() }
    }

    /// The block, with one owner.
    async fn block(&mut self, error: &LoggedError, birth: Txg) -> Result<Option<(DatasetId, Blkptr)>> {
        if !self.mos.is_dataset(error.place.dataset).await? {
            return Ok(None);
        }
        let owners = self.owners(error, birth).await?;
        match (owners.all.first().copied().zip(owners.block), owners.doubt) {
            (None, Some(doubt)) => Err(doubt),
            (found, _) => Ok(found),
        }
    }

    async fn owners(&mut self, error: &LoggedError, birth: Txg) -> Result<Owners> {
        let mut head = error.place.dataset;
        let mut seen = HashSet::from([head]);
        // A clone has blocks older than itself from its origin.
        while let Some((_, above)) = self.origin(head).await?.filter(|(made, _)| *made >= birth) {
            head = above;
            if !seen.insert(head) {
                break;
            }
        }
        let mut owners = Owners::default();
        let mut pending = vec![head];
        seen = HashSet::from([head]);
        while let Some(head) = pending.pop() {
            for version in self.family(head).await?.iter() {
                let is_old_enough = !version.dataset.is_snapshot() || version.dataset.creation_txg() >= birth;
                if !is_old_enough {
                    continue;
                }
                match there(pointer(&version.objset, &error.place).await) {
                    Ok(Some(bp)) if is_born(&bp, birth) => {
                        owners.all.push(version.dataset.id());
                        owners.block = Some(bp);
                        pending.extend(version.clones.iter().filter(|&&clone| seen.insert(clone)));
                    }
                    Ok(_) => {}
                    Err(doubt) => owners.doubt = Some(doubt),
                }
            }
        }
        Ok(owners)
    }

    /// Txg of the snapshot that a live dataset was cloned from, and that snapshot's live dataset.
    async fn origin(&mut self, head: DatasetId) -> Result<Option<(Txg, DatasetId)>> {
        if let Some(origin) = self.origins.get(&head) {
            return Ok(*origin);
        }
        let origin = self.mos.dataset_by_id(head).await?.origin().await?;
        let origin = origin.map(|made| (made.creation_txg(), DatasetId(made.dir().phys().head_dataset.0)));
        self.origins.insert(head, origin);
        Ok(origin)
    }

    async fn family(&mut self, head: DatasetId) -> Result<Arc<Vec<Version>>> {
        if let Some(family) = self.opened.get(&head) {
            return Ok(family.clone());
        }
        let head = self.mos.dataset_by_id(head).await?;
        let mut family = Vec::new();
        for dataset in head.snapshots().await?.into_iter().chain([head.clone()]) {
            let objset = dataset.readable_objset().await?;
            let clones = match dataset.is_snapshot() {
                true => dataset.clones().await?.iter().map(Dataset::id).collect(),
                false => Vec::new(),
            };
            family.push(Version { dataset, objset, clones });
        }
        let family = Arc::new(family);
        self.opened.insert(head.id(), family.clone());
        Ok(family)
    }
}
