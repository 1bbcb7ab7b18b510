//! Copies a volume's content to a file, a device or a stream.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_fs::Volume;
use rustix::fs::{FallocateFlags, Mode};
use rustix::io::Errno;

use super::account::Standing;
use super::content::{Pieces, write_zeros};
use super::file::Unreadable;
use super::folder::{Folder, Name};
use super::loss::Reason;
use super::newfile::{NewFile, errno};
use super::{Copier, LARGE_BYTES};

/// The destination of a volume.
pub enum VolumeSink {
    /// A new file with this name, sparse where the volume is.
    File(Folder, Name),
    /// An open block device: holes are written as zeros, by the device itself if it can.
    Device(File),
    /// A stream: holes are written as zeros.
    Stream(Box<dyn Write + Send>),
}

/// The same, while being written.
enum Target {
    File(NewFile),
    Device(File),
    Stream(Box<dyn Write + Send>),
}

impl Copier {
    /// Copies a volume. If the options allow zeros, an unreadable range is a loss.
    ///
    /// # Errors
    /// The copy is incomplete: the destination failed, or a block is unreadable and zeros are not allowed.
    #[boxed]
    pub async fn copy_volume(&self, volume: &Volume, path: &[u8], sink: VolumeSink) -> Result<(), Reason> {
        let mut standing = Standing::Free;
        let (mut target, name) = match sink {
            VolumeSink::File(folder, name) => {
                standing = self.standing(&folder, &name, path);
                if standing == Standing::Stays {
                    return Err(Errno::EXIST.into());
                }
                let new = NewFile::create(Arc::new(folder), Mode::from_raw_mode(0o666))?;
                (Target::File(new), Some(name))
            }
            VolumeSink::Device(file) => (Target::Device(file), None),
            VolumeSink::Stream(stream) => (Target::Stream(stream), None),
        };
        let mut unreadable = Unreadable::default();
        let mut pieces = Pieces::of_volume(volume);
        let mut batch = Vec::new();
        let mut batched_bytes = 0;
        while let Some(piece) = pieces.next().await {
            let (offset, len) = (piece.range.start, piece.range.end - piece.range.start);
            let data = match piece.data {
                Ok(data) => data,
                Err(error) if self.options().partial => {
                    unreadable.add(piece.range, error.into());
                    None
                }
                Err(error) => return Err(error.into()),
            };
            batched_bytes += data.as_ref().map_or(0, |bytes| bytes.len() as u64);
            batch.push((offset, len, data));
            if batched_bytes >= LARGE_BYTES {
                target = self.write_batch(target, std::mem::take(&mut batch)).await?;
                batched_bytes = 0;
            }
        }
        target = self.write_batch(target, batch).await?;
        let (size, replace) = (volume.size_bytes(), standing.replace(unreadable.bytes())?);
        match unreadable.into_loss(path) {
            // Before the file appears, so that zeros are never mistaken for content.
            Some(loss) => {
                self.noted(loss)?;
                self.runtime().blocking(move || target.finish(size, name, replace)).await?;
            }
            None => {
                self.runtime().blocking(move || target.finish(size, name, replace)).await?;
                self.whole(path);
            }
        }
        Ok(())
    }

    async fn write_batch(
        &self,
        mut target: Target,
        batch: Vec<(u64, u64, Option<Bytes>)>,
    ) -> Result<Target, Errno> {
        let copier = self.clone();
        self.runtime()
            .blocking(move || {
                for (offset, len, data) in batch {
                    target.write(offset, len, data.as_deref())?;
                    copier.count(|counters| &counters.bytes, data.map_or(0, |bytes| bytes.len() as u64));
                }
                Ok(target)
            })
            .await
    }
}

impl Target {
    /// Writes a piece, or zeros. Pieces arrive in order and without gaps.
    fn write(&mut self, offset: u64, len: u64, data: Option<&[u8]>) -> Result<(), Errno> {
        match (self, data) {
            (Target::File(new), Some(bytes)) => new.write(offset, bytes),
            (Target::File(_), None) => Ok(()),
            (Target::Device(file), Some(bytes)) => file.write_all_at(bytes, offset).map_err(errno),
            (Target::Device(file), None) => {
                let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                if rustix::fs::fallocate(&*file, flags, offset, len).is_ok() {
                    return Ok(());
                }
                let mut at = offset;
                write_zeros(len, |part| {
                    file.write_all_at(part, at)?;
                    at += part.len() as u64;
                    Ok(())
                })
                .map_err(errno)
            }
            (Target::Stream(stream), Some(bytes)) => stream.write_all(bytes).map_err(errno),
            (Target::Stream(stream), None) => write_zeros(len, |part| stream.write_all(part)).map_err(errno),
        }
    }

    fn finish(self, size: u64, name: Option<Name>, replace: bool) -> Result<(), Errno> {
        match (self, name) {
            (Target::File(new), Some(name)) => {
                new.set_len(size)?;
                new.publish(&name, replace).map(|_| ())
            }
            (Target::File(_), None) => Ok(()),
            (Target::Device(file), _) => file.sync_all().map_err(errno),
            (Target::Stream(mut stream), _) => stream.flush().map_err(errno),
        }
    }
}

impl VolumeSink {
    /// An open block device.
    ///
    /// # Errors
    /// It is smaller than `size_bytes`.
    pub fn device(mut file: File, size_bytes: u64) -> std::io::Result<VolumeSink> {
        use std::io::{Error, ErrorKind, Seek, SeekFrom};
        let room = file.seek(SeekFrom::End(0))?;
        if room < size_bytes {
            let text = format!("the device holds {room} bytes, the volume {size_bytes}");
            return Err(Error::new(ErrorKind::StorageFull, text));
        }
        Ok(VolumeSink::Device(file))
    }
}
