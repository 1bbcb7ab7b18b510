//! The location of `/proc` and `/sys`: under `/`, or in a folder with a recording.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folder that holds `proc` and `sys`. Paths passed to it have no leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    /// This machine.
    fn default() -> Root {
        Root("/".into())
    }
}

impl Root {
    /// A folder with recorded pseudo files.
    pub fn at(folder: impl Into<PathBuf>) -> Root {
        Root(folder.into())
    }

    /// Full path of a file.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// Content of a file as text.
    ///
    /// # Errors
    /// Absent or unreadable.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<String> {
        // Names in the kernel's tables may contain any bytes.
        fs::read(self.path(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Content of a single-value file; None if absent or empty.
    pub fn word(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = self.read(path).ok()?;
        let word = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!word.is_empty()).then(|| word.to_owned())
    }

    /// Number in a single-value file.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.word(path)?.parse().ok()
    }

    /// Names in a folder, sorted; none without a folder.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Final target of a symbolic link.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        fs::canonicalize(self.path(path)).ok()
    }
}
