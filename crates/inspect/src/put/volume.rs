//! Copies a file, a device or a stream into a volume; holes of the source and the rest of the volume become
//! zeros.
//!
//! Memory: the engine's limit on dirty data, and one piece.
//!
//! Locking: one task copies; others may call [`VolumePutter::stop`] and [`VolumePutter::copied_bytes`], which
//! use relaxed atomics.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_engine::{Engine, Need};
use cenote_fs::VolumeWriter;
use cenote_runtime::AbortOnDrop;

use super::content::{PIECE_BYTES, next_piece, read};
use crate::error::{InspectError, Result};

/// The source of a volume's content.
pub enum VolumeSource {
    /// A file or device, and its size; its known holes are not read.
    File(File, u64),
    /// A stream, read to its end.
    Stream(Box<dyn Read + Send>),
}

/// Changes one volume of a pool. Txgs are synced as they fill.
pub struct VolumePutter {
    engine: Engine,
    volume: Arc<VolumeWriter>,
    /// Txgs are synced while this exists.
    _groups: Arc<AbortOnDrop<()>>,
    bytes: AtomicU64,
    stopped: AtomicBool,
}

impl VolumePutter {
    /// For a volume that other tasks may change, too.
    pub fn new(engine: &Engine, volume: Arc<VolumeWriter>) -> VolumePutter {
        VolumePutter {
            engine: engine.clone(),
            volume,
            _groups: engine.sync_in_background(),
            bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// The volume.
    pub fn volume(&self) -> &VolumeWriter {
        &self.volume
    }

    /// Stops at the next piece.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Bytes copied so far.
    pub fn copied_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Copies `source`; `name` identifies it in errors. Returns whether all was copied: false if the work was
    /// stopped.
    ///
    /// # Errors
    /// The source can't be read or is longer than the volume; the pool has no room.
    #[boxed]
    pub async fn put(&self, source: VolumeSource, name: &str) -> Result<bool> {
        match source {
            VolumeSource::File(file, size_bytes) => self.put_file(Arc::new(file), size_bytes, name).await,
            VolumeSource::Stream(stream) => self.put_stream(stream, name).await,
        }
    }

    async fn put_file(&self, file: Arc<File>, size_bytes: u64, name: &str) -> Result<bool> {
        let mut done = 0;
        while let Some((start, end)) = next_piece(&file, done, size_bytes) {
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(false);
            }
            self.clear(done, start).await?;
            let reader = file.clone();
            let data = self.engine.runtime().blocking(move || read(&reader, start, end)).await;
            let data = data.map_err(InspectError::io(name))?;
            if data.is_empty() {
                break; // it was truncated
            }
            done = start + data.len() as u64;
            self.write(start, data).await?;
        }
        self.clear(done, self.volume.size_bytes()).await?;
        Ok(true)
    }

    async fn put_stream(&self, mut stream: Box<dyn Read + Send>, name: &str) -> Result<bool> {
        let mut done = 0;
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let fill = move || {
                let mut data = Vec::with_capacity(PIECE_BYTES as usize);
                stream.by_ref().take(PIECE_BYTES).read_to_end(&mut data).map(|_| (stream, Bytes::from(data)))
            };
            let data;
            (stream, data) = self.engine.runtime().blocking(fill).await.map_err(InspectError::io(name))?;
            if data.is_empty() {
                break;
            }
            let start = done;
            done += data.len() as u64;
            self.write(start, data).await?;
        }
        self.clear(done, self.volume.size_bytes()).await?;
        Ok(true)
    }

    async fn write(&self, start: u64, data: Bytes) -> Result<()> {
        let (len, volume) = (data.len() as u64, self.volume.clone());
        let write = move |edit| async move { volume.write(&edit, start, data).await };
        self.engine.change(self.volume.live(), Need::Write(len), write).await?;
        self.bytes.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    async fn clear(&self, start: u64, end: u64) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        // Partial blocks at both edges may have to be written.
        let need = Need::Write(2 * self.volume.block_bytes());
        let volume = self.volume.clone();
        let clear = move |edit| async move { volume.write_zeros(&edit, start..end).await };
        Ok(self.engine.change(self.volume.live(), need, clear).await?)
    }
}
