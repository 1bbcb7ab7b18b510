//! What a copy could not keep.

use std::ops::Range;

use cenote_fs::FsError;
use rustix::io::Errno;

/// Something that is not, or not quite, at the destination.
#[derive(Debug, Clone)]
pub struct Loss {
    /// Of which file: the source's path and what is below it.
    pub path: Vec<u8>,
    /// What is lost.
    pub kind: LossKind,
    /// Why.
    pub reason: Reason,
}

/// What is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LossKind {
    /// The file, or the folder with all in it: nothing was made.
    File,
    /// Ranges of the content: zeros in the copy.
    Content(Vec<Range<u64>>),
    /// Some entries of a folder: nobody knows which.
    Entries,
    /// That this is one file with several names: it became one of its own.
    HardLink,
    /// Owner or group.
    Owner,
    /// Permissions, or the set-id bits, which are dropped where the owner could not be kept.
    Mode,
    /// Time of last access or change.
    Times,
    /// An extended attribute of this name.
    Xattr(Vec<u8>),
    /// All extended attributes: they could not be read.
    Xattrs,
    /// An access control list of the NFSv4 kind.
    Acl,
    /// Flags: immutable, append-only, nodump.
    Flags,
    /// The project number.
    Project,
}

/// Why something is lost.
#[derive(Debug, Clone)]
pub enum Reason {
    /// The pool could not give it.
    Pool(FsError),
    /// The destination could not take it.
    System(Errno),
    /// It makes no sense there.
    Because(&'static str),
}

impl Loss {
    /// Content or files are missing, as opposed to something about them.
    pub fn is_content(&self) -> bool {
        matches!(self.kind, LossKind::File | LossKind::Content(_) | LossKind::Entries)
    }

    /// The pool is damaged there.
    pub fn is_damage(&self) -> bool {
        matches!(&self.reason, Reason::Pool(error) if error.is_damage())
    }
}

impl LossKind {
    /// What is lost, in a few words that a count can precede.
    pub fn words(&self) -> &'static str {
        match self {
            LossKind::File => "not copied",
            LossKind::Content(_) => "with unreadable ranges, zeros in the copy",
            LossKind::Entries => "folders with unreadable entries",
            LossKind::HardLink => "hard links, now copies",
            LossKind::Owner => "owners",
            LossKind::Mode => "modes",
            LossKind::Times => "times",
            LossKind::Xattr(_) | LossKind::Xattrs => "extended attributes",
            LossKind::Acl => "NFSv4 ACLs",
            LossKind::Flags => "flags",
            LossKind::Project => "project numbers",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Pool(error) => error.fmt(f),
            Reason::System(errno) => errno.fmt(f),
            Reason::Because(why) => f.write_str(why),
        }
    }
}

impl From<FsError> for Reason {
    fn from(error: FsError) -> Reason {
        Reason::Pool(error)
    }
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Reason {
        Reason::System(errno)
    }
}
