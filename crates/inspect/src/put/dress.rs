//! Copies extended attributes, owner, mode, times and flags into a pool.

use std::path::Path;

use bytes::Bytes;
use cenote_format::units::ObjectId;
use cenote_fs::attr::pflags;
use cenote_fs::write::{SetAttr, SetXattr};
use cenote_fs::{FileKind, Refusal, Timestamp};
use rustix::fs::IFlags;

use super::Putter;
use super::host::HostFile;
use super::source::Source;
use crate::copy::{LossKind, POSIX_ACL_PREFIX, Reason};

impl Putter {
    /// Copies a source's metadata to an object. Times come late, since every change updates them, and flags
    /// last, since they forbid changes.
    pub(super) async fn dress_as_host(&self, source: &HostFile, path: &Path, object: ObjectId) {
        self.put_xattrs(source, path, object).await;
        let stat = &source.stat;
        let flags = source.flags();
        let flag = |host, ours| if flags.contains(host) { ours } else { 0 };
        let set = SetAttr {
            mode: (source.kind() != FileKind::Symlink).then(|| source.permissions()),
            uid: Some(stat.st_uid.into()),
            gid: Some(stat.st_gid.into()),
            atime: Some(time(stat.st_atime, stat.st_atime_nsec)),
            mtime: Some(time(stat.st_mtime, stat.st_mtime_nsec)),
            set_flags: flag(IFlags::IMMUTABLE, pflags::IMMUTABLE)
                | flag(IFlags::APPEND, pflags::APPENDONLY)
                | flag(IFlags::NODUMP, pflags::NODUMP),
            ..SetAttr::default()
        };
        if let Err(error) = self.set_attr(object, set).await {
            self.lost(path, LossKind::Mode, error);
        }
    }

    async fn put_xattrs(&self, source: &HostFile, path: &Path, object: ObjectId) {
        let names = match source.xattr_names() {
            Ok(names) => names,
            // The file system has none.
            Err(rustix::io::Errno::OPNOTSUPP) => return,
            Err(errno) => return self.lost(path, LossKind::Xattrs, errno),
        };
        for name in names {
            let value = match source.xattr(&name) {
                Ok(value) => value,
                Err(errno) => {
                    self.lost(path, LossKind::Xattr(name), errno);
                    continue;
                }
            };
            self.put_xattr(path, object, name.into(), value.into()).await;
        }
    }

    pub(super) async fn put_xattr(&self, path: &Path, object: ObjectId, name: Bytes, value: Bytes) {
        let key = name.clone();
        let set = self.change(move |fs, change| {
            Box::pin(async move { fs.set_xattr(change, object, &key, Some(&value), SetXattr::Any).await })
        });
        if let Err(error) = set.await {
            let is_acl = name.starts_with(POSIX_ACL_PREFIX);
            let reason = match error.refusal() {
                Some(Refusal::NotSupported) if is_acl => {
                    Reason::Because("the file system has acltype=off; with acltype=posix it takes ACLs")
                }
                _ => error.into(),
            };
            self.lost(path, LossKind::Xattr(name.to_vec()), reason);
        }
    }
}

fn time(seconds: i64, nanoseconds: u64) -> Timestamp {
    Timestamp { seconds, nanoseconds: nanoseconds as u32 }
}
