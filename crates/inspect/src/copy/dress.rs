//! Restores owner, extended attributes, mode, times and flags ("dresses" a copy).
//!
//! The order matters. A change of owner clears set-id bits and `security.capability`, so it comes first. A
//! change of mode may remove the right to set attributes. All of these change the modification time of the
//! inode, so times come last. Flags can make a file immutable and are set after it has its name
//! ([`Dress::set_flags`]).
//!
//! Source: chown(2), xattr(7), inode(7).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use cenote_format::units::ObjectId;
use cenote_fs::acl::AceWho;
use cenote_fs::attr::pflags;
use cenote_fs::{Attr, FileKind, Filesystem, Timestamp, Xattr};
use rustix::fs::{AtFlags, CWD, Gid, IFlags, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::loss::{Loss, LossKind, Reason};

/// The extended attribute that stores a POSIX ACL.
const POSIX_ACL: &[u8] = b"system.posix_acl_access";
/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;

/// The metadata to restore.
#[derive(Debug)]
pub(super) struct Dress {
    path: Vec<u8>,
    attr: Attr,
    xattrs: Vec<Xattr>,
}

/// The file to restore it on.
pub(super) enum Body<'a> {
    /// A file or folder open for reading or writing.
    Open(BorrowedFd<'a>),
    /// Any file, opened with `O_PATH`: addressed through `/proc/self/fd`, which reaches this very file, even
    /// a symbolic link.
    Located(BorrowedFd<'a>),
}

impl Dress {
    /// Reads the metadata not in `attr` from the pool. Unreadable parts are reported to `lost`.
    pub async fn read(
        fs: &Filesystem,
        id: ObjectId,
        attr: Attr,
        path: Vec<u8>,
        lost: &impl Fn(Loss),
    ) -> Dress {
        let tell = |kind, reason| lost(Loss { path: path.clone(), kind, reason });
        let xattrs = match fs.xattrs(id).await {
            Ok(xattrs) => xattrs,
            Err(error) => {
                tell(LossKind::Xattrs, error.into());
                Vec::new()
            }
        };
        match has_own_acl(fs, id, &attr).await {
            Ok(false) => {}
            Ok(true) => tell(LossKind::Acl, Reason::Because("Linux can't store ACLs of this kind")),
            Err(error) => tell(LossKind::Acl, error.into()),
        }
        if attr.project != 0 {
            tell(LossKind::Project, Reason::Because("project numbers are not restored"));
        }
        Dress { path, attr, xattrs }
    }

    /// Sets everything except flags.
    pub fn put_on(&self, body: &Body<'_>, lost: &impl Fn(Loss)) {
        let tell = |kind, reason| lost(Loss { path: self.path.clone(), kind, reason });
        let owner = self.set_owner(body);
        for xattr in &self.xattrs {
            if let Err(errno) = body.set_xattr(&xattr.name, &xattr.value) {
                tell(LossKind::Xattr(xattr.name.to_vec()), errno.into());
            }
        }
        let mut mode = self.attr.permissions();
        if let Err(reason) = owner {
            if mode & SET_ID_BITS != 0 {
                mode &= !SET_ID_BITS;
                tell(LossKind::Mode, Reason::Because("set-id bits are dropped with the owner"));
            }
            tell(LossKind::Owner, reason);
        }
        if self.attr.kind() != FileKind::Symlink
            && let Err(errno) = body.set_mode(Mode::from_raw_mode(mode))
        {
            tell(LossKind::Mode, errno.into());
        }
        // Linux keeps an ACL's mask equal to the mode's group bits. On the pool they can differ; the mode was
        // set last.
        let acl = self.xattrs.iter().find(|xattr| xattr.name == POSIX_ACL);
        if acl.is_some_and(|acl| body.holds(acl) == Some(false)) {
            let why = "the ACL's mask and the mode contradict each other: the mode was kept";
            tell(LossKind::Xattr(POSIX_ACL.into()), Reason::Because(why));
        }
        if let Err(reason) = self.set_times(body) {
            tell(LossKind::Times, reason);
        }
    }

    fn set_owner(&self, body: &Body<'_>) -> Result<(), Reason> {
        let (uid, gid) = self.attr.owner();
        // The upper half of a FUID names a foreign domain, whose users have no number here. -1 means "leave
        // unchanged".
        let foreign = |fuid: u64| fuid >> 32 != 0 || fuid as u32 == u32::MAX;
        if foreign(self.attr.uid) || foreign(self.attr.gid) {
            return Err(Reason::Because("the owner belongs to a foreign domain"));
        }
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        match body.set_owner(Some(uid), Some(gid)) {
            Err(errno) => {
                // Changing only the group may be permitted.
                let _ = body.set_owner(None, Some(gid));
                Err(errno.into())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Sets times and checks that the file system stored them exactly.
    fn set_times(&self, body: &Body<'_>) -> Result<(), Reason> {
        let spec = |t: Timestamp| Timespec { tv_sec: t.seconds, tv_nsec: t.nanoseconds.into() };
        body.set_times(&Timestamps {
            last_access: spec(self.attr.atime),
            last_modification: spec(self.attr.mtime),
        })?;
        let stat = body.stat()?;
        let mtime = self.attr.mtime;
        match (stat.st_mtime, stat.st_mtime_nsec) == (mtime.seconds, mtime.nanoseconds.into()) {
            true => Ok(()),
            false => Err(Reason::Because("the local file system can't store such times")),
        }
    }

    /// Makes it immutable, append-only or nodump, if the source is. `None` for a file that can't be opened
    /// for this.
    pub fn set_flags(&self, file: Option<BorrowedFd<'_>>, lost: &impl Fn(Loss)) {
        let wanted = IFlags::from_bits_truncate(self.attr.linux_flags())
            & (IFlags::IMMUTABLE | IFlags::APPEND | IFlags::NODUMP);
        if wanted.is_empty() {
            return;
        }
        let done = match file {
            Some(file) => rustix::fs::ioctl_getflags(file)
                .and_then(|flags| rustix::fs::ioctl_setflags(file, flags | wanted)),
            None => Err(Errno::OPNOTSUPP),
        };
        if let Err(errno) = done {
            lost(Loss { path: self.path.clone(), kind: LossKind::Flags, reason: errno.into() });
        }
    }
}

/// Whether the ZFS ACL grants more or less than the mode.
async fn has_own_acl(fs: &Filesystem, id: ObjectId, attr: &Attr) -> cenote_fs::Result<bool> {
    if attr.flags & pflags::ACL_TRIVIAL != 0 {
        return Ok(false);
    }
    let acl = fs.acl(id).await?;
    Ok(acl.iter().any(|ace| {
        ace.ace_type > 1 || ace.flags != 0 || matches!(ace.who, AceWho::User(_) | AceWho::Group(_))
    }))
}

impl Body<'_> {
    fn path(fd: &BorrowedFd<'_>) -> String {
        format!("/proc/self/fd/{}", fd.as_raw_fd())
    }

    fn set_owner(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
        match self {
            Body::Open(fd) => rustix::fs::fchown(fd, uid, gid),
            Body::Located(fd) => rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Body::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Body::Located(fd) => rustix::fs::setxattr(Body::path(fd), name, value, XattrFlags::empty()),
        }
    }

    /// Whether the extended attribute exists with this value; `None` if it does not exist.
    fn holds(&self, xattr: &Xattr) -> Option<bool> {
        let mut value = vec![0; xattr.value.len() + 1];
        let len = match self {
            Body::Open(fd) => rustix::fs::fgetxattr(fd, &xattr.name[..], &mut value[..]),
            Body::Located(fd) => rustix::fs::getxattr(Body::path(fd), &xattr.name[..], &mut value[..]),
        };
        match len {
            Ok(len) => Some(value.get(..len) == Some(&xattr.value[..])),
            Err(Errno::RANGE) => Some(false),
            Err(_) => None,
        }
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        match self {
            Body::Open(fd) => rustix::fs::fchmod(fd, mode),
            Body::Located(fd) => rustix::fs::chmod(Body::path(fd), mode),
        }
    }

    fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Body::Open(fd) => rustix::fs::futimens(fd, times),
            Body::Located(fd) => rustix::fs::utimensat(CWD, Body::path(fd), times, AtFlags::empty()),
        }
    }

    fn stat(&self) -> Result<Stat, Errno> {
        match self {
            Body::Open(fd) | Body::Located(fd) => rustix::fs::fstat(fd.as_fd()),
        }
    }
}
