//! Copies content in pieces, leaving out holes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cenote_engine::Need;
use cenote_format::units::ObjectId;
use cenote_fs::FsError;
use cenote_fs::write::SetAttr;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::host::HostFile;
use super::{Putter, Reason};
use crate::copy::LossKind;
use crate::error::Result;

/// Bytes read and written at once. Pieces start at multiples of this, so blocks up to this size are written
/// whole.
pub(super) const PIECE_BYTES: u64 = 1 << 20;

impl Putter {
    /// Copies a file's content into a new, empty file. Returns whether it is complete.
    pub(super) async fn put_host_content(
        &self,
        source: &HostFile,
        path: &Path,
        object: ObjectId,
    ) -> Result<bool> {
        let size = source.stat.st_size.cast_unsigned();
        if size == 0 {
            return Ok(true);
        }
        let told = |reason: Reason| {
            self.lost(path, LossKind::File, reason);
            Ok(false)
        };
        let file = match source.file() {
            Ok(file) => Arc::new(file),
            Err(errno) => return told(errno.into()),
        };
        // Set the size first, so that blocks have their final size from the start.
        let whole = SetAttr { size: Some(size), ..SetAttr::default() };
        if let Err(error) = self.set_attr(object, whole).await {
            return told(error.into());
        }
        let mut at = 0;
        while let Some((start, end)) = next_piece(&file, at, size) {
            if self.is_stopped() {
                return Ok(false);
            }
            let reader = file.clone();
            let read = self.engine.runtime().blocking(move || read(&reader, start, end)).await;
            let data = match read {
                Ok(data) => data,
                Err(error) => return told(Errno::from_io_error(&error).unwrap_or(Errno::IO).into()),
            };
            if data.is_empty() {
                break; // it was truncated
            }
            let len = data.len() as u64;
            match self.write(object, start, data).await {
                Ok(()) => {}
                Err(FsError::Dataset(error)) => match self.full(&error) {
                    Some(full) => return Err(full),
                    None => return told(FsError::from(error).into()),
                },
                Err(error) => return told(error.into()),
            }
            self.count(|counters| &counters.bytes, len);
            at = start + len;
        }
        Ok(true)
    }

    pub(super) async fn write(&self, object: ObjectId, start: u64, data: Bytes) -> cenote_fs::Result<()> {
        let need = Need::Write(data.len() as u64);
        self.change_with(need, move |fs, change| fs.write(change, object, start, data)).await
    }
}

/// The next range not a hole, up to the end of a piece.
pub(super) fn next_piece(file: &File, at: u64, size: u64) -> Option<(u64, u64)> {
    if at >= size {
        return None;
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return None,
        // The file system does not report holes.
        Err(_) => at,
    };
    let hole = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
    let piece = (start / PIECE_BYTES + 1) * PIECE_BYTES;
    (start < hole).then(|| (start, hole.min(piece)))
}

pub(super) fn read(file: &File, start: u64, end: u64) -> std::io::Result<Bytes> {
    let mut data = vec![0; (end - start) as usize];
    let mut done = 0;
    while done < data.len() {
        match file.read_at(&mut data[done..], start + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    data.truncate(done);
    Ok(data.into())
}
