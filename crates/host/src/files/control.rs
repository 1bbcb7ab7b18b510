//! `.zfs`: snapshots as directories.
//!
//! ```text
//!   .zfs --> snapshot --> NAME: the snapshot's root, opened on first lookup
//!        '-> shares       empty: SMB's
//! ```
//!
//! A snapshot is known by its dataset's number, part of its nodes' numbers, which thus survive a restart.
//! Once looked up, it keeps its tree while it belongs to the file system. It can't be destroyed while the
//! kernel holds one of its files ([`Files::let_go_of_snapshot`]), except by `rmdir`, which makes its open
//! files stale.
//!
//! `mkdir`, `rmdir` and `rename` in `.zfs/snapshot` are `zfs snapshot`, `destroy` and `rename`.
//!
//! Locking: the table of trees is locked for one look or insertion, and not while a snapshot is opened.
//!
//! Source: OpenZFS `zfs_ctldir.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_dataset::delegation::{Credentials, Subject};
use cenote_engine::{Engine, Snapshot, SnapshotHold};
use cenote_format::units::{DatasetId, Guid, ObjectId};
use cenote_fs::{Filesystem, Timestamp};
use cenote_fuse::vfs::NewNode;
use cenote_fuse::{Attr, Caller, DirSink, Entry, Errno, FileType, Node, Result};
use cenote_object::DatasetError;
use cenote_tasks::InUse;
use parking_lot::Mutex;

use super::errno::{errno, errno_below};
use super::node::{Control, Named, TreeId};
use super::tell::Notice;
use super::tree::Tree;
use super::{Files, Pool, attr};
use crate::own::is_trusted;

/// `ZFS_CTLDIR_NAME`.
pub(super) const SNAPDIR: &[u8] = b".zfs";
const SNAPSHOT: &[u8] = b"snapshot";
const SHARES: &[u8] = b"shares";
const MAX_TREES: usize = 1 << 16;
/// Number and interval of checks whether the kernel has forgotten a snapshot.
const LOOKS: u32 = 25;
/// Maximum number of held files in a snapshot to invalidate by name.
const MAX_HELD: usize = 1024;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct Snapshots(Mutex<BTreeMap<DatasetId, Looked>>);

struct Looked {
    /// Unlike dataset numbers, never reused.
    guid: Guid,
    fs: Filesystem,
    /// In a writable pool.
    live: Option<Live>,
}

/// Keeps the snapshot from being destroyed.
struct Live {
    snapshot: Snapshot,
    /// Set while the kernel may hold files of it.
    kept: Option<SnapshotHold>,
}

impl Snapshots {
    /// The tree and GUID of a snapshot looked up; no tree if its destruction has begun.
    fn tree(&self, dataset: DatasetId) -> Option<(Guid, Option<Tree>)> {
        let mut table = self.0.lock();
        let looked = table.get_mut(&dataset)?;
        let tree = match &mut looked.live {
            None => Some(Tree::Fixed(looked.fs.clone())),
            Some(Live { snapshot, kept }) => snapshot.hold().map(|hold| {
                kept.get_or_insert_with(|| hold.clone());
                Tree::Snapshot(looked.fs.clone(), hold)
            }),
        };
        Some((looked.guid, tree))
    }

    pub(super) fn guid(&self, dataset: DatasetId) -> Option<Guid> {
        self.0.lock().get(&dataset).map(|looked| looked.guid)
    }

    /// The kernel holds none of its files.
    fn let_go(&self, dataset: DatasetId) {
        if let Some(Looked { live: Some(live), .. }) = self.0.lock().get_mut(&dataset) {
            live.kept = None;
        }
    }

    fn insert(&self, dataset: DatasetId, looked: Looked) -> Result<()> {
        let mut table = self.0.lock();
        if table.len() >= MAX_TREES {
            return Err(Errno::NFILE);
        }
        // A concurrent lookup may have been faster.
        table.entry(dataset).or_insert(looked);
        Ok(())
    }

    fn all(&self) -> Vec<(DatasetId, Guid)> {
        self.0.lock().iter().map(|(dataset, snapshot)| (*dataset, snapshot.guid)).collect()
    }

    fn remove(&self, dataset: DatasetId) {
        self.0.lock().remove(&dataset);
    }
}

impl Files {
    /// A mounted snapshot has no `.zfs`.
    pub(super) fn has_snapdir(&self) -> bool {
        !self.name().contains('@')
    }

    pub(super) async fn control_attr(&self, control: Control) -> Result<Attr> {
        let entries = if control == Control::Zfs { 2 } else { 0 };
        let made =
            self.head().view().attr(self.root()).await.map_or(Timestamp::default(), |attr| attr.crtime);
        // The daemon, not the kernel, decides on making and destroying snapshots.
        let permissions = if control == Control::Snapshot { 0o777 } else { 0o555 };
        Ok(attr::control(control.ino(), entries, made, permissions))
    }

    pub(super) async fn control_entry(&self, control: Control) -> Result<Entry> {
        let attr = self.control_attr(control).await?;
        Ok(Entry { node: self.0.references.give_control(control), generation: 0, attr })
    }

    fn control(&self, node: Node) -> Result<Control> {
        match self.named(node) {
            Some(Named::Control(control)) => Ok(control),
            _ => Err(Errno::STALE),
        }
    }

    pub(super) async fn lookup_control(&self, dir: Node, name: &[u8]) -> Result<Option<Entry>> {
        let control = match (self.control(dir)?, name) {
            (control, b".") => control,
            (Control::Zfs, b"..") => {
                return self.entry(TreeId::Head, &self.head(), self.root()).await.map(Some);
            }
            (Control::Snapshot | Control::Shares, b"..") => Control::Zfs,
            (Control::Zfs, SNAPSHOT) => Control::Snapshot,
            (Control::Zfs, SHARES) => Control::Shares,
            (Control::Snapshot, name) => return self.lookup_snapshot(name).await,
            _ => return Ok(None),
        };
        self.control_entry(control).await.map(Some)
    }

    async fn lookup_snapshot(&self, name: &[u8]) -> Result<Option<Entry>> {
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        let mos = self.0.pool.mos().await.map_err(|e| errno_below(&e))?;
        let head = mos.dataset(&self.name()).await.map_err(|e| errno_below(&e))?;
        let Some(snapshot) = head.snapshot(name).await.map_err(|e| errno_below(&e))? else { return Ok(None) };
        let tree = self.snapshot(&snapshot).await?;
        self.entry(TreeId::Snapshot(snapshot.id()), &tree, tree.root()).await.map(Some)
    }

    /// A snapshot of the mounted dataset by number, for file handles that may predate a restart.
    pub(super) async fn snapshot_by_id(&self, id: DatasetId) -> Result<Tree> {
        if let Some((_, tree)) = self.0.snapshots.tree(id) {
            return tree.ok_or(Errno::STALE);
        }
        let mos = self.0.pool.mos().await.map_err(|e| errno_below(&e))?;
        let found = mos.dataset_by_id(id).await.map_err(|_| Errno::STALE)?;
        match found.name().split_once('@') {
            Some((head, _)) if head == self.name() => self.snapshot(&found).await,
            _ => Err(Errno::STALE),
        }
    }

    async fn snapshot(&self, dataset: &Dataset) -> Result<Tree> {
        let (id, guid) = (dataset.id(), dataset.guid());
        match self.0.snapshots.tree(id) {
            Some((known, tree)) if known == guid => return tree.ok_or(Errno::NOENT),
            Some(_) => self.close_snapshot(id),
            None => {}
        }
        let looked = self.look_into(dataset.name()).await?;
        self.0.snapshots.insert(id, looked)?;
        self.0.snapshots.tree(id).and_then(|(_, tree)| tree).ok_or(Errno::NOENT)
    }

    /// Makes a snapshot's open files stale.
    fn close_snapshot(&self, id: DatasetId) {
        self.0.snapshots.remove(id);
        for (node, _) in self.0.references.of_tree(TreeId::Snapshot(id)) {
            self.0.references.make_stale(node);
            self.0.tell([Notice::Node(node)]);
        }
    }

    async fn look_into(&self, full: &str) -> Result<Looked> {
        let (dataset, live) = match &self.0.pool {
            Pool::Live(engine) => {
                let (dataset, snapshot) = engine.snapshot(full).await.map_err(|e| errno_below(&e))?;
                // From here on its blocks stay.
                let kept = Some(snapshot.hold().ok_or(Errno::NOENT)?);
                (dataset, Some(Live { snapshot, kept }))
            }
            Pool::Fixed(mos) => (mos.dataset(full).await.map_err(|e| errno_below(&e))?, None),
        };
        let objset = dataset.objset().await.map_err(|e| errno_below(&e))?;
        let fs = Filesystem::open(objset.not_keeping()).await.map_err(|e| errno(&e))?;
        Ok(Looked { guid: dataset.guid(), fs, live })
    }

    /// Makes the kernel drop its caches of a snapshot about to be destroyed, so that only open files keep it.
    #[boxed]
    pub async fn let_go_of_snapshot(&self, snapshot: DatasetId, name: &str) {
        let Some((_, Some(tree))) = self.0.snapshots.tree(snapshot) else { return };
        // The kernel drops everything below a name, except open files, which stay below a removed name.
        self.have_forgotten(vec![(Control::Snapshot.node(), Bytes::copy_from_slice(name.as_bytes()))]).await;
        if !self.is_unused(snapshot) {
            let names = self.names_held(snapshot, &tree.view()).await;
            self.have_forgotten(names).await;
        }
        drop(tree);
        for _ in 0..LOOKS {
            if self.is_unused(snapshot) {
                return self.0.snapshots.let_go(snapshot);
            }
            self.0.runtime.sleep(LOOK_INTERVAL).await;
        }
    }

    async fn have_forgotten(&self, names: Vec<(Node, Bytes)>) {
        if let Some(notifier) = self.0.notifier.get().cloned() {
            let forget = move || names.iter().for_each(|(dir, name)| notifier.name_changed(*dir, name));
            self.0.runtime.blocking(forget).await;
        }
    }

    /// Names of nodes that the kernel holds of a snapshot, if found.
    async fn names_held(&self, snapshot: DatasetId, view: &Filesystem) -> Vec<(Node, Bytes)> {
        let id = TreeId::Snapshot(snapshot);
        let mut by_dir: BTreeMap<ObjectId, BTreeSet<ObjectId>> = BTreeMap::new();
        for (_, held) in self.0.references.of_tree(id).into_iter().take(MAX_HELD) {
            if let Ok(attr) = view.attr(held.object).await {
                by_dir.entry(attr.parent).or_default().insert(held.object);
            }
        }
        let mut names = Vec::new();
        for (dir, objects) in by_dir {
            let (Some(node), Ok(entries)) = (self.0.references.node_of(id, dir), view.list(dir).await) else {
                continue;
            };
            let held = entries.into_iter().filter(|entry| objects.contains(&entry.object));
            names.extend(held.map(|entry| (node, entry.name)));
        }
        names
    }

    /// Whether the kernel holds nothing of a snapshot, or only its root, which any lookup holds.
    fn is_unused(&self, snapshot: DatasetId) -> bool {
        let held = self.0.references.of_tree(TreeId::Snapshot(snapshot));
        held.into_iter().all(|(_, held)| held.object == self.root())
    }

    pub(super) async fn list_control(&self, dir: Node, cookie: u64, sink: &mut dyn DirSink) -> Result<()> {
        let control = self.control(dir)?;
        let above = match control {
            Control::Zfs => self.root().0,
            Control::Snapshot | Control::Shares => Control::Zfs.ino(),
        };
        let mut names: Vec<(Vec<u8>, u64)> = vec![(b".".into(), control.ino()), (b"..".into(), above)];
        match control {
            Control::Zfs => {
                names.push((SHARES.into(), Control::Shares.ino()));
                names.push((SNAPSHOT.into(), Control::Snapshot.ino()));
            }
            Control::Snapshot => {
                let mos = self.0.pool.mos().await.map_err(|e| errno_below(&e))?;
                let head = mos.dataset(&self.name()).await.map_err(|e| errno_below(&e))?;
                let snapshots = head.snapshot_names().await.map_err(|e| errno_below(&e))?;
                names.extend(snapshots.into_iter().map(|(name, id)| (name.into_bytes(), id.0)));
            }
            Control::Shares => {}
        }
        for (number, (name, ino)) in names.iter().enumerate().skip(cookie as usize) {
            if !sink.add(name, *ino, Some(FileType::Directory), number as u64 + 1) {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn make_in_control(
        &self,
        caller: Caller,
        control: Control,
        name: &[u8],
        new: NewNode,
    ) -> Result<Entry> {
        let engine = self.may_change_snapshots(caller, &[control], Subject::Head, "snapshot").await?;
        if new.mode & S_IFMT != S_IFDIR {
            return Err(Errno::PERM);
        }
        let full = self.snapshot_called(name)?;
        cenote_tasks::snapshot(&engine, &[full]).await.map_err(|e| refusal(&e))?;
        self.lookup_snapshot(name).await?.ok_or(Errno::NOENT)
    }

    pub(super) async fn remove_from_control(
        &self,
        caller: Caller,
        control: Control,
        name: &[u8],
    ) -> Result<()> {
        let engine = self.may_change_snapshots(caller, &[control], Subject::Snapshot, "destroy").await?;
        self.has_snapshot(name).await?;
        let full = self.snapshot_called(name)?;
        // The kernel holds the directory during `rmdir`, so it can't be asked to drop its contents.
        let mos = engine.mos().await.map_err(|e| errno_below(&e))?;
        let snapshot = mos.dataset(&full).await.map_err(|e| errno_below(&e))?;
        self.0.snapshots.let_go(snapshot.id());
        let gone = cenote_tasks::destroy_snapshots(&engine, &[full], InUse::Refuse).await;
        gone.map_err(|e| refusal(&e))?;
        self.snapshots_changed().await;
        Ok(())
    }

    pub(super) async fn rename_in_control(
        &self,
        caller: Caller,
        from: (Control, &[u8]),
        to: (Control, &[u8]),
    ) -> Result<()> {
        let places = [from.0, to.0];
        let engine = self.may_change_snapshots(caller, &places, Subject::Snapshot, "rename").await?;
        self.has_snapshot(from.1).await?;
        let renames = vec![(self.snapshot_called(from.1)?, self.snapshot_called(to.1)?)];
        cenote_tasks::rename_snapshots(&engine, renames).await.map_err(|e| refusal(&e))
    }

    /// Allows changes in `.zfs/snapshot` to root, the daemon's user, and users with delegated permission. The
    /// kernel reports only the first of the caller's groups.
    async fn may_change_snapshots(
        &self,
        caller: Caller,
        places: &[Control],
        subject: Subject,
        permission: &str,
    ) -> Result<Engine> {
        if places.iter().any(|place| *place != Control::Snapshot) {
            return Err(Errno::PERM);
        }
        let (engine, _) = self.writer()?;
        if is_trusted(caller.uid) {
            return Ok(engine);
        }
        let who = Credentials { uid: caller.uid, gids: vec![caller.gid] };
        let names = engine.names();
        let is_allowed = async {
            let mos = engine.mos().await?;
            let head = mos.dataset(&self.name()).await?;
            Ok(mos.heeds_delegation().await? && head.dir().is_allowed(subject, permission, &who).await?)
        };
        match is_allowed.await.map_err(|error: DatasetError| errno_below(&error))? {
            true => Ok(engine.acting_for_delegated(who, names)),
            false => Err(Errno::PERM),
        }
    }

    fn snapshot_called(&self, name: &[u8]) -> Result<String> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::INVAL)?;
        Ok(format!("{}@{name}", self.name()))
    }

    async fn has_snapshot(&self, name: &[u8]) -> Result<()> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let mos = self.0.pool.mos().await.map_err(|e| errno_below(&e))?;
        let head = mos.dataset(&self.name()).await.map_err(|e| errno_below(&e))?;
        head.snapshot(name).await.map_err(|e| errno_below(&e))?.map(drop).ok_or(Errno::NOENT)
    }

    /// Makes open files of destroyed or moved snapshots stale.
    #[boxed]
    pub async fn snapshots_changed(&self) {
        let open = self.0.snapshots.all();
        let mos = if open.is_empty() { None } else { self.0.pool.mos().await.ok() };
        for (dataset, guid) in open {
            let Some(mos) = &mos else { return };
            let found = mos.dataset_by_id(dataset).await;
            let is_ours = found.is_ok_and(|found| {
                found.guid() == guid && found.name().split('@').next() == Some(&*self.name())
            });
            if !is_ours {
                self.close_snapshot(dataset);
            }
        }
        // The kernel caches listings.
        let list = Control::Snapshot.node();
        if self.0.references.holds(list) {
            self.0.tell([Notice::Listing(list)]);
        }
    }
}

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;

fn refusal(error: &DatasetError) -> Errno {
    match error {
        DatasetError::DatasetExists { .. } => Errno::EXIST,
        DatasetError::NoDataset { .. } => Errno::NOENT,
        DatasetError::Busy { .. } => Errno::BUSY,
        DatasetError::BadName { .. } | DatasetError::Unsuitable { .. } => Errno::INVAL,
        error => errno_below(error),
    }
}
