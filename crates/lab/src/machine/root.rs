//! Where `/proc` and `/sys` are: under `/`, or under a folder that somebody recorded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder that holds `proc` and `sys`. Paths given to it have no slash in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    /// This machine's.
    fn default() -> Root {
        Root("/".into())
    }
}

impl Root {
    /// A folder with recorded pseudo files.
    pub fn at(folder: impl Into<PathBuf>) -> Root {
        Root(folder.into())
    }

    /// Where a file is.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// All of a file, as text.
    ///
    /// # Errors
    /// It is not there or can't be read.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<String> {
        // Names in the kernel's tables may be any bytes.
        fs::read(self.path(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What a file of one value says; None if there is none or it is empty.
    pub fn word(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = self.read(path).ok()?;
        let word = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!word.is_empty()).then(|| word.to_owned())
    }

    /// The number that a file of one value holds.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.word(path)?.parse().ok()
    }

    /// Names in a folder, sorted; none if there is no such folder.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Where a symbolic link leads, in the end.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        fs::canonicalize(self.path(path)).ok()
    }
}
