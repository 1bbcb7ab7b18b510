//! File operations of clients, each its own change, as through a mount.

use bytes::Bytes;
use cenote_engine::Need;
use cenote_format::units::ObjectId;
use cenote_fs::write::{NewFile, NewKind, RenameMode, SetAttr};

use super::pool::Bench;
use crate::error::{Result, StudyError};

impl Bench {
    pub(crate) async fn find(&self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let found = self.fs.lookup(dir, name).await?;
        found.map(|entry| entry.object).ok_or(StudyError::Bench("a file of the study is not there"))
    }

    pub(crate) async fn create(
        &self,
        dir: ObjectId,
        name: Vec<u8>,
        kind: NewKind<'static>,
    ) -> Result<ObjectId> {
        let new = NewFile { kind, mode: 0o755, umask: 0, uid: 0, gid: 0 };
        let made = self.fs.change(&self.engine, Need::Write(0), move |fs, change| {
            Box::pin(async move { fs.create(change, dir, &name, &new).await })
        });
        Ok(made.await?)
    }

    pub(crate) async fn write(&self, file: ObjectId, at: u64, data: Bytes) -> Result<()> {
        let written = self.fs.change(&self.engine, Need::Write(data.len() as u64), move |fs, change| {
            Box::pin(async move { fs.write(change, file, at, data).await })
        });
        Ok(written.await.map(drop)?)
    }

    pub(crate) async fn rename(&self, dir: ObjectId, old: Vec<u8>, new: Vec<u8>) -> Result<()> {
        let renamed = self.fs.change(&self.engine, Need::Write(0), move |fs, change| {
            Box::pin(async move {
                fs.rename(change, (dir, &old), (dir, &new), RenameMode::NoReplace).await.map(drop)
            })
        });
        Ok(renamed.await?)
    }

    pub(crate) async fn set_time(&self, id: ObjectId) -> Result<()> {
        let set = self.fs.change(&self.engine, Need::Write(0), move |fs, change| {
            let set = SetAttr { mtime: Some(change.now), ..SetAttr::default() };
            Box::pin(async move { fs.set_attr(change, id, &set).await })
        });
        Ok(set.await?)
    }
}
