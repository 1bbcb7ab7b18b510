//! `.zfs`: snapshots as directories.
//!
//! ```text
//!   .zfs --> snapshot --> NAME: the snapshot's root, opened when it is first looked up
//!        '-> shares       empty: SMB's
//! ```
//!
//! A snapshot that has been looked up keeps its tree, and its number, as long as it is the file system's. It
//! can't be destroyed while the kernel holds a file of it ([`Files::let_go_of_snapshot`]); `rmdir` destroys it
//! all the same, and what is open in it is stale.
//!
//! `mkdir`, `rmdir` and `rename` in `.zfs/snapshot` are `zfs snapshot`, `destroy` and `rename`.
//!
//! Locking: the table of trees is locked for one look or insertion; a snapshot is opened without it.
//!
//! Source: OpenZFS `zfs_ctldir.c`.

use std::collections::BTreeMap;
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_engine::{Engine, Snapshot, SnapshotHold};
use cenote_format::units::{DatasetId, Guid};
use cenote_fs::{Filesystem, Timestamp};
use cenote_fuse::vfs::NewNode;
use cenote_fuse::{Attr, Caller, DirSink, Entry, Errno, FileType, Node, Result};
use cenote_object::DatasetError;
use cenote_tasks::InUse;
use parking_lot::Mutex;

use super::errno::{errno, errno_below};
use super::node::{Control, Named, TreeId};
use super::tree::Tree;
use super::{Files, Pool, attr};

/// `ZFS_CTLDIR_NAME`.
pub(super) const SNAPDIR: &[u8] = b".zfs";
const SNAPSHOT: &[u8] = b"snapshot";
const SHARES: &[u8] = b"shares";
/// Snapshots of one mount that can be open.
const MAX_TREES: usize = 0xfffe;
/// How often, and how long apart, it is looked whether the kernel has forgotten a snapshot.
const LOOKS: u32 = 25;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Snapshots that were looked up.
#[derive(Default)]
pub(super) struct Snapshots(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_dataset: BTreeMap<DatasetId, (TreeId, Guid)>,
    trees: BTreeMap<TreeId, Looked>,
    last: u16,
}

/// A snapshot that was looked up.
enum Looked {
    /// Of a pool that takes no changes.
    Fixed(Filesystem),
    /// `kept` is there while the kernel may hold files of it.
    Live { fs: Filesystem, snapshot: Snapshot, kept: Option<SnapshotHold> },
}

impl Snapshots {
    pub fn tree(&self, id: TreeId) -> Option<Tree> {
        match self.0.lock().trees.get_mut(&id)? {
            Looked::Fixed(fs) => Some(Tree::Fixed(fs.clone())),
            Looked::Live { fs, snapshot, kept } => {
                let hold = snapshot.hold()?;
                kept.get_or_insert_with(|| hold.clone());
                Some(Tree::Snapshot(fs.clone(), hold))
            }
        }
    }

    /// The kernel holds nothing of it any more.
    fn let_go(&self, id: TreeId) {
        if let Some(Looked::Live { kept, .. }) = self.0.lock().trees.get_mut(&id) {
            *kept = None;
        }
    }

    fn known(&self, dataset: DatasetId) -> Option<TreeId> {
        self.0.lock().by_dataset.get(&dataset).map(|(id, _)| *id)
    }

    fn insert(&self, dataset: DatasetId, guid: Guid, looked: Looked) -> Result<TreeId> {
        let mut table = self.0.lock();
        // Another look-up may have been faster.
        if let Some((id, _)) = table.by_dataset.get(&dataset) {
            return Ok(*id);
        }
        if table.trees.len() >= MAX_TREES {
            return Err(Errno::NFILE);
        }
        // Numbers come back as late as possible: the kernel may still hold nodes of a tree that went.
        let next = |last: u16| if usize::from(last) >= MAX_TREES { 1 } else { last + 1 };
        let mut id = next(table.last);
        while table.trees.contains_key(&TreeId(id)) {
            id = next(id);
        }
        table.last = id;
        table.by_dataset.insert(dataset, (TreeId(id), guid));
        table.trees.insert(TreeId(id), looked);
        Ok(TreeId(id))
    }

    /// All of them.
    fn all(&self) -> Vec<(DatasetId, Guid)> {
        self.0.lock().by_dataset.iter().map(|(dataset, (_, guid))| (*dataset, *guid)).collect()
    }

    fn remove(&self, dataset: DatasetId) -> Option<TreeId> {
        let mut table = self.0.lock();
        let (id, _) = table.by_dataset.remove(&dataset)?;
        table.trees.remove(&id);
        Some(id)
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
        let entry = Entry { node: control.node(), generation: 0, attr: self.control_attr(control).await? };
        self.0.references.add(entry.node);
        Ok(entry)
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
                return self.entry(TreeId::HEAD, &self.head(), self.root()).await.map(Some);
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
        let id = match self.0.snapshots.known(snapshot.id()) {
            Some(id) => id,
            None => {
                let looked = self.look_into(snapshot.name()).await?;
                self.0.snapshots.insert(snapshot.id(), snapshot.guid(), looked)?
            }
        };
        let tree = self.tree(id)?;
        self.entry(id, &tree, tree.root()).await.map(Some)
    }

    async fn look_into(&self, full: &str) -> Result<Looked> {
        let open = async |dataset: Dataset| {
            let objset = dataset.objset().await.map_err(|e| errno_below(&e))?;
            Filesystem::open(objset.not_keeping()).await.map_err(|e| errno(&e))
        };
        match &self.0.pool {
            Pool::Live(engine) => {
                let (dataset, snapshot) = engine.snapshot(full).await.map_err(|e| errno_below(&e))?;
                // From here on its blocks stay.
                let kept = Some(snapshot.hold().ok_or(Errno::NOENT)?);
                Ok(Looked::Live { fs: open(dataset).await?, snapshot, kept })
            }
            Pool::Fixed(mos) => {
                let dataset = mos.dataset(full).await.map_err(|e| errno_below(&e))?;
                open(dataset).await.map(Looked::Fixed)
            }
        }
    }

    /// A snapshot is to be destroyed: has the kernel forget what it keeps of it, so that only files that
    /// somebody has open are in the way.
    #[boxed]
    pub async fn let_go_of_snapshot(&self, snapshot: DatasetId, name: &str) {
        let Some(id) = self.0.snapshots.known(snapshot) else { return };
        if let Some(notifier) = self.0.notifier.get().cloned() {
            let name = name.as_bytes().to_vec();
            let forget = move || notifier.name_changed(Control::Snapshot.node(), &name);
            self.0.runtime.blocking(forget).await;
        }
        for _ in 0..LOOKS {
            if self.is_unused(id) {
                return self.0.snapshots.let_go(id);
            }
            self.0.runtime.sleep(LOOK_INTERVAL).await;
        }
    }

    /// Whether the kernel holds nothing of a snapshot, or no more than its root, which it holds for whoever
    /// names it.
    fn is_unused(&self, id: TreeId) -> bool {
        let is_root =
            |node| matches!(self.named(node), Some(Named::File(_, object)) if object == self.root());
        self.0.references.of_tree(id).into_iter().all(is_root)
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
        // The kernel holds the directory itself, and can't be asked to forget what is below it meanwhile.
        let mos = engine.mos().await.map_err(|e| errno_below(&e))?;
        let snapshot = mos.dataset(&full).await.map_err(|e| errno_below(&e))?;
        self.0.snapshots.known(snapshot.id()).inspect(|id| self.0.snapshots.let_go(*id));
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
        let mut held = Vec::new();
        for (dataset, guid) in self.0.snapshots.all() {
            let found = mos.dataset_by_id(dataset).await;
            let is_ours = found.is_ok_and(|found| {
                found.guid() == guid && found.name().split('@').next() == Some(&*self.name())
            });
            if !is_ours && let Some(tree) = self.0.snapshots.remove(dataset) {
                held.extend(self.0.references.of_tree(tree));
            }
        }
        // The kernel keeps listings.
        held.push(Control::Snapshot.node());
        self.tell_changed(held);
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
