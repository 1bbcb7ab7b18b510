//! `.zfs`: snapshots as directories.
//!
//! ```text
//!   .zfs --> snapshot --> NAME: the snapshot's root, opened when it is first looked up
//!        '-> shares       empty: SMB's
//! ```
//!
//! A snapshot that has been looked up keeps its tree, and its number, as long as the file system is mounted.
//!
//! Locking: the table of trees is locked for one look or insertion; a snapshot is opened without it.
//!
//! Source: OpenZFS `zfs_ctldir.c`.

use std::collections::BTreeMap;

use cenote_format::units::DatasetId;
use cenote_fs::{Filesystem, Timestamp};
use cenote_fuse::vfs::NewNode;
use cenote_fuse::{Attr, DirSink, Entry, Errno, FileType, Node, Result};
use parking_lot::Mutex;

use super::errno::{errno, errno_below};
use super::node::{Control, Named, TreeId};
use super::tree::Tree;
use super::{Files, attr};

/// `ZFS_CTLDIR_NAME`.
pub(super) const SNAPDIR: &[u8] = b".zfs";
const SNAPSHOT: &[u8] = b"snapshot";
const SHARES: &[u8] = b"shares";
/// Snapshots of one mount that can be open.
const MAX_TREES: usize = 0xfffe;

/// Snapshots that were looked up.
#[derive(Default)]
pub(super) struct Snapshots(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_dataset: BTreeMap<DatasetId, TreeId>,
    trees: BTreeMap<TreeId, Filesystem>,
}

impl Snapshots {
    pub fn tree(&self, id: TreeId) -> Option<Tree> {
        self.0.lock().trees.get(&id).cloned().map(Tree::Fixed)
    }

    fn known(&self, dataset: DatasetId) -> Option<TreeId> {
        self.0.lock().by_dataset.get(&dataset).copied()
    }

    fn insert(&self, dataset: DatasetId, fs: Filesystem) -> Result<TreeId> {
        let mut table = self.0.lock();
        // Another look-up may have been faster.
        if let Some(id) = table.by_dataset.get(&dataset) {
            return Ok(*id);
        }
        if table.trees.len() >= MAX_TREES {
            return Err(Errno::NFILE);
        }
        let id = TreeId(table.trees.len() as u16 + 1);
        table.by_dataset.insert(dataset, id);
        table.trees.insert(id, fs);
        Ok(id)
    }
}

impl Files {
    /// A mounted snapshot has none.
    pub(super) fn has_snapdir(&self) -> bool {
        !self.0.name.contains('@')
    }

    pub(super) async fn control_attr(&self, control: Control) -> Result<Attr> {
        let entries = if control == Control::Zfs { 2 } else { 0 };
        let made =
            self.0.head.view().attr(self.root()).await.map_or(Timestamp::default(), |attr| attr.crtime);
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
                return self.entry(TreeId::HEAD, &self.0.head, self.root()).await.map(Some);
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
        let head = mos.dataset(&self.0.name).await.map_err(|e| errno_below(&e))?;
        let Some(snapshot) = head.snapshot(name).await.map_err(|e| errno_below(&e))? else { return Ok(None) };
        let id = match self.0.snapshots.known(snapshot.id()) {
            Some(id) => id,
            None => {
                let objset = snapshot.objset().await.map_err(|e| errno_below(&e))?;
                let fs = Filesystem::open(objset).await.map_err(|e| errno(&e))?;
                self.0.snapshots.insert(snapshot.id(), fs)?
            }
        };
        let tree = self.tree(id)?;
        self.entry(id, &tree, tree.root()).await.map(Some)
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
                let head = mos.dataset(&self.0.name).await.map_err(|e| errno_below(&e))?;
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
        control: Control,
        _name: &[u8],
        _new: NewNode,
    ) -> Result<Entry> {
        match control {
            Control::Snapshot => Err(Errno::OPNOTSUPP),
            Control::Zfs | Control::Shares => Err(Errno::PERM),
        }
    }

    /// `rmdir` in `.zfs/snapshot` destroys one.
    pub(super) async fn remove_from_control(&self, control: Control, _name: &[u8]) -> Result<()> {
        match control {
            Control::Snapshot => Err(Errno::OPNOTSUPP),
            Control::Zfs | Control::Shares => Err(Errno::PERM),
        }
    }

    /// `rename` in `.zfs/snapshot` renames one.
    pub(super) async fn rename_in_control(&self, from: (Control, &[u8]), to: (Control, &[u8])) -> Result<()> {
        match (from.0, to.0) {
            (Control::Snapshot, Control::Snapshot) => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::PERM),
        }
    }
}
