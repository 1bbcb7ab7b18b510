//! One regular file: content with its holes, then its dress, then its name.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use cenote_fs::OpenFile;
use rustix::fs::Mode;
use rustix::io::Errno;

use super::content::Pieces;
use super::dress::{Body, Dress};
use super::folder::{Folder, Name};
use super::loss::{Loss, LossKind, Reason};
use super::newfile::NewFile;
use super::{Copier, LARGE_BYTES};

/// A file under way: what is still to be written, and what it is written to.
struct Writer {
    copier: Copier,
    folder: Arc<Folder>,
    mode: Mode,
    /// Made with the first write.
    new: Option<NewFile>,
    batch: Vec<(u64, Bytes)>,
    batched_bytes: u64,
}

/// Copies a file's content to a new file `name` in `folder` and dresses it. What comes back is the content that could not be read.
///
/// # Errors
/// Why no file was made.
pub(super) async fn copy(
    copier: &Copier,
    file: &OpenFile,
    folder: &Arc<Folder>,
    name: &Name,
    path: &[u8],
    dress: Option<Dress>,
) -> Result<Option<Loss>, Reason> {
    let size = file.attr().size;
    let large = size > LARGE_BYTES;
    // The semaphore is never closed.
    let _permit = if large { copier.0.large.acquire().await.ok() } else { None };
    let mode = Mode::from_raw_mode(if dress.is_some() { 0o600 } else { 0o666 });
    let (copier, folder) = (copier.clone(), folder.clone());
    let mut writer =
        Writer { copier: copier.clone(), folder, mode, new: None, batch: Vec::new(), batched_bytes: 0 };
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
    let (name, replace) = (name.clone(), copier.options().replace);
    let runtime = copier.runtime().clone();
    let told = copier.clone();
    runtime.blocking(move || writer.finish(size, &name, replace, dress)).await?;
    told.count(|counters| &counters.files, 1);
    Ok(unreadable.into_loss(path))
}

impl Writer {
    /// Takes bytes, and writes when there are enough.
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

    /// Blocks.
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

    /// Blocks.
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

/// Ranges that could not be read, and why the first of them could not.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    ranges: Vec<Range<u64>>,
    reason: Option<Reason>,
}

impl Unreadable {
    /// Adds a range behind the others.
    pub fn add(&mut self, range: Range<u64>, reason: Reason) {
        match self.ranges.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => self.ranges.push(range),
        }
        self.reason.get_or_insert(reason);
    }

    /// What is lost, if anything is.
    pub fn into_loss(self, path: &[u8]) -> Option<Loss> {
        let kind = LossKind::Content(self.ranges);
        self.reason.map(|reason| Loss { path: path.to_vec(), kind, reason })
    }
}
