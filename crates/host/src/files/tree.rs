//! The trees that can be mounted: changing and unchanging ones.

use std::time::Duration;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_engine::{Engine, SnapshotHold};
use cenote_format::units::ObjectId;
use cenote_fs::{DirEntry, Filesystem, FsWriter, Result};
use cenote_object::{Cursor, Wait};

/// A tree of files; cheap to clone.
#[derive(Clone)]
pub enum Tree {
    /// A head of a writable pool.
    Live(Engine, FsWriter),
    /// An unchanging head, or a snapshot of a read-only pool.
    Fixed(Filesystem),
    /// A snapshot, held against being destroyed.
    Snapshot(Filesystem, SnapshotHold),
}

impl Tree {
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

    /// Makes changes to one file or all durable.
    #[boxed]
    pub async fn commit(&self, file: Option<ObjectId>) -> Result<()> {
        match self {
            Tree::Live(_, fs) => self.timed(Wait::Commit, fs.commit(file)).await,
            Tree::Fixed(_) | Tree::Snapshot(..) => Ok(()),
        }
    }

    /// Makes everything durable for `sync`. Must not wait for a suspended pool: `umount` calls it, too.
    #[boxed]
    pub async fn commit_all(&self) -> Result<()> {
        match self {
            Tree::Live(engine, _) => engine.suspension().unless(Duration::ZERO, self.commit(None)).await?,
            Tree::Fixed(_) | Tree::Snapshot(..) => Ok(()),
        }
    }

    /// Runs a user's operation, and records its latency if the tree is live.
    pub async fn timed<T>(&self, wait: Wait, work: impl Future<Output = T>) -> T {
        match self {
            Tree::Live(engine, fs) => fs.live().traffic().timed(engine.runtime(), wait, work).await,
            Tree::Fixed(_) | Tree::Snapshot(..) => work.await,
        }
    }
}
