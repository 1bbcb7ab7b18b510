//! The blocks that are kept, by address: what is written over takes the place of what was there.

use bytes::Bytes;
use cenote_format::blkptr::Dva;
use cenote_format::units::VdevId;
use parking_lot::Mutex;
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Retained {
    pub(super) blocks: Mutex<Blocks>,
    pub(super) flushing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub(super) struct Blocks {
    pub(super) by_address: BTreeMap<(VdevId, u64), (Dva, Bytes)>,
    pub(super) bytes: u64,
    /// Some device has missed some that are not kept any more.
    pub(super) is_partial: bool,
}

impl Blocks {
    pub(super) fn keep(&mut self, dva: &Dva, bytes: &Bytes) {
        let before = self.by_address.insert((dva.vdev, dva.offset_bytes), (*dva, bytes.clone()));
        self.bytes += bytes.len() as u64;
        self.bytes -= before.map_or(0, |(_, before)| before.len() as u64);
    }

    pub(super) fn forget(&mut self, dva: &Dva) {
        let gone = self.by_address.remove(&(dva.vdev, dva.offset_bytes));
        self.bytes -= gone.map_or(0, |(_, bytes)| bytes.len() as u64);
    }
}
