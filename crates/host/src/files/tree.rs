//! The two kinds of trees that are mounted: a dataset that changes, and one that does not.

use std::time::Duration;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_engine::{Engine, SnapshotHold};
use cenote_format::units::ObjectId;
use cenote_fs::{DirEntry, Filesystem, FsWriter, Result};
use cenote_object::{Cursor, Wait};

/// A tree of files. Cloning it is cheap.
#[derive(Clone)]
pub enum Tree {
    /// A head of a pool that takes changes.
    Live(Engine, FsWriter),
    /// A head that nothing changes, or a snapshot of a pool that takes no changes.
    Fixed(Filesystem),
    /// A snapshot, kept from being destroyed.
    Snapshot(Filesystem, SnapshotHold),
}

impl Tree {
    /// The files as they are now.
    pub fn view(&self) -> Filesystem {
        match self {
            Tree::Live(_, fs) => fs.view(),
            Tree::Fixed(fs) | Tree::Snapshot(fs, _) => fs.clone(),
        }
    }

    pub fn root(&self) -> ObjectId {
        match self {
            Tree::Live(_, fs) => fs.root(),
            Tree::Fixed(fs) | Tree::Snapshot(fs, _) => fs.root(),
        }
    }

    #[boxed]
    pub async fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<DirEntry>> {
        match self {
            Tree::Live(_, fs) => fs.lookup(dir, name).await,
            Tree::Fixed(fs) | Tree::Snapshot(fs, _) => fs.lookup(dir, name).await,
        }
    }

    #[boxed]
    pub async fn list_from(&self, dir: ObjectId, from: Cursor) -> Result<Vec<(DirEntry, Cursor)>> {
        match self {
            Tree::Live(_, fs) => fs.list_from(dir, from).await,
            Tree::Fixed(fs) | Tree::Snapshot(fs, _) => fs.list_from(dir, from).await,
        }
    }

    #[boxed]
    pub async fn read(&self, file: ObjectId, offset_bytes: u64, len_bytes: u64) -> Result<Vec<Bytes>> {
        let read = async { self.view().open_file(file).await?.read_pieces(offset_bytes, len_bytes).await };
        self.timed(Wait::Read, read).await
    }

    /// Makes durable what was written to a file, or to all.
    #[boxed]
    pub async fn commit(&self, file: Option<ObjectId>) -> Result<()> {
        match self {
            Tree::Live(_, fs) => self.timed(Wait::Commit, fs.commit(file)).await,
            Tree::Fixed(_) | Tree::Snapshot(..) => Ok(()),
        }
    }

    /// Makes everything durable for `sync`, which must not wait for a pool that is suspended: `umount` calls
    /// it, too.
    #[boxed]
    pub async fn commit_all(&self) -> Result<()> {
        match self {
            Tree::Live(engine, _) => engine.unless_suspended(Duration::ZERO, self.commit(None)).await?,
            Tree::Fixed(_) | Tree::Snapshot(..) => Ok(()),
        }
    }

    /// Does what a user waits for, and counts how long that takes; in a tree that changes, whose dataset is
    /// open.
    pub async fn timed<T>(&self, wait: Wait, work: impl Future<Output = T>) -> T {
        match self {
            Tree::Live(engine, fs) => fs.live().traffic().timed(engine.runtime(), wait, work).await,
            Tree::Fixed(_) | Tree::Snapshot(..) => work.await,
        }
    }
}
