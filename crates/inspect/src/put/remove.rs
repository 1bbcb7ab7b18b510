//! Removes files, and folders with all their contents.

use std::collections::HashSet;

use cenote_engine::Need;
use cenote_format::units::ObjectId;
use cenote_fs::{FileKind, FsError, Refusal};

use super::Putter;
use crate::error::Result;

impl Putter {
    /// Removes a file's name or, with `recursive`, a folder and everything below it.
    ///
    /// # Errors
    /// It does not exist; it is a nonempty folder, without `recursive`; the file system refuses it. Files
    /// removed before the error stay removed.
    pub async fn remove(&self, dir: ObjectId, name: &[u8], recursive: bool) -> Result<()> {
        let mut stack = vec![(dir, name.to_vec(), false)];
        // A folder has one name. Meeting one twice means damage, and it could be its own ancestor.
        let mut entered = HashSet::new();
        while let Some((dir, name, is_empty)) = stack.pop() {
            if self.is_stopped() {
                break;
            }
            let entry = self.fs.lookup(dir, &name).await?;
            let entry = entry.ok_or_else(|| Refusal::NotFound.named(dir, &name))?;
            let is_folder = match entry.kind {
                Some(kind) => kind == FileKind::Directory,
                None => self.fs.view().attr(entry.object).await?.is_dir(),
            };
            if is_folder && recursive && !is_empty {
                if !entered.insert(entry.object) {
                    return Err(self
                        .fs
                        .view()
                        .objset()
                        .damaged(entry.object, "is a folder with several names")
                        .into());
                }
                let below = self.fs.list(entry.object).await?;
                stack.push((dir, name, true));
                stack.extend(below.into_iter().map(|below| (entry.object, below.name.to_vec(), false)));
                continue;
            }
            let of_change = name.clone();
            let gone = self.change_with(Need::Free, move |fs, change| {
                Box::pin(async move {
                    match is_folder {
                        true => fs.rmdir(change, dir, &of_change).await.map(Some),
                        false => fs.unlink(change, dir, &of_change).await,
                    }
                })
            });
            match gone.await {
                Ok(Some(gone)) => self.free(gone).await?,
                Ok(None) => {}
                // The name may be that of another file by now.
                Err(error) if !is_empty && is_other_kind(&error) => {
                    if self.fs.lookup(dir, &name).await?.as_ref() == Some(&entry) {
                        return Err(error.into());
                    }
                    stack.push((dir, name, false));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Frees files without names that an interrupted change left behind.
    ///
    /// # Errors
    /// The queue is damaged, or a txg could not be synced.
    pub async fn clean_up(&self) -> Result<()> {
        Ok(self.fs.free_all_unlinked(&self.engine).await?)
    }

    /// Frees a file without names; a large file takes several txgs.
    pub(super) async fn free(&self, object: ObjectId) -> Result<()> {
        let free =
            async || self.change_with(Need::Free, move |fs, change| fs.free_unlinked(change, object)).await;
        while !free().await? {
            self.engine.sync_all().await?;
        }
        Ok(())
    }
}

/// Whether a folder was met in place of a file, or a file in place of a folder.
fn is_other_kind(error: &FsError) -> bool {
    matches!(error, FsError::Refused { why: Refusal::IsDirectory | Refusal::NotDirectory, .. })
}
