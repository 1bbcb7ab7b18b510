//! The list written by a scan: size and path of each file, in the format of `stat --printf '%s %n\0'`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::Entry;
use crate::{LabError, Result};

/// Bytes that a worker writes at once.
const WRITE_BYTES: usize = 128 << 10;

/// One worker's part of the list; all append whole entries to the same file.
#[derive(Debug, Clone)]
pub struct ListWriter {
    file: Arc<Mutex<File>>,
    root: Vec<u8>,
    buffer: Vec<u8>,
}

impl ListWriter {
    /// Creates the file; paths start with `root`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(file: &Path, root: &Path) -> Result<ListWriter> {
        let made = File::create(file).map_err(LabError::io(file.display().to_string()))?;
        let mut root = root.as_os_str().as_encoded_bytes().to_vec();
        root.push(b'/');
        Ok(ListWriter { file: Arc::new(Mutex::new(made)), root, buffer: Vec::with_capacity(WRITE_BYTES) })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, entry: &Entry<'_>) -> Result<()> {
        let buffer = &mut self.buffer;
        buffer.extend_from_slice(itoa::Buffer::new().format(entry.stat.stx_size).as_bytes());
        buffer.push(b' ');
        buffer.extend_from_slice(&self.root);
        buffer.extend_from_slice(entry.folder);
        if !entry.folder.is_empty() {
            buffer.push(b'/');
        }
        buffer.extend_from_slice(entry.name);
        buffer.push(0);
        if buffer.len() + 8192 > WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes buffered entries.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(|e| e.into_inner());
        file.write_all(&self.buffer).map_err(LabError::io("list of files"))?;
        self.buffer.clear();
        Ok(())
    }
}
