//! Updates mounts after commands that change properties, names, or datasets.
//!
//! Idea: commands know nothing of mounts. Afterwards each mount is compared with its dataset's properties,
//! children before parents; then missing mounts are made, parents before children.

use std::collections::BTreeMap;
use std::path::Path;

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Mos};
use cenote_format::units::DatasetId;

use super::options::Properties;
use super::{Entry, Mounts, MountsError, Plan, is_at_or_below};

impl Mounts {
    /// After a command that may have changed datasets: drops ended mounts, moves those with a new mount
    /// point, unmounts those no longer wanted, and mounts new ones. Returns the failures. Without
    /// `may_mount`, nothing is mounted or moved; such mounts count as failures.
    ///
    /// # Errors
    /// The datasets can't be read.
    #[boxed]
    pub async fn follow(
        &self,
        before: &[DatasetId],
        may_mount: bool,
    ) -> Result<Vec<MountsError>, MountsError> {
        let _turn = self.turn().await?;
        let mos = self.engine.mos().await?;
        // One listing: opening each by number would search for its name.
        let (datasets, lost) = mos.reachable_datasets().await?;
        let datasets: BTreeMap<DatasetId, Dataset> =
            datasets.into_iter().map(|dataset| (dataset.id(), dataset)).collect();
        let mut failures = Vec::new();
        // Children before parents, which can't be unmounted before them.
        let mounted = self.top_down(|_| true);
        let (mut to_mount, mut derived) = (Vec::new(), Vec::new());
        for (id, name) in mounted {
            let place = |entry: &Entry| (entry.mounted.dir().to_owned(), entry.properties.plan.dir.clone());
            let Some((dir, planned)) = self.table().get(&id).map(place) else { continue };
            let Some(dataset) = datasets.get(&id).cloned() else {
                if lost.iter().any(|(lost, _)| is_at_or_below(&name, lost)) {
                    // It exists, but can't be read.
                    continue;
                }
                match self.take_down(id, &name, true).await {
                    Ok(dir) => derived.extend(dir),
                    Err(error) => failures.push(error),
                }
                continue;
            };
            let plan = self.plan(&dataset, false).await?;
            match plan {
                Ok(plan) if plan.dir == planned && dataset.name() == name => {
                    let properties = Properties::of(&dataset, plan.clone()).await?;
                    if self.needs_another_mount(id, &properties) {
                        if !may_mount {
                            continue;
                        }
                        // A busy one stays as it is until mounted again.
                        if self.take_down(id, &name, false).await.is_ok() {
                            to_mount.push((plan, dataset));
                        }
                        continue;
                    }
                    failures.extend(self.follow_properties(&dataset, properties).await.err());
                }
                plan if !may_mount => {
                    self.moved.lock().insert(id, plan.ok().map(|plan| plan.dir));
                    failures.push(MountsError::MovedForRoot);
                }
                // A user not allowed to mount left it so; this command is about something else.
                plan if self.moved.lock().get(&id)
                    == Some(&plan.as_ref().ok().map(|plan| plan.dir.clone())) => {}
                Ok(plan) if plan.is_users_place && plan.dir != planned => {}
                plan => {
                    failures.extend(self.clear_below(&mos, &dir, &mut to_mount).await?);
                    match self.take_down(id, &name, false).await {
                        Ok(dir) => {
                            derived.extend(dir);
                            to_mount.extend(plan.ok().map(|plan| (plan, dataset)));
                        }
                        Err(error) => failures.push(error),
                    }
                }
            }
        }
        self.clear_away(derived).await;
        for dataset in datasets.into_values() {
            if before.contains(&dataset.id()) || self.mounted_on(dataset.id()).is_some() {
                continue;
            }
            if let Ok(plan) = self.plan(&dataset, true).await? {
                to_mount.push((plan, dataset));
            }
        }
        match may_mount {
            true => failures.extend(self.mount_each(to_mount).await?),
            false => failures.extend(to_mount.iter().map(|_| MountsError::NewForRoot)),
        }
        Ok(failures)
    }

    /// Unmounts everything below a directory, so that it can be unmounted, and queues it for mounting again.
    async fn clear_below(
        &self,
        mos: &Mos,
        dir: &Path,
        to_mount: &mut Vec<(Plan, Dataset)>,
    ) -> Result<Option<MountsError>, MountsError> {
        let is_below = |entry: &Entry| entry.mounted.dir() != dir && entry.mounted.dir().starts_with(dir);
        for (id, name) in self.top_down(is_below) {
            if let Err(error) = self.take_down(id, &name, false).await {
                return Ok(Some(error));
            }
            let dataset = mos.dataset_by_id(id).await?;
            if let Ok(plan) = self.plan(&dataset, false).await?
                && !plan.is_users_place
            {
                to_mount.push((plan, dataset));
            }
        }
        Ok(None)
    }

    /// Keeps a renamed dataset and those below mounted where they are: `zfs rename -u`.
    ///
    /// # Errors
    /// The datasets can't be read.
    #[boxed]
    pub async fn keep_renamed(&self, name: &str) -> Result<(), MountsError> {
        let _turn = self.turn().await?;
        let mos = self.engine.mos().await?;
        for dataset in mos.reachable_datasets().await?.0 {
            if dataset.is_snapshot() || !is_at_or_below(dataset.name(), name) {
                continue;
            }
            let plan = self.plan(&dataset, false).await?;
            if let Some(entry) = self.table().get_mut(&dataset.id()) {
                entry.name = dataset.name().into();
                entry.files.set_name(dataset.name());
                plan.into_iter().for_each(|plan| entry.properties.plan = plan);
            }
        }
        Ok(())
    }

    fn needs_another_mount(&self, id: DatasetId, properties: &Properties) -> bool {
        let table = self.table();
        let Some(entry) = table.get(&id) else { return false };
        let temporary = properties.still(&entry.properties, entry.temporary);
        properties.with(temporary).fixed() != entry.properties.with(entry.temporary).fixed()
    }

    /// Applies a mounted dataset's changed properties, and removed snapshots.
    async fn follow_properties(&self, dataset: &Dataset, properties: Properties) -> Result<(), MountsError> {
        let Some(files) = self.files(dataset.id()) else { return Ok(()) };
        files.snapshots_changed().await;
        let remount = {
            let mut table = self.table();
            let Some(entry) = table.get_mut(&dataset.id()) else { return Ok(()) };
            let before = entry.properties.with(entry.temporary).mount_options(&entry.name);
            entry.temporary = properties.still(&entry.properties, entry.temporary);
            entry.properties = properties.clone();
            let now = properties.with(entry.temporary);
            let options = now.mount_options(&entry.name);
            files.set_options(now.files);
            (options != before).then(|| (entry.mounted.clone(), options))
        };
        match remount {
            Some((mounted, options)) => self.remount(dataset.name(), mounted, options).await,
            None => Ok(()),
        }
    }
}
