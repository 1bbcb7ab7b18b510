//! A partition as a device: a window onto part of another device.

use bytes::Bytes;
use cenote_device::{Device, DeviceInfo, Io, Op, TellFenced};
use std::sync::Arc;

pub(super) struct WindowDevice {
    info: DeviceInfo,
    base: Arc<dyn Device>,
    start_bytes: u64,
}

impl WindowDevice {
    /// Cut at the end of a truncated disk; `None` if empty.
    pub(super) fn new(
        base: Arc<dyn Device>,
        number: usize,
        start_bytes: u64,
        size_bytes: u64,
    ) -> Option<Self> {
        let size_bytes = size_bytes.min(base.size_bytes().checked_sub(start_bytes)?);
        if size_bytes == 0 {
            return None;
        }
        let path = format!("{}#{number}", base.describe()).into();
        let info = DeviceInfo { path, size_bytes, ..base.info().clone() };
        Some(WindowDevice { info, base, start_bytes })
    }
}

impl Device for WindowDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        match self.info.check_range(Op::Read, offset, len as u64) {
            Ok(()) => self.base.read_at(self.start_bytes + offset, len),
            Err(error) => Io::done(Err(error)),
        }
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        match self.info.check_writable(Op::Write, offset, data.len() as u64) {
            Ok(()) => self.base.write_at(self.start_bytes + offset, data),
            Err(error) => Io::done(Err(error)),
        }
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        match self.info.check_writable(Op::Write, offset, data.len() as u64) {
            Ok(()) => self.base.write_through(self.start_bytes + offset, data),
            Err(error) => Io::done(Err(error)),
        }
    }

    fn flush(&self) -> Io<()> {
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        match self.info.check_writable(Op::Discard, offset, len) {
            Ok(()) => self.base.discard(self.start_bytes + offset, len),
            Err(error) => Io::done(Err(error)),
        }
    }

    fn is_there(&self) -> Io<bool> {
        self.base.is_there()
    }

    fn on_fenced(&self, tell: TellFenced) {
        self.base.on_fenced(tell);
    }
}
