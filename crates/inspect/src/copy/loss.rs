//! Losses: parts of a file that a copy could not preserve.

use std::ops::Range;

use cenote_codec::checksum::ChecksumError;
use cenote_fs::FsError;
use rustix::io::Errno;

use super::folder::Name;

pub(crate) const POSIX_ACL_PREFIX: &[u8] = b"system.posix_acl_";

/// A file, or part of one, missing or different at the destination.
#[derive(Debug, Clone)]
pub struct Loss {
    /// The file: the source's path and the path below it.
    pub path: Vec<u8>,
    /// The lost part.
    pub kind: LossKind,
    /// The cause.
    pub reason: Reason,
}

/// The lost part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LossKind {
    /// The file, or the folder with all contents: nothing was created.
    File,
    /// Ranges of the content: zeros in the copy.
    Content(Vec<Range<u64>>),
    /// Some entries of a folder; which ones is unknown.
    Entries,
    /// A device node, fifo or socket that the destination can't store; it has no content.
    Node,
    /// Its name, which Linux can't store: it has this one instead.
    Name(Name),
    /// The fact that it is one file with several names: this name became a separate file.
    HardLink,
    /// Owner or group.
    Owner,
    /// Permissions, or the set-id bits, which are dropped if the owner could not be set.
    Mode,
    /// Time of last access or change.
    Times,
    /// The extended attribute with this name.
    Xattr(Vec<u8>),
    /// All extended attributes: they could not be read.
    Xattrs,
    /// An NFSv4 ACL.
    Acl,
    /// Flags: immutable, append-only, nodump.
    Flags,
    /// The project number.
    Project,
}

/// Why something is lost.
#[derive(Debug, Clone)]
pub enum Reason {
    /// The pool could not deliver it.
    Pool(FsError),
    /// The destination could not store it.
    System(Errno),
    /// It does not make sense there.
    Because(&'static str),
}

impl Loss {
    /// Whether content or whole files are missing, rather than metadata.
    pub fn is_content(&self) -> bool {
        matches!(self.kind, LossKind::File | LossKind::Content(_) | LossKind::Entries | LossKind::Node)
    }

    /// How many bytes of content are lost, if known.
    pub fn content_bytes(&self) -> u64 {
        match &self.kind {
            LossKind::Content(ranges) => ranges.iter().map(|range| range.end - range.start).sum(),
            _ => 0,
        }
    }

    /// Whether access rights differ: an ACL is missing.
    pub fn is_access(&self) -> bool {
        match &self.kind {
            LossKind::Acl => true,
            LossKind::Xattr(name) => name.starts_with(POSIX_ACL_PREFIX),
            _ => false,
        }
    }

    /// Whether the pool is damaged there.
    pub fn is_damage(&self) -> bool {
        matches!(&self.reason, Reason::Pool(error) if error.is_damage())
    }
}

impl LossKind {
    /// A short phrase for the loss that can follow a count.
    pub fn words(&self) -> &'static str {
        self.one_and_many().1
    }

    /// The phrase with a count: `1 mode`, `2 modes`.
    pub fn counted(&self, count: u64) -> String {
        let (one, many) = self.one_and_many();
        format!("{count} {}", if count == 1 { one } else { many })
    }

    fn one_and_many(&self) -> (&'static str, &'static str) {
        match self {
            LossKind::File => ("not copied", "not copied"),
            LossKind::Content(_) => {
                let words = "with unreadable ranges, zeros in the copy";
                (words, words)
            }
            LossKind::Entries => ("folder with unreadable entries", "folders with unreadable entries"),
            LossKind::Node => {
                ("device node, fifo or socket, not made", "device nodes, fifos or sockets, not made")
            }
            LossKind::Name(_) => ("name, replaced by another", "names, replaced by others"),
            LossKind::HardLink => ("hard link, now a copy", "hard links, now copies"),
            LossKind::Owner => ("owner", "owners"),
            LossKind::Mode => ("mode", "modes"),
            LossKind::Times => ("times", "times"),
            LossKind::Xattr(_) | LossKind::Xattrs => ("extended attribute", "extended attributes"),
            LossKind::Acl => ("NFSv4 ACL", "NFSv4 ACLs"),
            LossKind::Flags => ("flags", "flags"),
            LossKind::Project => ("project number", "project numbers"),
        }
    }
}

impl Reason {
    /// Both checksums of the block that failed verification, if that is the reason.
    pub fn checksums(&self) -> Option<String> {
        let Reason::Pool(error) = self else { return None };
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<ChecksumError>() {
                return error.details();
            }
            cause = error.source();
        }
        None
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
