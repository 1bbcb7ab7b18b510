//! How datasets are related: children, snapshots, clones, origins, and who holds them.

use cenote_boxed::boxed;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::trail::Trail;
use cenote_object::{DatasetError, Result, Zap};

use crate::dataset::Dataset;
use crate::dir::Dir;

impl Dataset {
    /// The file systems and volumes directly below, by name; none below a snapshot.
    ///
    /// # Errors
    /// The table or a child is damaged.
    #[boxed]
    pub async fn children(&self) -> Result<Vec<Dataset>> {
        self.try_children().await?.into_iter().map(|(_, child)| child).collect()
    }

    /// The same one by one, with their full names, as some may not open.
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

    /// The same as far as they can be opened; then the names of those that can't, or below which something
    /// can't, and why.
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

    /// Its snapshots, oldest first; none of a snapshot.
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

    /// Its snapshot of that name.
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

    /// Names and numbers of its snapshots, by name; OpenZFS's own are left out.
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

    /// Its snapshots by name, a ZAP; none of a snapshot.
    pub(super) async fn snapshot_table(&self) -> Result<Option<Zap>> {
        self.dir().zap(self.phys().snapshot_names_zap).await
    }

    pub(super) async fn open_snapshot(&self, name: &str, id: DatasetId) -> Result<Dataset> {
        let full = format!("{}@{name}", self.dir().name());
        Dataset::open(self.dir().clone(), id, full).await
    }

    /// The version before this one: the previous snapshot, or a clone's origin. `None` for the first of all.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn previous(&self) -> Result<Option<Dataset>> {
        self.version(self.phys().prev_snapshot).await
    }

    /// The snapshot that it was cloned from.
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

    /// A snapshot by number. In newer pools every chain ends in the empty `$ORIGIN@$ORIGIN`, which is
    /// nobody's.
    pub(super) async fn version(&self, id: ObjectId) -> Result<Option<Dataset>> {
        // Most chains end there, and its name need not be looked for.
        if id.0 == 0 || self.mos().first_version().await.is_ok_and(|first| first == Some(id)) {
            return Ok(None);
        }
        let dataset = Dataset::open_by_id(self.mos(), DatasetId(id.0)).await?;
        Ok((!dataset.name().contains('$')).then_some(dataset))
    }

    /// The file systems and volumes cloned from this snapshot, by name.
    ///
    /// # Errors
    /// The table or a clone is damaged.
    #[boxed]
    pub async fn clones(&self) -> Result<Vec<Dataset>> {
        let Some(zap) = self.dir().zap(self.phys().next_clones_zap).await? else { return Ok(Vec::new()) };
        let mut clones = Vec::new();
        for entry in zap.to_vec().await? {
            // The table names the version right after this one in the clone's chain: its head or its first
            // snapshot.
            if let Some(id) = entry.value.as_u64() {
                let next = Dataset::open_by_id(self.mos(), DatasetId(id)).await?;
                clones.push(next.dir().head().await?);
            }
        }
        clones.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(clones)
    }

    /// Who holds this snapshot: tag and time in seconds since 1970, in the order in which `zfs holds`
    /// has them: that of the table's hash.
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
    /// The live version under this directory.
    ///
    /// # Errors
    /// There is none (of OpenZFS's own directories), or it is damaged.
    #[boxed]
    pub async fn head(&self) -> Result<Dataset> {
        Dataset::open_head(self.clone()).await
    }
}
