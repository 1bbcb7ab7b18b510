//! Files of the same pool: copies share blocks, and only the rest is copied.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use cenote_boxed::boxed;
use cenote_engine::SnapshotHold;
use cenote_format::units::ObjectId;
use cenote_fs::attr::pflags;
use cenote_fs::manifest::Content;
use cenote_fs::write::{CloneSource, SetAttr};
use cenote_fs::{Attr, FileKind, Filesystem, FsError, FsWriter, Refusal};
use cenote_object::trail::Trail;

use super::Putter;
use super::source::Source;
use crate::copy::{LossKind, Reason};
use crate::error::Result;

/// Bytes shared or copied in one change.
const PIECE_BYTES: u64 = 1 << 20;

/// A file of the pool into which it is copied.
#[derive(Debug, Clone)]
pub struct PoolFile {
    home: Home,
    object: ObjectId,
    attr: Attr,
}

/// The source's file system.
#[derive(Debug, Clone)]
enum Home {
    /// The one being changed.
    Target(FsWriter),
    /// Another one, which others may be changing.
    Other(FsWriter),
    Snapshot(Filesystem, SnapshotHold),
}

impl Home {
    fn view(&self) -> Filesystem {
        match self {
            Home::Target(fs) | Home::Other(fs) => fs.view(),
            Home::Snapshot(fs, _) => fs.clone(),
        }
    }

    fn as_source(&self) -> CloneSource<'_> {
        match self {
            Home::Target(fs) | Home::Other(fs) => CloneSource::Live(fs),
            Home::Snapshot(fs, hold) => CloneSource::Snapshot(fs, hold),
        }
    }
}

impl PoolFile {
    /// A file of a snapshot, which is kept from being destroyed meanwhile.
    ///
    /// # Errors
    /// The file does not exist; damage.
    #[boxed]
    pub async fn open_in_snapshot(fs: Filesystem, hold: SnapshotHold, object: ObjectId) -> Result<PoolFile> {
        PoolFile::of(Home::Snapshot(fs, hold), object).await
    }

    /// A file of another file system.
    ///
    /// # Errors
    /// The file does not exist; damage.
    #[boxed]
    pub async fn open(fs: FsWriter, object: ObjectId) -> Result<PoolFile> {
        PoolFile::of(Home::Other(fs), object).await
    }

    /// A file of the file system being changed.
    ///
    /// # Errors
    /// The file does not exist; damage.
    pub async fn open_in(putter: &Putter, object: ObjectId) -> Result<PoolFile> {
        PoolFile::of(Home::Target(putter.fs.clone()), object).await
    }

    async fn of(home: Home, object: ObjectId) -> Result<PoolFile> {
        let attr = home.view().attr(object).await?;
        Ok(PoolFile { home, object, attr })
    }

    /// Its type.
    pub fn kind(&self) -> FileKind {
        self.attr.kind()
    }

    /// Whether it is `dir` or one of its ancestors, in the file system being changed.
    pub(super) async fn has_below(&self, dir: ObjectId) -> cenote_fs::Result<bool> {
        let Home::Target(fs) = &self.home else { return Ok(false) };
        let (view, mut at) = (fs.view(), dir);
        let mut trail = Trail::new(view.objset(), "the folders above one another");
        while self.attr.is_dir() && at != self.object {
            trail.enter(at)?;
            let parent = view.attr(at).await?.parent;
            if parent == at {
                return Ok(false);
            }
            at = parent;
        }
        Ok(self.attr.is_dir())
    }

    /// Shares the piece of content at `at`; returns its length.
    async fn share(&self, putter: &Putter, object: ObjectId, at: u64) -> cenote_fs::Result<u64> {
        let (from, to) = ((self.object, at), (object, at));
        let share = async || {
            let home = self.home.clone();
            let share = putter.change(move |fs, change| {
                Box::pin(async move { fs.clone_range(change, home.as_source(), from, to, u64::MAX).await })
            });
            share.await
        };
        match share().await {
            Err(error) if error.refusal() == Some(Refusal::Again) => {
                putter.engine.sync_all().await?;
                share().await
            }
            shared => shared,
        }
    }

    /// Copies a piece of content; returns where the next one begins.
    async fn copy(&self, putter: &Putter, object: ObjectId, at: u64) -> cenote_fs::Result<u64> {
        // Opened anew for each piece: other tasks may write to the source, and the blocks they replace are
        // soon reused.
        let content = self.home.view().open_file(self.object).await?;
        let Some(start) = content.next_data(at).await?.filter(|&start| start < self.attr.size) else {
            return Ok(self.attr.size);
        };
        let end = content.next_hole(start).await?.min(self.attr.size);
        let end = end.min((start / PIECE_BYTES + 1) * PIECE_BYTES);
        let data = content.read(start, end - start).await?;
        putter.write(object, start, data).await?;
        Ok(end)
    }

    /// The size is set last: a shared file has the source's block size.
    async fn fill(&self, putter: &Putter, object: ObjectId) -> cenote_fs::Result<bool> {
        let size = self.attr.size;
        let (mut at, mut shares) = (0, true);
        while at < size {
            if putter.is_stopped() {
                return Ok(false);
            }
            let next = match shares {
                true => self.share(putter, object, at).await.map(|len| at + len),
                false => self.copy(putter, object, at).await,
            };
            match next {
                Err(error) if shares && can_be_copied(&error) => {
                    shares = false;
                    // Set it now, so that blocks have their final size from the start.
                    self.set_size(putter, object).await?;
                }
                next => {
                    let next = next?;
                    putter.count(|counters| &counters.bytes, next - at);
                    at = next;
                }
            }
        }
        Ok(true)
    }

    async fn set_size(&self, putter: &Putter, object: ObjectId) -> cenote_fs::Result<()> {
        let whole = SetAttr { size: Some(self.attr.size), ..SetAttr::default() };
        putter.set_attr(object, whole).await
    }
}

/// Whether the blocks can't be shared but may be copied.
fn can_be_copied(error: &FsError) -> bool {
    let refusals = [Refusal::Invalid, Refusal::CrossDevice, Refusal::NotSupported, Refusal::Again];
    error.refusal().is_some_and(|refusal| refusals.contains(&refusal))
}

impl Source for PoolFile {
    fn kind(&self) -> FileKind {
        PoolFile::kind(self)
    }

    fn permissions(&self) -> u32 {
        self.attr.permissions()
    }

    fn owner(&self) -> (u64, u64) {
        (self.attr.uid, self.attr.gid)
    }

    fn device(&self) -> (u32, u32) {
        self.attr.device()
    }

    fn link_key(&self) -> Option<(u64, u64)> {
        let is_alone = self.attr.links < 2 || self.attr.is_dir();
        (!is_alone).then_some((0, self.object.0))
    }

    async fn names(&self) -> Result<Vec<OsString>, Reason> {
        let entries = self.home.view().list(self.object).await?;
        let mut names: Vec<OsString> =
            entries.into_iter().map(|entry| OsString::from_vec(entry.name.to_vec())).collect();
        names.sort_unstable();
        Ok(names)
    }

    async fn enter(&self, name: &[u8]) -> Result<PoolFile, Reason> {
        let view = self.home.view();
        let entry = view.lookup(self.object, name).await?;
        let object = entry.ok_or_else(|| Refusal::NotFound.named(self.object, name))?.object;
        Ok(PoolFile { home: self.home.clone(), object, attr: view.attr(object).await? })
    }

    async fn target(&self) -> Result<Vec<u8>, Reason> {
        Ok(self.home.view().read_link(self.object).await?)
    }

    async fn put_content(&self, putter: &Putter, path: &Path, object: ObjectId) -> Result<bool> {
        let error = match self.fill(putter, object).await {
            Ok(is_whole) => return Ok(is_whole),
            Err(error) => error,
        };
        if let FsError::Dataset(full) = &error
            && let Some(full) = putter.full(full)
        {
            return Err(full);
        }
        putter.lost(path, LossKind::File, error);
        Ok(false)
    }

    async fn dress(&self, putter: &Putter, path: &Path, object: ObjectId) {
        let view = self.home.view();
        match view.xattrs(self.object).await {
            Ok(xattrs) => {
                for xattr in xattrs {
                    putter.put_xattr(path, object, xattr.name, xattr.value).await;
                }
            }
            Err(error) => putter.lost(path, LossKind::Xattrs, error),
        }
        let attr = &self.attr;
        let is_link = attr.kind() == FileKind::Symlink;
        if attr.flags & pflags::ACL_TRIVIAL == 0 && !is_link {
            let set = async {
                let acl = view.acl(self.object).await?;
                putter.change(move |fs, change| fs.set_acl(change, object, acl)).await
            };
            if let Err(error) = set.await {
                putter.lost(path, LossKind::Acl, error);
            }
        }
        let set = SetAttr {
            mode: (!is_link && attr.flags & pflags::ACL_TRIVIAL != 0).then(|| attr.permissions()),
            uid: Some(attr.uid),
            gid: Some(attr.gid),
            atime: Some(attr.atime),
            mtime: Some(attr.mtime),
            crtime: Some(attr.crtime),
            set_flags: attr.flags & !pflags::PROJINHERIT,
            ..SetAttr::default()
        };
        if let Err(error) = putter.set_attr(object, set).await {
            putter.lost(path, LossKind::Mode, error);
        }
    }
}
