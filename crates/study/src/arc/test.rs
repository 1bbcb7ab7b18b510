//! The seven tests: inodes made in many directories, and trees copied as rsync does.

use serde::{Serialize, Serializer};

/// Entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// An empty directory.
    Directory,
    /// A file.
    File {
        /// File length.
        bytes: u64,
    },
}

/// One of the seven tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    /// Kind of created inode.
    pub leaf: Leaf,
    /// Copies a tree of these.
    pub is_copy: bool,
}

/// Size of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Inodes per test; a hundredth of that for the largest files.
    pub inodes: u64,
    /// Memory of the cache.
    pub cache_bytes: u64,
}

const EMPTY: Leaf = Leaf::File { bytes: 0 };
const SMALL: Leaf = Leaf::File { bytes: 4 << 10 };
const LARGE: Leaf = Leaf::File { bytes: 4 << 20 };
/// Inodes per directory.
const FAN: u64 = 40;
/// One large file replaces this many inodes.
const LARGE_COST: u64 = 100;

impl Test {
    /// In report order.
    pub const ALL: [Test; 7] = [
        Test { leaf: Leaf::Directory, is_copy: false },
        Test { leaf: EMPTY, is_copy: false },
        Test { leaf: SMALL, is_copy: false },
        Test { leaf: LARGE, is_copy: false },
        Test { leaf: Leaf::Directory, is_copy: true },
        Test { leaf: EMPTY, is_copy: true },
        Test { leaf: SMALL, is_copy: true },
    ];

    /// Number in the report.
    pub fn number(self) -> u8 {
        Test::ALL.iter().position(|test| *test == self).map_or(0, |index| index as u8 + 1)
    }

    /// Description.
    pub fn about(self) -> String {
        let what = match self.leaf {
            Leaf::Directory => "empty directories".to_owned(),
            Leaf::File { bytes: 0 } => "empty files".to_owned(),
            Leaf::File { bytes } => format!("{} KiB files", bytes >> 10),
        };
        match self.is_copy {
            true => format!("Copying a dataset of many {what} as rsync does"),
            false => format!("Creating many {what}"),
        }
    }
}

impl Serialize for Test {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(self.number())
    }
}

impl Scale {
    /// Inodes that a test creates, without their parent directories.
    pub(super) fn inodes_of(self, test: Test) -> u64 {
        if test.leaf == LARGE { self.inodes / LARGE_COST } else { self.inodes }.max(1)
    }

    /// Inodes that a run creates, prepared ones included; for progress.
    pub(super) fn total_of(self, test: Test) -> u64 {
        self.inodes_of(test) * if test.is_copy { 2 } else { 1 }
    }

    pub(super) fn directories(self) -> u64 {
        (self.inodes / FAN).max(1)
    }
}
