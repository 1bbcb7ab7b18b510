//! The mounted file systems of one pool.
//!
//! ```text
//!   properties (canmount, mountpoint, overlay, keys) --> Plan, sorted so that parents come before children
//!   mount:   make the directory, open the dataset, make the mount, attach it, serve; some at once
//!   unmount: children first, latest first; a busy one and those above it stay, and the error names its users
//!   gone:    directories derived from datasets' names go with the datasets, and when the pool leaves
//! ```
//!
//! No thread of the daemon looks up a mount point: it may lie in a file system that the daemon itself serves
//! (`cenote_fuse::mount::hand`). A mount is known by its id: foreign mounts over it stay.
//!
//! Locking: `table` and `aside` are locked for one look or change. Code that mounts, unmounts or compares
//! takes `turn` before it reads the datasets, lest a command judge another's new mount by an older state.
//! Other commands do not mount a dataset set aside by one.
//!
//! Source: OpenZFS `libzfs_mount.c` (order, canmount, overlay, `remove_mountpoint`), zfsprops(7).

mod follow;
mod options;
mod plan;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_dataset::name::is_at_or_below;
use cenote_engine::{Engine, Touched};
use cenote_format::units::DatasetId;
use cenote_fs::FsError;
use cenote_fuse::mount::{hand, prepare, users};
use cenote_fuse::{MountError, MountOptions, Mounted, SessionOptions};
use cenote_object::DatasetError;
use futures::stream::{self, StreamExt};
use parking_lot::{Mutex, MutexGuard};

use crate::files::{self, Files};
use crate::mount::Mount;

use options::Properties;
pub use options::{SUBTYPE, Temporary};
pub use plan::{Asked, Plan, Unmountable};
use table::{Entry, Place, Table};

/// Unmounting a busy file system is retried for 1 s: starting a program keeps files open for a moment.
const LOOKS: usize = 50;
const LOOK: Duration = Duration::from_millis(20);
/// Retries while a detached mount's last operation runs.
const LOOKS_LOST: usize = 250;
/// Mounts made, and taken down, at once. Each needs a hand (`cenote_fuse::mount::hand`).
const AT_ONCE: usize = 4;
/// More datasets are found in one listing of all, instead of each by its number.
const FEW: usize = 16;

/// Why a dataset is not mounted or unmounted, in the words of `zfs mount`.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum MountsError {
    #[error("cannot mount '{name}': {why}")]
    Unmountable { name: String, why: Unmountable },
    #[error("filesystem successfully created, but it may only be mounted by root")]
    NewForRoot,
    #[error("property may be set but unable to remount filesystem: that is for root")]
    MovedForRoot,
    #[error("cannot mount '{name}': filesystem already mounted")]
    Mounted { name: String },
    #[error("cannot mount '{}': directory is not empty", dir.display())]
    NotEmpty { dir: PathBuf },
    #[error("cannot unmount '{name}': not currently mounted")]
    NotMounted { name: String },
    #[error("cannot unmount '{}': pool or dataset is busy{}", dir.display(), used(users))]
    Busy { dir: PathBuf, users: Vec<String> },
    #[error("cannot unmount '{}': pool or dataset is busy: {by} is mounted over it", dir.display())]
    Covered { dir: PathBuf, by: String },
    #[error("cannot unmount '{name}': {source}")]
    NotUnmounted { name: String, source: MountError },
    #[error("cannot mount '{name}': {source}")]
    Files { name: String, source: FsError },
    #[error("cannot mount '{name}': {source}")]
    Kernel { name: String, source: MountError },
    #[error("{}: {source}", dir.display())]
    Directory { dir: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

fn used(users: &[String]) -> String {
    if users.is_empty() { String::new() } else { format!(" (used{})", users::said(users)) }
}

/// Datasets kept unmounted until this is dropped.
pub struct Aside<'a> {
    mounts: &'a Mounts,
    ids: Vec<DatasetId>,
    /// Directories to remove if these are mounted elsewhere next.
    derived: Vec<PathBuf>,
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        let mut aside = self.mounts.aside.lock();
        for id in &self.ids {
            aside.remove(id);
        }
    }
}

/// Where and how a dataset was mounted.
struct Former {
    place: Place,
    mounted: Mounted,
    /// As of the last change that the mount followed; the place may be another one.
    plan: Plan,
    temporary: Temporary,
    /// See [`Mounts::moved`].
    moved: Option<Option<PathBuf>>,
}

/// The mounts of a pool.
pub struct Mounts {
    engine: Engine,
    /// Prefix of every mount point: `zpool import -R`.
    root: Option<PathBuf>,
    session: SessionOptions,
    table: Mutex<Table>,
    aside: Mutex<BTreeSet<DatasetId>>,
    /// Changes that mounts have not followed yet: a command was broken off, or a mount was busy.
    owed: Mutex<Touched>,
    /// [`Mounts::is_open`], when all mounts last followed it.
    was_open: AtomicBool,
    /// Mount points chosen by users not allowed to mount (`None`: not to be mounted). These file systems stay
    /// until unmounted, or moved by an authorized user.
    moved: Mutex<BTreeMap<DatasetId, Option<PathBuf>>>,
    numbers: AtomicU64,
    turn: tokio::sync::Mutex<()>,
}

impl Mounts {
    /// Without any mounts.
    pub fn new(engine: &Engine, root: Option<PathBuf>, session: SessionOptions) -> Mounts {
        let (table, aside, owed, moved, numbers, turn) = Default::default();
        let (engine, was_open) = (engine.clone(), AtomicBool::default());
        Mounts { engine, root, session, table, aside, owed, was_open, moved, numbers, turn }
    }

    /// Takes the turn.
    ///
    /// # Errors
    /// The pool is suspended: mounting or the turn's holder might wait for it.
    async fn turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, DatasetError> {
        self.engine.suspension().refuse()?;
        self.engine.suspension().unless(Duration::ZERO, self.turn.lock()).await
    }

    /// The table, without externally unmounted entries.
    fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock();
        table.clear_ended();
        table
    }

    /// Names and mount points.
    pub fn list(&self) -> Vec<(String, PathBuf)> {
        let table = self.table();
        table.values().map(|entry| (entry.name.clone(), entry.mounted.dir().to_owned())).collect()
    }

    /// A dataset's mount point.
    pub fn mounted_on(&self, id: DatasetId) -> Option<PathBuf> {
        self.table().get(id).map(|entry| entry.mounted.dir().to_owned())
    }

    /// Mounts all file systems due, or those at and below a dataset. Returns the failures.
    ///
    /// # Errors
    /// The datasets can't be read.
    #[boxed]
    pub async fn mount_below(&self, name: Option<&str>) -> Result<Vec<MountsError>, MountsError> {
        let _turn = self.turn().await?;
        let mos = self.engine.mos().await?;
        let (datasets, lost) = match name {
            None => mos.reachable_datasets().await?,
            Some(name) => match mos.dataset(name).await {
                Ok(top) => top.reachable().await,
                Err(DatasetError::NoDataset { .. }) => Default::default(),
                Err(why) => (Vec::new(), vec![(name.to_owned(), why)]),
            },
        };
        let failed = |(name, why): (String, DatasetError)| MountsError::Files { name, source: why.into() };
        let mut failures: Vec<MountsError> = lost.into_iter().map(failed).collect();
        let mut plans = Vec::new();
        for dataset in datasets {
            if let Ok(plan) = self.plan(&dataset, Asked::No).await? {
                plans.push((plan, dataset));
            }
        }
        failures.extend(self.mount_each(plans).await?);
        Ok(failures)
    }

    /// Whether other users can write the pool's devices.
    fn is_open(&self) -> bool {
        self.engine.pool().tree().found().others_may_write()
    }

    /// How to mount a dataset. If other users can write the pool, set-id programs and device nodes need
    /// explicit mount options.
    async fn plan(
        &self,
        dataset: &Dataset,
        mut asked: Asked,
    ) -> Result<Result<Plan, Unmountable>, DatasetError> {
        if asked == Asked::Incomplete && !self.engine.background().settings().mounts_redacted() {
            asked = Asked::ByName;
        }
        let is_open = self.is_open();
        let plan = Plan::of(dataset, self.root.as_deref(), asked).await?;
        Ok(plan.map(|plan| Plan {
            setuid: plan.setuid && !is_open,
            devices: plan.devices && !is_open,
            ..plan
        }))
    }

    async fn mount_each(&self, mut plans: Vec<(Plan, Dataset)>) -> Result<Vec<MountsError>, MountsError> {
        plans.sort_by(|(one, _), (other, _)| one.dir.cmp(&other.dir));
        let mut failures = Vec::new();
        for wave in waves(plans, |(plan, _)| &plan.dir) {
            let mount = |(plan, dataset)| self.mount_if_due(plan, dataset);
            let mut mounted = std::pin::pin!(stream::iter(wave).map(mount).buffered(AT_ONCE));
            while let Some(failed) = mounted.next().await {
                failures.extend(failed?);
            }
        }
        Ok(failures)
    }

    /// Returns the failure.
    async fn mount_if_due(&self, plan: Plan, dataset: Dataset) -> Result<Option<MountsError>, MountsError> {
        let id = dataset.id();
        if self.mounted_on(id).is_some() || self.aside.lock().contains(&id) {
            return Ok(None);
        }
        let Err(failure) = self.mount_planned(&dataset, plan, Temporary::default()).await else {
            return Ok(None);
        };
        // Ignore datasets destroyed meanwhile.
        let is_there = self.engine.mos().await?.dataset_by_id(id).await.is_ok();
        Ok(is_there.then_some(failure))
    }

    /// Mounts one dataset, even with `canmount=noauto`; with `is_forced`, even one received redacted.
    ///
    /// # Errors
    /// It can't be mounted, or is already.
    #[boxed]
    pub async fn mount(&self, name: &str, temporary: Temporary, is_forced: bool) -> Result<(), MountsError> {
        let _turn = self.turn().await?;
        let dataset = self.engine.mos().await?.dataset(name).await?;
        if self.mounted_on(dataset.id()).is_some() {
            return Err(MountsError::Mounted { name: name.into() });
        }
        let asked = if is_forced { Asked::Incomplete } else { Asked::ByName };
        match self.plan(&dataset, asked).await? {
            Ok(plan) => self.mount_planned(&dataset, plan, temporary).await,
            Err(why) => Err(MountsError::Unmountable { name: name.into(), why }),
        }
    }

    async fn mount_planned(
        &self,
        dataset: &Dataset,
        plan: Plan,
        temporary: Temporary,
    ) -> Result<(), MountsError> {
        let name = dataset.name().to_owned();
        let prepare = {
            let (name, plan) = (name.clone(), plan.clone());
            move || prepare_directory(&name, &plan).map(|()| plan)
        };
        // A simulated machine has every directory.
        let plan = match self.engine.runtime().is_simulated() {
            true => plan,
            false => self.engine.runtime().blocking(prepare).await?,
        };
        let properties = Properties::of(dataset, plan).await?;
        let in_force = properties.with(temporary);
        let files = Files::open(&self.engine, &name, in_force.files).await;
        let files = files.map_err(|source| MountsError::Files { name: name.clone(), source })?;
        let runtime = self.engine.runtime();
        let options = in_force.mount_options(&name);
        let mount = Mount::new(runtime, files.clone(), &in_force.plan.dir, &options, self.session).await;
        let mount = mount.map_err(|source| MountsError::Kernel { name: name.clone(), source })?;
        let mounted = mount.mounted();
        let (id, number) = (dataset.id(), self.numbers.fetch_add(1, Ordering::Relaxed));
        let has_ended = Arc::<AtomicBool>::default();
        let ended = {
            let (has_ended, all_ended) = (has_ended.clone(), self.table().ended().clone());
            runtime.spawn(async move {
                mount.ended().await;
                has_ended.store(true, Ordering::Release);
                all_ended.lock().push((id, number));
            })
        };
        let entry = Entry { name, number, has_ended, mounted, files, properties, temporary, ended };
        self.table().insert(id, entry);
        Ok(())
    }

    /// Unmounts a dataset; returns its directory if that should be removed.
    async fn take_down(
        &self,
        id: DatasetId,
        name: &str,
        force: bool,
    ) -> Result<Option<PathBuf>, MountsError> {
        let found = self.table().get(id).map(|entry| {
            let plan = &entry.properties.plan;
            let derived = plan.is_derived.then(|| plan.dir.clone());
            (entry.mounted.clone(), entry.files.clone(), entry.has_ended.clone(), derived)
        });
        let not_mounted = || MountsError::NotMounted { name: name.into() };
        let (mounted, files, has_ended, derived) = found.ok_or_else(not_mounted)?;
        self.moved.lock().remove(&id);
        let denied = self.ask(&mounted, if force { 0 } else { LOOKS }).await.err();
        let is_left = denied.is_none() && self.has_ended(&has_ended).await;
        if !is_left && !force {
            let dir = mounted.dir().to_owned();
            // Detached, but files are still open.
            let in_use = || MountsError::Busy { dir: dir.clone(), users: Vec::new() };
            return Err(denied.map_or_else(in_use, |error| not_unmounted(name, &dir, error)));
        }
        let entry = self.table.lock().remove(id);
        if is_left {
            drop(files);
            if let Some(entry) = entry {
                entry.ended.await.ok();
            }
            return Ok(derived);
        }
        // From now on its users' operations fail.
        files.abandon().await;
        let lazily = move || {
            if mounted.unmount(true).is_err() {
                // Covered by another mount it stays attached, but no longer answers.
                mounted.abort();
            }
        };
        self.engine.runtime().blocking(lazily).await;
        Ok(derived)
    }

    /// Waits for a detached mount's last operation. Bounded: open files may keep it.
    async fn has_ended(&self, has_ended: &AtomicBool) -> bool {
        for _ in 0..LOOKS_LOST {
            if has_ended.load(Ordering::Acquire) {
                return true;
            }
            self.engine.runtime().sleep(LOOK).await;
        }
        false
    }

    async fn ask(&self, mounted: &Mounted, mut looks: usize) -> Result<(), MountError> {
        let runtime = self.engine.runtime();
        loop {
            let asked = mounted.clone();
            match runtime.blocking(move || asked.unmount(false)).await {
                Err(MountError::Busy { .. }) if looks > 0 => looks -= 1,
                answer => return answer,
            }
            runtime.sleep(LOOK).await;
        }
    }

    /// Removes empty, unused mount points, deepest first.
    async fn clear_away(&self, dirs: Vec<PathBuf>) {
        if !self.engine.runtime().is_simulated() {
            self.engine.runtime().blocking(move || hand::clear(&dirs)).await;
        }
    }

    /// Unmounts everything, or all at and below a dataset. A busy file system and its ancestors stay.
    ///
    /// # Errors
    /// The first busy file system.
    #[boxed]
    pub async fn unmount_below(&self, name: Option<&str>, force: bool) -> Result<(), MountsError> {
        let _turn = self.turn().await?;
        self.take_down_below(name, force).await?;
        // As with OpenZFS, earlier writes are accounted for now (`written`).
        self.engine.suspension().unless(Duration::ZERO, self.engine.sync_all()).await.ok();
        Ok(())
    }

    /// Unmounts everything and removes the directories made for mounting.
    ///
    /// # Errors
    /// The first busy file system.
    #[boxed]
    pub async fn leave(&self, force: bool) -> Result<(), MountsError> {
        let _turn = self.turn.lock().await;
        // Last, since directories within the pool's own file systems stay.
        let derived = self.take_down_below(None, force).await?;
        self.clear_away(derived).await;
        Ok(())
    }

    async fn take_down_below(&self, name: Option<&str>, force: bool) -> Result<Vec<PathBuf>, MountsError> {
        let meant = {
            let table = self.table();
            table.places(name.map_or_else(|| table.ids(), |name| table.at_or_below(name)))
        };
        let mut derived = Vec::new();
        for wave in waves(meant, |place| &place.dir).into_iter().rev() {
            let take_down = |place: Place| async move { self.take_down(place.id, &place.name, force).await };
            let mut taken = std::pin::pin!(stream::iter(wave).map(take_down).buffered(AT_ONCE));
            let mut busy = None;
            while let Some(done) = taken.next().await {
                match done {
                    Ok(dir) => derived.extend(dir),
                    Err(error) => busy = busy.or(Some(error)),
                }
            }
            if let Some(busy) = busy {
                return Err(busy);
            }
        }
        Ok(derived)
    }

    /// Unmounts everything at and below a dataset until [`Mounts::mount_again`].
    ///
    /// # Errors
    /// The first busy file system; all are mounted as before.
    #[boxed]
    pub async fn set_aside(&self, name: &str) -> Result<Aside<'_>, MountsError> {
        let _turn = self.turn().await?;
        let meant = self.table().at_or_below(name);
        let before = self.former(meant);
        let derived = match self.take_down_below(Some(name), false).await {
            Ok(derived) => derived,
            Err(error) => {
                self.put_back(before).await?;
                return Err(error);
            }
        };
        let ids: Vec<DatasetId> = before.iter().map(|former| former.place.id).collect();
        self.aside.lock().extend(&ids);
        Ok(Aside { mounts: self, ids, derived })
    }

    /// The mounts of these datasets, in mounting order.
    fn former(&self, ids: Vec<DatasetId>) -> Vec<Former> {
        let (table, moved) = (self.table(), self.moved.lock());
        let former = |place: Place| {
            let entry = table.get(place.id)?;
            let (mounted, plan) = (entry.mounted.clone(), entry.properties.plan.clone());
            let (temporary, moved) = (entry.temporary, moved.get(&place.id).cloned());
            Some(Former { place, mounted, plan, temporary, moved })
        };
        table.places(ids).into_iter().filter_map(former).collect()
    }

    /// Mounts again those that are gone, at their former mount points: properties may name others by now, set
    /// by users not allowed to mount. Returns the failures.
    async fn put_back(&self, former: Vec<Former>) -> Result<Vec<MountsError>, MountsError> {
        let mos = self.engine.mos().await?;
        let mut failures = Vec::new();
        for Former { place: Place { id, dir, .. }, plan, temporary, moved, .. } in former {
            if self.mounted_on(id).is_some() {
                continue;
            }
            let Ok(dataset) = mos.dataset_by_id(id).await else { continue };
            let there = Plan { dir, ..plan.clone() };
            if let Err(failure) = self.mount_planned(&dataset, there, temporary).await {
                failures.push(failure);
                continue;
            }
            if let Some(entry) = self.table().get_mut(id) {
                entry.properties.plan = plan;
            }
            if let Some(moved) = moved {
                self.moved.lock().insert(id, moved);
            }
        }
        Ok(failures)
    }

    /// Mounts datasets set aside that still exist, at their current mount points.
    ///
    /// # Errors
    /// The datasets can't be read.
    #[boxed]
    pub async fn mount_again(&self, mut aside: Aside<'_>) -> Result<Vec<MountsError>, MountsError> {
        let _turn = self.turn().await?;
        let ids = std::mem::take(&mut aside.ids);
        self.aside.lock().retain(|id| !ids.contains(id));
        let plans = self.plans_of(ids).await?;
        let mut left = std::mem::take(&mut aside.derived);
        left.retain(|dir| plans.iter().all(|(plan, _)| plan.dir != *dir));
        self.clear_away(left).await;
        self.mount_each(plans).await
    }

    async fn remount(&self, name: &str, mounted: Mounted, options: MountOptions) -> Result<(), MountsError> {
        let done = self.engine.runtime().blocking(move || mounted.remount(&options)).await;
        done.map_err(|source| MountsError::Kernel { name: name.into(), source })
    }

    /// Sets temporary options of a mounted dataset: `zfs mount -o remount,...`.
    ///
    /// # Errors
    /// It is not mounted, or its use conflicts with them.
    #[boxed]
    pub async fn set_temporary(&self, name: &str, more: Temporary) -> Result<(), MountsError> {
        let _turn = self.turn().await?;
        let dataset = self.engine.mos().await?.dataset(name).await?;
        let (mounted, options) = {
            let mut table = self.table();
            let not_mounted = || MountsError::NotMounted { name: name.into() };
            let entry = table.get_mut(dataset.id()).ok_or_else(not_mounted)?;
            entry.temporary = more.over(entry.temporary);
            let now = entry.properties.with(entry.temporary);
            entry.files.set_options(now.files);
            (entry.mounted.clone(), now.mount_options(&entry.name))
        };
        self.remount(name, mounted, options).await
    }

    /// Effective values of properties that mount options can override.
    pub fn in_force(&self, id: DatasetId) -> Option<Vec<(&'static str, u64)>> {
        let table = self.table();
        table.get(id).map(|entry| entry.properties.with(entry.temporary).shown())
    }

    /// The prefix of mount points: `zpool import -R`.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Runs `work` to replace a dataset's tree with that of its snapshot `to`; a mount stays.
    ///
    /// # Errors
    /// The trees can't be read.
    pub async fn replace_tree<T, E>(
        &self,
        head: &Dataset,
        to: &Dataset,
        work: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, MountsError> {
        let _turn = self.turn().await?;
        let Some(files) = self.files(head.id()) else { return Ok(work().await) };
        let failed = |source| MountsError::Files { name: head.name().into(), source };
        let below = self.former(self.below(head.id()));
        let done = files.replace_tree(to, work).await.map_err(failed)?;
        match self.mount_lost(below).await?.pop() {
            Some(failure) if done.is_ok() => Err(failure),
            _ => Ok(done),
        }
    }

    fn below(&self, above: DatasetId) -> Vec<DatasetId> {
        let table = self.table();
        let Some(dir) = table.get(above).map(|entry| entry.mounted.dir()) else { return Vec::new() };
        table.in_dir(dir).map(|(id, _)| id).filter(|id| *id != above).collect()
    }

    /// Repeats mounts that the kernel detached because a rollback removed their directories. Returns the
    /// failures.
    async fn mount_lost(&self, mut below: Vec<Former>) -> Result<Vec<MountsError>, MountsError> {
        below.retain(|former| !former.mounted.is_there());
        for _ in 0..LOOKS_LOST {
            if below.iter().all(|former| self.mounted_on(former.place.id).is_none()) {
                break;
            }
            self.engine.runtime().sleep(LOOK).await;
        }
        self.put_back(below).await
    }

    async fn plans_of(&self, ids: Vec<DatasetId>) -> Result<Vec<(Plan, Dataset)>, MountsError> {
        let mos = self.engine.mos().await?;
        let datasets = match ids.len() > FEW {
            // Opening each by number would search its parent for its name.
            true => mos.reachable_datasets().await?.0,
            false => {
                let mut some = Vec::new();
                for &id in &ids {
                    some.extend(mos.dataset_by_id(id).await.ok());
                }
                some
            }
        };
        let ids = BTreeSet::from_iter(ids);
        let mut plans = Vec::new();
        for dataset in datasets.into_iter().filter(|dataset| ids.contains(&dataset.id())) {
            if let Ok(plan) = self.plan(&dataset, Asked::Incomplete).await?
                && !plan.is_users_place
            {
                plans.push((plan, dataset));
            }
        }
        Ok(plans)
    }

    /// The dataset mounted on or below a path in a mounted one, so that the path can't be removed.
    pub fn mounted_in(&self, name: &str, path: &Path) -> Option<String> {
        let table = self.table();
        let of_name = table.at_or_below(name).into_iter().filter_map(|id| table.get(id));
        let at = of_name.into_iter().find(|entry| entry.name == name)?.mounted.dir().join(path);
        let mut there = table.in_dir(&at).filter(|(_, entry)| entry.name != name);
        there.next().map(|(_, entry)| entry.name.clone())
    }

    /// Waits until the kernel knows of all changes so far.
    #[boxed]
    pub async fn settled(&self) {
        if files::all_told() {
            return;
        }
        let mounted: Vec<Files> = self.table().values().map(|entry| entry.files.clone()).collect();
        for files in mounted {
            files.settled().await;
        }
    }

    /// Makes the kernel forget snapshots to be destroyed, except open files.
    #[boxed]
    pub async fn let_go_of_snapshots(&self, snapshots: &[Dataset]) {
        for snapshot in snapshots {
            let head = DatasetId(snapshot.dir().phys().head_dataset.0);
            if let Some(files) = self.files(head)
                && let Some((_, name)) = snapshot.name().split_once('@')
            {
                files.let_go_of_snapshot(snapshot.id(), name).await;
            }
        }
    }

    /// A mounted dataset's files.
    pub fn files(&self, id: DatasetId) -> Option<Files> {
        self.table().get(id).map(|entry| entry.files.clone())
    }
}

/// Divides what is sorted by directory into waves: each comes after those in the directories above it, and on
/// one directory each after those before it.
fn waves<T>(sorted: Vec<T>, dir: impl Fn(&T) -> &PathBuf) -> Vec<Vec<T>> {
    let (mut waves, mut above) = (Vec::<Vec<T>>::new(), Vec::<PathBuf>::new());
    for one in sorted {
        let own = dir(&one);
        while above.last().is_some_and(|above| !own.starts_with(above)) {
            above.pop();
        }
        let depth = above.len();
        above.push(own.clone());
        if waves.len() == depth {
            waves.push(Vec::new());
        }
        waves[depth].push(one);
    }
    waves
}

fn prepare_directory(name: &str, plan: &Plan) -> Result<(), MountsError> {
    prepare(&plan.dir, SUBTYPE, plan.overlay).map_err(|error| match error {
        MountError::NotEmpty { .. } => MountsError::NotEmpty { dir: plan.dir.clone() },
        MountError::Mount { source, .. } => MountsError::Directory { dir: plan.dir.clone(), source },
        source => MountsError::Kernel { name: name.into(), source },
    })
}

fn not_unmounted(name: &str, dir: &Path, error: MountError) -> MountsError {
    match error {
        MountError::Busy { users, .. } => MountsError::Busy { dir: dir.to_owned(), users },
        MountError::Covered { by, .. } => MountsError::Covered { dir: dir.to_owned(), by },
        source => MountsError::NotUnmounted { name: name.into(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_after_those_above_it_and_with_those_beside_it() {
        let sorted = ["/a", "/a", "/a/b", "/a/b/c", "/a/d", "/ab", "/b/c"].map(PathBuf::from).to_vec();
        let waves = waves(sorted, |dir| dir);
        let shown: Vec<Vec<&str>> =
            waves.iter().map(|wave| wave.iter().filter_map(|dir| dir.to_str()).collect()).collect();
        assert_eq!(shown, [vec!["/a", "/ab", "/b/c"], vec!["/a"], vec!["/a/b", "/a/d"], vec!["/a/b/c"]]);
    }
}
