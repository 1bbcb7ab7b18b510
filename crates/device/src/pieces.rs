//! Ranges that follow each other, in one operation: what a device does that has no better way.
//!
//! Devices that move bytes straight to and from several buffers do so instead (`file`); these copy.

use bytes::{Bytes, BytesMut};

use crate::Device;
use crate::io::Io;

/// Reads all of them at once, and cuts that.
pub(crate) fn read<D: Device + ?Sized>(device: &D, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
    device.read_at(offset, lens.iter().sum()).map(move |whole| {
        let whole = whole?;
        let mut at = 0;
        let piece = |len: usize| {
            at += len;
            // One of its own: a slice would keep all of them in memory.
            Bytes::copy_from_slice(&whole[at - len..at])
        };
        Ok(lens.into_iter().map(piece).collect())
    })
}

/// Joins them, and writes that.
pub(crate) fn write<D: Device + ?Sized>(device: &D, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
    device.write_at(offset, whole.freeze())
}
