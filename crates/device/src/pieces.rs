//! Consecutive ranges in one operation, by copying, for devices without a direct way (`file` has one).

use bytes::{Bytes, BytesMut};

use crate::Device;
use crate::io::Io;

pub(crate) fn read<D: Device + ?Sized>(device: &D, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
    device.read_at(offset, lens.iter().sum()).map(move |whole| {
        let whole = whole?;
        let mut at = 0;
        let piece = |len: usize| {
            at += len;
            // A copy: a slice would keep all in memory.
            Bytes::copy_from_slice(&whole[at - len..at])
        };
        Ok(lens.into_iter().map(piece).collect())
    })
}

pub(crate) fn write<D: Device + ?Sized>(device: &D, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
    device.write_at(offset, whole.freeze())
}
