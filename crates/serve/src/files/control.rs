//! `.zfs`: snapshots as directories.
//!
//! ```text
//!   .zfs --> snapshot --> NAME: the snapshot's root, opened when it is first looked up
//!        '-> shares       empty: SMB's
//! ```
//!
//! A snapshot is known by the number of its dataset, which is part of the numbers of its nodes: they mean the
//! same after a restart. One that has been looked up keeps its tree as long as it is the file system's. What
//! is open in one that was destroyed is stale.
//!
//! `mkdir`, `rmdir` and `rename` in `.zfs/snapshot` are `zfs snapshot`, `destroy` and `rename`.
//!
//! Locking: the table of trees is locked for one look or insertion; a snapshot is opened without it.
//!
//! Source: OpenZFS `zfs_ctldir.c`.

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_engine::Engine;
use cenote_format::units::{DatasetId, Guid};
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
use super::{Files, attr};

/// `ZFS_CTLDIR_NAME`.
pub(super) const SNAPDIR: &[u8] = b".zfs";
const SNAPSHOT: &[u8] = b"snapshot";
const SHARES: &[u8] = b"shares";
/// Snapshots of one mount that can be open.
const MAX_TREES: usize = 1 << 16;

/// Snapshots that were looked up.
#[derive(Default)]
pub(super) struct Snapshots(Mutex<BTreeMap<DatasetId, Snapshot>>);

/// A snapshot that was looked up.
#[derive(Clone)]
pub(super) struct Snapshot {
    /// Numbers of datasets are used again; this is not.
    pub guid: Guid,
    pub fs: Filesystem,
}

impl Snapshots {
    pub fn get(&self, dataset: DatasetId) -> Option<Snapshot> {
        self.0.lock().get(&dataset).cloned()
    }

    fn insert(&self, dataset: DatasetId, snapshot: Snapshot) -> Result<Snapshot> {
        let mut table = self.0.lock();
        if table.len() >= MAX_TREES {
            return Err(Errno::NFILE);
        }
        // Another look-up may have been faster.
        Ok(table.entry(dataset).or_insert(snapshot).clone())
    }

    /// All of them.
    fn all(&self) -> Vec<(DatasetId, Guid)> {
        self.0.lock().iter().map(|(dataset, snapshot)| (*dataset, snapshot.guid)).collect()
    }

    fn remove(&self, dataset: DatasetId) {
        self.0.lock().remove(&dataset);
    }
}

impl Files {
    /// A mounted snapshot has none.
    pub(super) fn has_snapdir(&self) -> bool {
        !self.name().contains('@')
    }

    pub(super) async fn control_attr(&self, control: Control) -> Result<Attr> {
        let entries = if control == Control::Zfs { 2 } else { 0 };
        let made =
            self.head().view().attr(self.root()).await.map_or(Timestamp::default(), |attr| attr.crtime);
        Ok(attr::control(control.ino(), entries, made))
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
        let tree = Tree::Fixed(self.snapshot(&snapshot).await?.fs);
        self.entry(TreeId::Snapshot(snapshot.id()), &tree, tree.root()).await.map(Some)
    }

    /// A snapshot of the mounted dataset by its number: somebody has a file handle of it, perhaps from before
    /// a restart.
    pub(super) async fn snapshot_by_id(&self, id: DatasetId) -> Result<Snapshot> {
        if let Some(known) = self.0.snapshots.get(id) {
            return Ok(known);
        }
        let mos = self.0.pool.mos().await.map_err(|e| errno_below(&e))?;
        let found = mos.dataset_by_id(id).await.map_err(|_| Errno::STALE)?;
        match found.name().split_once('@') {
            Some((head, _)) if head == self.name() => self.snapshot(&found).await,
            _ => Err(Errno::STALE),
        }
    }

    async fn snapshot(&self, dataset: &Dataset) -> Result<Snapshot> {
        let (id, guid) = (dataset.id(), dataset.guid());
        match self.0.snapshots.get(id) {
            Some(known) if known.guid == guid => return Ok(known),
            Some(_) => self.close_snapshot(id),
            None => {}
        }
        let objset = dataset.objset().await.map_err(|e| errno_below(&e))?;
        let fs = Filesystem::open(objset).await.map_err(|e| errno(&e))?;
        self.0.snapshots.insert(id, Snapshot { guid, fs })
    }

    /// What is open in a snapshot is stale from now on.
    fn close_snapshot(&self, id: DatasetId) {
        self.0.snapshots.remove(id);
        for (node, _) in self.0.references.of_tree(TreeId::Snapshot(id)) {
            self.0.references.make_stale(node);
            self.0.tell([Notice::Node(node)]);
        }
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

    /// `mkdir` in `.zfs/snapshot` takes a snapshot.
    pub(super) async fn make_in_control(
        &self,
        caller: Caller,
        control: Control,
        name: &[u8],
        new: NewNode,
    ) -> Result<Entry> {
        let engine = self.may_change_snapshots(caller, &[control])?;
        if new.mode & S_IFMT != S_IFDIR {
            return Err(Errno::PERM);
        }
        let full = self.snapshot_called(name)?;
        cenote_tasks::snapshot(&engine, &[full]).await.map_err(|e| refusal(&e))?;
        self.lookup_snapshot(name).await?.ok_or(Errno::NOENT)
    }

    /// `rmdir` in `.zfs/snapshot` destroys one.
    pub(super) async fn remove_from_control(
        &self,
        caller: Caller,
        control: Control,
        name: &[u8],
    ) -> Result<()> {
        let engine = self.may_change_snapshots(caller, &[control])?;
        self.has_snapshot(name).await?;
        let full = self.snapshot_called(name)?;
        let gone = cenote_tasks::destroy_snapshots(&engine, &[full], InUse::Refuse).await;
        gone.map_err(|e| refusal(&e))?;
        self.snapshots_changed().await;
        Ok(())
    }

    /// `rename` in `.zfs/snapshot` renames one.
    pub(super) async fn rename_in_control(
        &self,
        caller: Caller,
        from: (Control, &[u8]),
        to: (Control, &[u8]),
    ) -> Result<()> {
        let engine = self.may_change_snapshots(caller, &[from.0, to.0])?;
        self.has_snapshot(from.1).await?;
        let renames = vec![(self.snapshot_called(from.1)?, self.snapshot_called(to.1)?)];
        cenote_tasks::rename_snapshots(&engine, renames).await.map_err(|e| refusal(&e))
    }

    /// Root and the daemon's user may, in `.zfs/snapshot`.
    fn may_change_snapshots(&self, caller: Caller, places: &[Control]) -> Result<Engine> {
        if places.iter().any(|place| *place != Control::Snapshot) {
            return Err(Errno::PERM);
        }
        if caller.uid != 0 && caller.uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM);
        }
        self.writer().map(|(engine, _)| engine)
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

    /// Snapshots may have been destroyed, or have got another owner: what is open in them is stale.
    #[boxed]
    pub async fn snapshots_changed(&self) {
        let Ok(mos) = self.0.pool.mos().await else { return };
        for (dataset, guid) in self.0.snapshots.all() {
            let found = mos.dataset_by_id(dataset).await;
            let is_ours = found.is_ok_and(|found| {
                found.guid() == guid && found.name().split('@').next() == Some(&*self.name())
            });
            if !is_ours {
                self.close_snapshot(dataset);
            }
        }
        // The kernel keeps listings.
        let list = Control::Snapshot.node();
        if self.0.references.holds(list) {
            self.0.tell([Notice::Listing(list)]);
        }
    }
}

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;

/// Why a change to snapshots was refused.
fn refusal(error: &DatasetError) -> Errno {
    match error {
        DatasetError::DatasetExists { .. } => Errno::EXIST,
        DatasetError::NoDataset { .. } => Errno::NOENT,
        DatasetError::Busy { .. } => Errno::BUSY,
        DatasetError::BadName { .. } | DatasetError::Unsuitable { .. } => Errno::INVAL,
        error => errno_below(error),
    }
}
