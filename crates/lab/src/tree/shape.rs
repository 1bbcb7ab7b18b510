//! Which leaves a tree has, and where each is.
//!
//! ```text
//! leaf 1234567, 100 in a folder, depth 2:   folder 12345 = 192 * 64 + 57   ──>   d192/d57/000012d687kQz
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::workload::random::Random;

/// How many folders a folder has, but for the topmost level, which has as many as it takes.
const FAN_OUT: u64 = 64;
/// At most so many letters in a name.
const LETTERS: u64 = 12;

/// What the leaves of a tree are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaf {
    /// Empty folders.
    Folder,
    /// Files.
    File {
        /// Their size.
        bytes: u64,
    },
}

/// Names of leaves, as bonnie makes them: ten hexadecimal digits and up to twelve letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// Digits first: names come in order.
    Sequential,
    /// Letters first: names come in any order.
    Random,
}

/// A tree: everything about it but where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// What its leaves are.
    pub leaf: Leaf,
    /// How many leaves there are; a step with a time limit may make fewer.
    pub count: u64,
    /// Leaves in a folder.
    pub per_folder: u32,
    /// Levels of folders above the leaves; 0 puts all leaves into one folder.
    pub depth: u32,
    /// Names of leaves.
    pub names: Names,
    /// Seed of names and content.
    pub seed: u64,
}

impl Shape {
    /// Which folder the leaf is in.
    pub fn folder_of(&self, leaf: u64) -> u64 {
        if self.depth == 0 { 0 } else { leaf / u64::from(self.per_folder.max(1)) }
    }

    /// How many folders hold so many leaves.
    pub fn folders(&self, leaves: u64) -> u64 {
        if leaves == 0 { 0 } else { self.folder_of(leaves - 1) + 1 }
    }

    /// Where a folder is.
    pub fn folder_path(&self, root: &Path, folder: u64) -> PathBuf {
        self.folder_above(root, folder, self.depth)
    }

    /// Where the folder of `level` is (`depth` the lowest, 1 the topmost) that has the number `folder` among those of its level.
    pub fn folder_above(&self, root: &Path, folder: u64, level: u32) -> PathBuf {
        let mut numbers = Vec::with_capacity(level as usize);
        let mut rest = folder;
        for _ in 1..level {
            numbers.push(rest % FAN_OUT);
            rest /= FAN_OUT;
        }
        numbers.extend((level > 0).then_some(rest));
        let mut path = root.to_owned();
        path.extend(numbers.iter().rev().map(|number| format!("d{number}")));
        path
    }

    /// The folder above this one, by number, if this one is the first in it.
    pub fn first_of(&self, folder: u64) -> Option<u64> {
        folder.is_multiple_of(FAN_OUT).then_some(folder / FAN_OUT)
    }

    /// A leaf's name, put into `name`.
    pub fn name(&self, leaf: u64, name: &mut String) {
        name.clear();
        let letters = |name: &mut String| {
            let mut random = Random::new(self.seed, leaf);
            for _ in 0..random.below(LETTERS + 1) {
                let letter = random.below(52) as u8;
                name.push(char::from(if letter < 26 { b'a' + letter } else { b'A' + letter - 26 }));
            }
        };
        let digits = |name: &mut String| {
            // Writing to a string can't fail.
            let _ = write!(name, "{leaf:010x}");
        };
        match self.names {
            Names::Sequential => {
                digits(name);
                letters(name);
            }
            Names::Random => {
                letters(name);
                digits(name);
            }
        }
    }
}

impl Shape {
    /// Bytes of each leaf.
    pub fn bytes(&self) -> u64 {
        match self.leaf {
            Leaf::Folder => 0,
            Leaf::File { bytes } => bytes,
        }
    }
}
