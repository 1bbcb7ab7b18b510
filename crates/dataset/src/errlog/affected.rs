//! Who has a damaged block: live datasets, snapshots and clones.
//!
//! Idea: with feature `head_errlog` the log names one live dataset and the block's birth. Whoever has a
//! pointer of that birth at the same place has the same block: the dataset itself unless it has replaced it,
//! its snapshots since, clones of those, and so on. Snapshots are asked one by one, as the kernel does; each
//! is opened once for the whole log.
//!
//! Source: OpenZFS `spa_errlog.c` (`check_filesystem`).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::{Objset, Result};

use crate::dataset::Dataset;
use crate::errlog::{LoggedError, pointer};
use crate::mos::Mos;

impl Mos {
    /// Objects with blocks in the error log, in every dataset that has those blocks; dataset 0 is the pool's
    /// own metadata. Blocks that nobody has any more are left out.
    ///
    /// # Errors
    /// The log is damaged.
    #[boxed]
    pub async fn damaged_objects(&self) -> Result<BTreeSet<(DatasetId, ObjectId)>> {
        let mut objects = BTreeSet::new();
        let mut families = Families { mos: self, opened: HashMap::new(), origins: HashMap::new() };
        for error in self.error_log().await? {
            let owners = match error.birth {
                Some(birth) => families.owners(&error, birth).await,
                None => Ok(vec![error.place.dataset]),
            };
            // What can't be followed is listed as it was logged.
            let owners = owners.unwrap_or_else(|_| vec![error.place.dataset]);
            objects.extend(owners.into_iter().map(|dataset| (dataset, error.place.object)));
        }
        Ok(objects)
    }
}

/// A live dataset or one of its snapshots.
struct Version {
    dataset: Dataset,
    objset: Objset,
    /// Live datasets cloned from it.
    clones: Vec<DatasetId>,
}

/// Datasets with their snapshots, each opened once.
struct Families<'a> {
    mos: &'a Mos,
    opened: HashMap<DatasetId, Arc<Vec<Version>>>,
    origins: HashMap<DatasetId, Option<(Txg, DatasetId)>>,
}

impl Families<'_> {
    /// All that have a block which was logged.
    async fn owners(&mut self, error: &LoggedError, birth: Txg) -> Result<Vec<DatasetId>> {
        let mut head = error.place.dataset;
        let mut seen = HashSet::from([head]);
        // A clone has from its origin what is older than itself.
        while let Some((_, above)) = self.origin(head).await?.filter(|(made, _)| *made >= birth) {
            head = above;
            if !seen.insert(head) {
                break;
            }
        }
        let mut owners = Vec::new();
        let mut pending = vec![head];
        seen = HashSet::from([head]);
        while let Some(head) = pending.pop() {
            for version in self.family(head).await?.iter() {
                let is_old_enough = !version.dataset.is_snapshot() || version.dataset.creation_txg() >= birth;
                if is_old_enough && version.has(error, birth).await {
                    owners.push(version.dataset.id());
                    pending.extend(version.clones.iter().filter(|&&clone| seen.insert(clone)));
                }
            }
        }
        Ok(owners)
    }

    /// When the snapshot was made that a live dataset was cloned from, and the live dataset which that is of.
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

impl Version {
    async fn has(&self, error: &LoggedError, birth: Txg) -> bool {
        pointer(&self.objset, &error.place).await.is_ok_and(|bp| !bp.is_hole() && bp.logical_birth() == birth)
    }
}
