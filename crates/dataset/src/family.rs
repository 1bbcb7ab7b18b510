//! Relations of datasets: children, snapshots, clones, origins and holds.

use cenote_boxed::boxed;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::trail::Trail;
use cenote_object::{DatasetError, Result, Zap};

use crate::dataset::Dataset;
use crate::dir::Dir;

impl Dataset {
    /// File systems and volumes directly below, by name; none for a snapshot.
    ///
    /// # Errors
    /// The table or a child is damaged.
    #[boxed]
    pub async fn children(&self) -> Result<Vec<Dataset>> {
        self.try_children().await?.into_iter().map(|(_, child)| child).collect()
    }

    /// Children with their full names, each opened separately, as some may fail.
    async fn try_children(&self) -> Result<Vec<(String, Result<Dataset>)>> {
        let mut children = Vec::new();
        if !self.is_snapshot() {
            for (name, id) in self.dir().children().await? {
                let child = async { self.dir().open_child(&name, id).await?.head().await };
                children.push((format!("{}/{name}", self.dir().name()), child.await));
            }
        }
        Ok(children)
    }

    /// This dataset and all file systems and volumes below, parents before children, siblings by name.
    ///
    /// # Errors
    /// A directory is damaged.
    #[boxed]
    pub async fn descendants(&self) -> Result<Vec<Dataset>> {
        let (found, lost) = self.reachable().await;
        lost.into_iter().next().map_or(Ok(found), |(_, error)| Err(error))
    }

    /// The descendants that open; then name and error of each that does not, or whose children do not.
    #[boxed]
    pub async fn reachable(&self) -> (Vec<Dataset>, Vec<(String, DatasetError)>) {
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        let mut trail = Trail::new(self.mos().objset(), "the datasets below");
        let mut pending = vec![self.clone()];
        while let Some(dataset) = pending.pop() {
            let below = match trail.enter(ObjectId(dataset.id().0)) {
                Ok(()) => dataset.try_children().await,
                Err(error) => {
                    lost.push((dataset.name().to_owned(), error));
                    continue;
                }
            };
            let below = below.unwrap_or_else(|error| vec![(dataset.name().to_owned(), Err(error))]);
            for (name, child) in below.into_iter().rev() {
                match child {
                    Ok(child) => pending.push(child),
                    Err(error) => lost.push((name, error)),
                }
            }
            found.push(dataset);
        }
        (found, lost)
    }

    /// Snapshots, oldest first; none for a snapshot.
    ///
    /// # Errors
    /// The table or a snapshot is damaged.
    #[boxed]
    pub async fn snapshots(&self) -> Result<Vec<Dataset>> {
        let mut snapshots = Vec::new();
        for (name, id) in self.snapshot_names().await? {
            snapshots.push(self.open_snapshot(&name, id).await?);
        }
        snapshots.sort_by(|a, b| (a.creation_txg(), a.name()).cmp(&(b.creation_txg(), b.name())));
        Ok(snapshots)
    }

    /// Snapshot of that name.
    ///
    /// # Errors
    /// The table or the snapshot is damaged.
    #[boxed]
    pub async fn snapshot(&self, name: &str) -> Result<Option<Dataset>> {
        let Some(zap) = self.snapshot_table().await? else { return Ok(None) };
        match zap.get_u64(name).await? {
            Some(id) => self.open_snapshot(name, DatasetId(id)).await.map(Some),
            None => Ok(None),
        }
    }

    /// Snapshot names and numbers by name, without OpenZFS's internal ones.
    ///
    /// # Errors
    /// The table is damaged.
    #[boxed]
    pub async fn snapshot_names(&self) -> Result<Vec<(String, DatasetId)>> {
        let Some(zap) = self.snapshot_table().await? else { return Ok(Vec::new()) };
        let entries = zap.to_vec().await?;
        let mut names: Vec<_> = entries
            .iter()
            .filter_map(|e| Some((e.name_text(), DatasetId(e.value.as_u64()?))))
            .filter(|(name, _)| !name.contains(['$', '%']))
            .collect();
        names.sort();
        Ok(names)
    }

    /// ZAP of snapshots by name; none for a snapshot.
    pub(super) async fn snapshot_table(&self) -> Result<Option<Zap>> {
        self.dir().zap(self.phys().snapshot_names_zap).await
    }

    pub(super) async fn open_snapshot(&self, name: &str, id: DatasetId) -> Result<Dataset> {
        let full = format!("{}@{name}", self.dir().name());
        Dataset::open(self.dir().clone(), id, full).await
    }

    /// Previous snapshot, or a clone's origin; `None` for the first version.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn previous(&self) -> Result<Option<Dataset>> {
        self.version(self.phys().prev_snapshot).await
    }

    /// Origin snapshot of a clone.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn origin(&self) -> Result<Option<Dataset>> {
        if self.is_snapshot() {
            return Ok(None);
        }
        self.version(self.dir().phys().origin).await
    }

    /// A snapshot by number; `None` for the empty `$ORIGIN@$ORIGIN`, which ends every chain in newer pools.
    pub(super) async fn version(&self, id: ObjectId) -> Result<Option<Dataset>> {
        // Most chains end there, so skip its name lookup.
        if id.0 == 0 || self.mos().first_version().await.is_ok_and(|first| first == Some(id)) {
            return Ok(None);
        }
        let dataset = Dataset::open_by_id(self.mos(), DatasetId(id.0)).await?;
        Ok((!dataset.name().contains('$')).then_some(dataset))
    }

    /// File systems and volumes cloned from this snapshot, by name.
    ///
    /// # Errors
    /// The table or a clone is damaged.
    #[boxed]
    pub async fn clones(&self) -> Result<Vec<Dataset>> {
        let Some(zap) = self.dir().zap(self.phys().next_clones_zap).await? else { return Ok(Vec::new()) };
        let mut clones = Vec::new();
        for entry in zap.to_vec().await? {
            // The table names the next version in the clone's chain: its head or first snapshot.
            if let Some(id) = entry.value.as_u64() {
                let next = Dataset::open_by_id(self.mos(), DatasetId(id)).await?;
                clones.push(next.dir().head().await?);
            }
        }
        clones.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(clones)
    }

    /// Holds of this snapshot: tag and time in seconds since 1970, in the order of `zfs holds` (the table's
    /// hash).
    ///
    /// # Errors
    /// The table is damaged.
    #[boxed]
    pub async fn holds(&self) -> Result<Vec<(String, u64)>> {
        let Some(zap) = self.dir().zap(self.phys().userrefs_zap).await? else { return Ok(Vec::new()) };
        let entries = zap.to_vec().await?;
        let mut holds: Vec<_> =
            entries.iter().filter_map(|e| Some((e.name_text(), e.value.as_u64()?))).collect();
        holds.sort_by_key(|(tag, _)| zap.hash(tag.as_bytes()));
        Ok(holds)
    }
}

impl Dir {
    /// Live dataset of this directory.
    ///
    /// # Errors
    /// An internal directory without one, or damage.
    #[boxed]
    pub async fn head(&self) -> Result<Dataset> {
        Dataset::open_head(self.clone()).await
    }
}
