//! Copies one regular file: content with holes, then metadata, then its name.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use cenote_fs::OpenFile;
use rustix::fs::Mode;
use rustix::io::Errno;

use super::account::Standing;
use super::content::Pieces;
use super::dress::{Body, Dress};
use super::folder::{Folder, Name};
use super::loss::{Loss, LossKind, Reason};
use super::newfile::NewFile;
use super::{Copier, LARGE_BYTES};

/// A file being copied: buffered bytes and the new file.
struct Writer {
    copier: Copier,
    folder: Arc<Folder>,
    mode: Mode,
    /// Created by the first write.
    new: Option<NewFile>,
    batch: Vec<(u64, Bytes)>,
    batched_bytes: u64,
}

/// Copies a file's content to a new file `name` in `folder` and sets its metadata. Returns the unreadable
/// content, which is already reported.
///
/// # Errors
/// Why no file was created.
pub(super) async fn copy(
    copier: &Copier,
    file: &OpenFile,
    folder: &Arc<Folder>,
    name: &Name,
    path: &[u8],
    dress: Option<Dress>,
) -> Result<Option<Loss>, Reason> {
    let standing = copier.standing(folder, name, path);
    if standing == Standing::Stays {
        return Err(Errno::EXIST.into());
    }
    let size = file.attr().size;
    let large = size > LARGE_BYTES;
    // The semaphore is never closed.
    let _permit = if large { copier.shared.large.acquire().await.ok() } else { None };
    let mode = Mode::from_raw_mode(if dress.is_some() { 0o600 } else { 0o666 });
    let mut writer = Writer {
        copier: copier.clone(),
        folder: folder.clone(),
        mode,
        new: None,
        batch: Vec::new(),
        batched_bytes: 0,
    };
    let mut pieces = Pieces::of_file(file, 0..size);
    let mut unreadable = Unreadable::default();
    while let Some(piece) = pieces.next().await {
        match piece.data {
            Ok(None) => {}
            Ok(Some(bytes)) => writer = writer.add(piece.range.start, bytes).await?,
            Err(error) if copier.options().partial => unreadable.add(piece.range, error.into()),
            Err(error) => return Err(error.into()),
        }
    }
    let replace = standing.replace(unreadable.bytes())?;
    let lost = unreadable.into_loss(path);
    // Before the file appears, so that zeros are never mistaken for content.
    lost.iter().try_for_each(|loss| copier.noted(loss.clone()))?;
    let name = name.clone();
    let runtime = copier.runtime().clone();
    runtime.blocking(move || writer.finish(size, &name, replace, dress)).await?;
    copier.count(|counters| &counters.files, 1);
    if lost.is_none() {
        copier.whole(path);
    }
    Ok(lost)
}

impl Writer {
    /// Buffers bytes, and writes when there are enough.
    async fn add(mut self, offset: u64, bytes: Bytes) -> Result<Writer, Errno> {
        self.batched_bytes += bytes.len() as u64;
        self.batch.push((offset, bytes));
        if self.batched_bytes < LARGE_BYTES {
            return Ok(self);
        }
        let runtime = self.copier.runtime().clone();
        runtime
            .blocking(move || {
                self.write()?;
                Ok(self)
            })
            .await
    }

    /// Writes the buffer. Blocks the thread.
    fn write(&mut self) -> Result<&NewFile, Errno> {
        let new = match self.new.take() {
            Some(new) => new,
            None => NewFile::create(self.folder.clone(), self.mode)?,
        };
        for (offset, bytes) in self.batch.drain(..) {
            new.write(offset, &bytes)?;
            self.copier.count(|counters| &counters.bytes, bytes.len() as u64);
        }
        self.batched_bytes = 0;
        Ok(self.new.insert(new))
    }

    /// Writes the rest and publishes the file. Blocks the thread.
    fn finish(mut self, size: u64, name: &Name, replace: bool, dress: Option<Dress>) -> Result<(), Errno> {
        let copier = self.copier.clone();
        let lost = |loss| copier.lost(loss);
        let new = self.write()?;
        new.set_len(size)?;
        if let Some(dress) = &dress {
            dress.put_on(&Body::Open(new.file().as_fd()), &lost);
        }
        let Some(new) = self.new.take() else { return Ok(()) };
        let file = new.publish(name, replace)?;
        if let Some(dress) = &dress {
            dress.set_flags(Some(file.as_fd()), &lost);
        }
        Ok(())
    }
}

/// Unreadable ranges, and the error of the first.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    ranges: Vec<Range<u64>>,
    reason: Option<Reason>,
}

impl Unreadable {
    /// Adds a range after the others.
    pub fn add(&mut self, range: Range<u64>, reason: Reason) {
        match self.ranges.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => self.ranges.push(range),
        }
        self.reason.get_or_insert(reason);
    }

    /// Their total length.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// The loss, if any.
    pub fn into_loss(self, path: &[u8]) -> Option<Loss> {
        let kind = LossKind::Content(self.ranges);
        self.reason.map(|reason| Loss { path: path.to_vec(), kind, reason })
    }
}
