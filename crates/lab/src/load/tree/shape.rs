//! The leaves of a tree, and the position of each.
//!
//! ```text
//! leaf 1234567, 100 per folder, depth 2:   folder 12345 = 192 * 64 + 57   ──>   d192/d57/000012d687kQz
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::load::workload::random::Random;

/// Sub-folders per folder; the topmost level has as many as necessary.
const FAN_OUT: u64 = 64;
/// Most letters in a name.
const LETTERS: u64 = 12;

/// Kind of leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaf {
    /// Empty folders.
    Folder,
    /// Files.
    File {
        /// Size of each file.
        bytes: u64,
    },
}

/// Names of leaves in bonnie's style: ten hexadecimal digits and up to twelve letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// Digits first: names are in order.
    Sequential,
    /// Letters first: names are unordered.
    Random,
}

/// A tree, without its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Kind of leaves.
    pub leaf: Leaf,
    /// Number of leaves; a step with a time limit may create fewer.
    pub count: u64,
    /// Leaves per folder.
    pub per_folder: u32,
    /// Levels of folders above the leaves; 0 puts all leaves into one folder.
    pub depth: u32,
    /// Names of leaves.
    pub names: Names,
    /// Seed of names and content.
    pub seed: u64,
}

impl Shape {
    /// Folder of a leaf.
    pub fn folder_of(&self, leaf: u64) -> u64 {
        if self.depth == 0 { 0 } else { leaf / u64::from(self.per_folder.max(1)) }
    }

    /// Number of folders for this many leaves.
    pub fn folders(&self, leaves: u64) -> u64 {
        if leaves == 0 { 0 } else { self.folder_of(leaves - 1) + 1 }
    }

    /// Path of a folder.
    pub fn folder_path(&self, root: &Path, folder: u64) -> PathBuf {
        self.folder_above(root, folder, self.depth)
    }

    /// Path of folder number `folder` of `level` (`depth` is the lowest level, 1 the topmost).
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

    /// Number of the parent folder, if this is its first sub-folder.
    pub fn first_of(&self, folder: u64) -> Option<u64> {
        folder.is_multiple_of(FAN_OUT).then_some(folder / FAN_OUT)
    }

    /// Writes a leaf's name to `name`.
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
            // Writing to a string cannot fail.
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
