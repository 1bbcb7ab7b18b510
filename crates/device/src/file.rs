//! Regular files and block devices of the host.

mod open;

pub use open::{Access, OpenOptions};

use crate::error::{DeviceError, Op, Result};
use crate::io::Io;
use crate::{Device, DeviceInfo};
use bytes::Bytes;
use cenote_runtime::Runtime;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A regular file or a block device, opened.
pub struct FileDevice {
    info: DeviceInfo,
    file: Arc<File>,
    runtime: Runtime,
}

impl FileDevice {
    /// Opens a file or block device.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions, runtime: &Runtime) -> Result<FileDevice> {
        let (file, info) = open::open(path.as_ref(), options)?;
        Ok(FileDevice { info, file: Arc::new(file), runtime: runtime.clone() })
    }

    async fn run<T: Send + 'static>(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        call: impl FnOnce(&File) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let file = self.file.clone();
        let outcome = self.runtime.blocking(move || call(&file)).await;
        outcome.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                DeviceError::Short { path: self.info.path.clone(), op, offset, len, done: 0 }
            }
            _ => self.info.io_error(op, offset, len, error),
        })
    }
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<'_, Bytes> {
        if let Err(error) = self.info.check_range(Op::Read, offset, len as u64) {
            return Io::done(Err(error));
        }
        Io::pending(self.run(Op::Read, offset, len as u64, move |file| {
            let mut buffer = vec![0; len];
            file.read_exact_at(&mut buffer, offset)?;
            Ok(Bytes::from(buffer))
        }))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<'_, ()> {
        let len = data.len() as u64;
        if let Err(error) = self.info.check_writable(Op::Write, offset, len) {
            return Io::done(Err(error));
        }
        Io::pending(self.run(Op::Write, offset, len, move |file| file.write_all_at(&data, offset)))
    }

    fn flush(&self) -> Io<'_, ()> {
        Io::pending(self.run(Op::Flush, 0, 0, |file| file.sync_data()))
    }

    fn discard(&self, _offset: u64, _len: u64) -> Io<'_, ()> {
        Io::done(Err(DeviceError::Unsupported { path: self.info.path.clone(), op: Op::Discard }))
    }
}
