//! Updates mounts after commands that change properties, names, or datasets.
//!
//! Idea: commands know nothing of mounts, but their tasks say which datasets they touched
//! ([`cenote_engine::Touched`]). Afterwards the mounts of these are compared with the datasets' properties,
//! children before parents; then new datasets are mounted, parents before children.
//!
//! Mounts that could not follow, or whose command was broken off, are owed: the next command looks at them,
//! too.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Mos};
use cenote_engine::{Touch, Touched};
use cenote_format::dnode::ObjectType;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::DatasetError;
use parking_lot::Mutex;

use super::options::Properties;
use super::table::Entry;
use super::{Asked, Former, Mounts, MountsError, Plan, is_at_or_below};

/// The touched datasets.
struct Looked {
    found: BTreeMap<DatasetId, Dataset>,
    /// Names of those that exist, but can't be read.
    lost: Vec<String>,
}

/// Owed again unless all have followed.
struct Due<'a> {
    touched: Touched,
    owed: &'a Mutex<Touched>,
}

impl Drop for Due<'_> {
    fn drop(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        // Another command does not know whether new ones were to be mounted.
        touched.heads.values_mut().for_each(|touch| touch.is_new = false);
        self.owed.lock().merge(touched);
    }
}

impl Mounts {
    /// A command was broken off: the next one looks at all mounts.
    pub fn owe_all(&self) {
        self.owed.lock().merge(Touched::all());
    }

    /// After a command that touched datasets: drops ended mounts, moves, unmounts and mounts others as their
    /// properties say, except those whose name `stays`. Returns the failures. Without `may_mount`, nothing is
    /// mounted or moved; such mounts count as failures.
    ///
    /// # Errors
    /// The datasets can't be read.
    #[boxed]
    pub async fn follow(
        &self,
        touched: Touched,
        stays: &(dyn Fn(&str) -> bool + Sync),
        may_mount: bool,
    ) -> Result<Vec<MountsError>, MountsError> {
        let mut due = Due { touched, owed: &self.owed };
        let _turn = self.turn().await?;
        due.touched.merge(std::mem::take(&mut *self.owed.lock()));
        // All mount options depend on it.
        let is_open = self.is_open();
        due.touched.is_all |= self.was_open.swap(is_open, Ordering::AcqRel) != is_open;
        if !due.touched.is_all {
            self.show_snapshots(&mut due.touched).await;
        }
        if due.touched.is_empty() {
            return Ok(Vec::new());
        }
        let mos = self.engine.mos().await?;
        let Looked { found: datasets, lost } = look(&mos, &due.touched).await?;
        let (mut failures, mut busy) = (Vec::new(), Touched::default());
        // Children before parents, which can't be unmounted before them.
        let mounted = {
            let table = self.table();
            match due.touched.is_all {
                true => table.top_down(table.ids()),
                false => {
                    let gone = due.touched.heads.keys().filter(|id| !datasets.contains_key(id));
                    table.top_down(gone.chain(datasets.keys()).copied())
                }
            }
        };
        let (mut to_mount, mut cleared, mut derived) = (Vec::new(), Vec::new(), Vec::new());
        for (id, name) in mounted {
            let place = |entry: &Entry| (entry.mounted.dir().to_owned(), entry.properties.plan.dir.clone());
            let Some((dir, planned)) = self.table().get(id).map(place) else { continue };
            let mut is_busy =
                || busy.add(id, Touch { name: name.clone(), is_itself: true, ..Touch::default() });
            let Some(dataset) = datasets.get(&id).cloned() else {
                if lost.iter().any(|lost| is_at_or_below(&name, lost)) {
                    // It exists, but can't be read.
                    continue;
                }
                match self.take_down(id, &name, true).await {
                    Ok(dir) => derived.extend(dir),
                    Err(error) => failures.push(error),
                }
                continue;
            };
            let plan = self.plan(&dataset, Asked::Incomplete).await?;
            match plan {
                Ok(plan) if plan.dir == planned && dataset.name() == name => {
                    let properties = Properties::of(&dataset, plan.clone()).await?;
                    if self.needs_another_mount(id, &properties) {
                        if !may_mount {
                            is_busy();
                            continue;
                        }
                        // A busy one stays as it is until mounted again.
                        match self.take_down(id, &name, false).await {
                            Ok(_) => to_mount.push((plan, dataset)),
                            Err(_) => is_busy(),
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
                    failures.extend(self.clear_below(&dir, &mut cleared).await.err());
                    match self.take_down(id, &name, false).await {
                        Ok(dir) => {
                            derived.extend(dir);
                            to_mount.extend(plan.ok().map(|plan| (plan, dataset)));
                        }
                        Err(error) => {
                            is_busy();
                            failures.push(error);
                        }
                    }
                }
            }
        }
        self.clear_away(derived).await;
        for dataset in datasets.into_values() {
            let is_new = due.touched.heads.get(&dataset.id()).is_some_and(|touch| touch.is_new);
            if !is_new || stays(dataset.name()) || self.mounted_on(dataset.id()).is_some() {
                continue;
            }
            if let Ok(plan) = self.plan(&dataset, Asked::No).await? {
                to_mount.push((plan, dataset));
            }
        }
        match may_mount {
            true => failures.extend(self.mount_among(to_mount, cleared).await?),
            false => failures.extend(to_mount.iter().map(|_| MountsError::NewForRoot)),
        }
        due.touched = busy;
        Ok(failures)
    }

    /// Has mounts follow changes of snapshots, and takes the datasets off with no other change.
    async fn show_snapshots(&self, touched: &mut Touched) {
        for (id, _) in touched.heads.iter().filter(|(_, touch)| !touch.is_itself) {
            if let Some(files) = self.files(*id) {
                files.snapshots_changed().await;
            }
        }
        touched.heads.retain(|_, touch| touch.is_itself);
    }

    /// Unmounts everything below a directory, so that it can be unmounted, and adds it to `cleared`.
    async fn clear_below(&self, dir: &Path, cleared: &mut Vec<Former>) -> Result<(), MountsError> {
        let below: Vec<DatasetId> = {
            let table = self.table();
            table.in_dir(dir).filter(|(_, entry)| entry.mounted.dir() != dir).map(|(id, _)| id).collect()
        };
        for former in self.former(below).into_iter().rev() {
            self.take_down(former.place.id, &former.place.name, false).await?;
            cleared.push(former);
        }
        Ok(())
    }

    /// Mounts datasets, and `cleared` ones where and how they were: the command was about others.
    async fn mount_among(
        &self,
        to_mount: Vec<(Plan, Dataset)>,
        mut cleared: Vec<Former>,
    ) -> Result<Vec<MountsError>, MountsError> {
        cleared.sort_by(|one, other| {
            (&one.place.dir, one.place.number).cmp(&(&other.place.dir, other.place.number))
        });
        let is_over = |dir: &Path| cleared.iter().any(|former| dir.starts_with(&former.place.dir));
        let (over, under) = to_mount.into_iter().partition(|(plan, _)| is_over(&plan.dir));
        let mut failures = self.mount_each(under).await?;
        failures.extend(self.put_back(cleared).await?);
        failures.extend(self.mount_each(over).await?);
        Ok(failures)
    }

    /// Keeps a renamed dataset and those below mounted where they are: `zfs rename -u`.
    ///
    /// # Errors
    /// The datasets can't be read.
    #[boxed]
    pub async fn keep_renamed(&self, name: &str) -> Result<(), MountsError> {
        let _turn = self.turn().await?;
        let renamed = self.engine.mos().await?.dataset(name).await?;
        for dataset in renamed.reachable().await.0 {
            if self.mounted_on(dataset.id()).is_none() {
                continue;
            }
            let plan = self.plan(&dataset, Asked::Incomplete).await?;
            let mut table = self.table();
            table.rename(dataset.id(), dataset.name());
            if let Some(entry) = table.get_mut(dataset.id()) {
                entry.files.set_name(dataset.name());
                plan.into_iter().for_each(|plan| entry.properties.plan = plan);
            }
        }
        Ok(())
    }

    fn needs_another_mount(&self, id: DatasetId, properties: &Properties) -> bool {
        let table = self.table();
        let Some(entry) = table.get(id) else { return false };
        let temporary = properties.still(&entry.properties, entry.temporary);
        properties.with(temporary).fixed() != entry.properties.with(entry.temporary).fixed()
    }

    /// Applies a mounted dataset's changed properties, and removed snapshots.
    async fn follow_properties(&self, dataset: &Dataset, properties: Properties) -> Result<(), MountsError> {
        let Some(files) = self.files(dataset.id()) else { return Ok(()) };
        files.snapshots_changed().await;
        let remount = {
            let mut table = self.table();
            let Some(entry) = table.get_mut(dataset.id()) else { return Ok(()) };
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

async fn look(mos: &Mos, touched: &Touched) -> Result<Looked, DatasetError> {
    let mut looked = Looked { found: BTreeMap::new(), lost: Vec::new() };
    if touched.is_all {
        // One listing: opening each by number would search for its name.
        looked.add(mos.reachable_datasets().await?);
        return Ok(looked);
    }
    for (id, Touch { name, with_below, .. }) in &touched.heads {
        match find(mos, *id, name).await {
            Ok(Some(head)) if *with_below => looked.add(head.reachable().await),
            Ok(Some(head)) => _ = looked.found.insert(*id, head),
            Ok(None) => {}
            Err(error) if error.is_damage() => looked.lost.push(name.clone()),
            Err(error) => return Err(error),
        }
    }
    Ok(looked)
}

/// A touched head, which may be gone or have another name by now.
async fn find(mos: &Mos, id: DatasetId, name: &str) -> Result<Option<Dataset>, DatasetError> {
    match mos.dataset(name).await {
        Ok(dataset) if dataset.id() == id => return Ok(Some(dataset)),
        Ok(_) | Err(DatasetError::NoDataset { .. }) => {}
        Err(error) => return Err(error),
    }
    match mos.objset().dnode(ObjectId(id.0)).await {
        Err(DatasetError::NoObject { .. }) => Ok(None),
        Ok(dnode) if dnode.bonus_type != ObjectType::DSL_DATASET => Ok(None),
        Ok(_) => Ok(Some(mos.dataset_by_id(id).await?).filter(|dataset| !dataset.is_snapshot())),
        Err(error) => Err(error),
    }
}

impl Looked {
    fn add(&mut self, (found, lost): (Vec<Dataset>, Vec<(String, DatasetError)>)) {
        self.found.extend(found.into_iter().map(|dataset| (dataset.id(), dataset)));
        self.lost.extend(lost.into_iter().map(|(name, _)| name));
    }
}
