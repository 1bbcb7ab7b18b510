//! virtio-blk requests and configuration. All integers are little-endian.
//!
//! ```text
//!   readable: | type, 4 | reserved, 4 | sector, 8 | data to write, or segments, 16 bytes each |
//!   writable: | data that was read, or the serial number | status, 1 |
//! ```

use std::ops::Range;

use bytes::BufMut;
use cenote_disk::Disk;

/// Unit of offsets and lengths.
pub const SECTOR_BYTES: u64 = 512;
/// Size of a header.
pub const HEADER_BYTES: usize = 16;
/// Most data per request.
pub const DATA_BYTES_MAX: usize = 32 << 20;
/// Queues, so that vCPUs need not share one.
pub const QUEUES: u16 = 4;
/// Descriptors per queue.
pub const QUEUE_SIZE: u16 = 256;
/// Most segments per DISCARD or WRITE ZEROES.
pub const SEGMENTS_MAX: usize = 32;
/// Most sectors per segment: 1 GiB.
const SEGMENT_SECTORS_MAX: u32 = 1 << 21;
const SEGMENT_BYTES: usize = 16;

/// Feature bit numbers of virtio-blk.
mod feature {
    pub const SEG_MAX: u64 = 2;
    pub const RO: u64 = 5;
    pub const BLK_SIZE: u64 = 6;
    pub const FLUSH: u64 = 9;
    pub const TOPOLOGY: u64 = 10;
    pub const MQ: u64 = 12;
    pub const DISCARD: u64 = 13;
    pub const WRITE_ZEROES: u64 = 14;
    pub const RING_INDIRECT_DESC: u64 = 28;
    pub const RING_EVENT_IDX: u64 = 29;
    /// `VHOST_USER_F_PROTOCOL_FEATURES`
    pub const PROTOCOL_FEATURES: u64 = 30;
    pub const VERSION_1: u64 = 32;
}

/// Status of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// `VIRTIO_BLK_S_OK`
    Ok = 0,
    /// `VIRTIO_BLK_S_IOERR`
    IoError = 1,
    /// `VIRTIO_BLK_S_UNSUPP`
    Unsupported = 2,
}

/// A request. Ranges are unchecked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reads from an offset, to fill the buffers.
    Read(u64),
    /// Writes at an offset.
    Write(u64),
    /// Makes writes durable.
    Flush,
    /// Reads the serial number.
    Id,
    /// Frees segments.
    Discard,
    /// Zeroes segments.
    Zero,
    /// Unsupported.
    Unknown,
}

impl Request {
    /// Parses a header.
    pub fn parse(header: &[u8; HEADER_BYTES]) -> Request {
        let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let sector = header[8..].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        // Saturates: an overflow stays out of range.
        let offset = sector.saturating_mul(SECTOR_BYTES);
        match kind {
            0 => Request::Read(offset),
            1 => Request::Write(offset),
            4 => Request::Flush,
            8 => Request::Id,
            11 => Request::Discard,
            13 => Request::Zero,
            _ => Request::Unknown,
        }
    }
}

/// A request's bytes; `None` unless whole sectors within the disk.
pub fn range(disk: &dyn Disk, offset: u64, len: u64) -> Option<Range<u64>> {
    let end = offset.checked_add(len)?;
    (len.is_multiple_of(SECTOR_BYTES) && end <= disk.size_bytes()).then_some(offset..end)
}

/// Ranges of DISCARD or WRITE ZEROES; `None` if one is invalid.
pub fn segments(disk: &dyn Disk, data: &[u8]) -> Option<Vec<Range<u64>>> {
    let (segments, []) = data.as_chunks::<SEGMENT_BYTES>() else { return None };
    if segments.is_empty() || segments.len() > SEGMENTS_MAX {
        return None;
    }
    let range_of = |segment: &[u8; SEGMENT_BYTES]| {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let offset = number(&segment[..8]).checked_mul(SECTOR_BYTES)?;
        range(disk, offset, number(&segment[8..12]) * SECTOR_BYTES)
    };
    segments.iter().map(range_of).collect()
}

/// Features of disk and rings.
pub fn features(disk: &dyn Disk) -> u64 {
    use feature::*;
    let always = [
        SEG_MAX,
        BLK_SIZE,
        FLUSH,
        TOPOLOGY,
        MQ,
        RING_INDIRECT_DESC,
        RING_EVENT_IDX,
        PROTOCOL_FEATURES,
        VERSION_1,
    ];
    let changing: &[u64] = if disk.is_read_only() { &[RO] } else { &[DISCARD, WRITE_ZEROES] };
    always.iter().chain(changing).fold(0, |all, bit| all | 1 << bit)
}

/// `struct virtio_blk_config`.
pub fn config(disk: &dyn Disk) -> Vec<u8> {
    let block_sectors = (u64::from(disk.block_bytes()) / SECTOR_BYTES).max(1) as u32;
    let mut config = Vec::with_capacity(60);
    config.put_u64_le(disk.size_bytes() / SECTOR_BYTES);
    // size_max; seg_max: header and status take two descriptors.
    config.put_u32_le(0);
    config.put_u32_le(u32::from(QUEUE_SIZE) - 2);
    // Cylinders, heads, sectors: none.
    config.put_u32_le(0);
    config.put_u32_le(SECTOR_BYTES as u32);
    // Sectors per block (log2), alignment, minimal and optimal request.
    config.extend([block_sectors.ilog2() as u8, 0]);
    config.put_u16_le(u16::try_from(block_sectors).unwrap_or(0));
    config.put_u32_le(block_sectors.max(128));
    // Writeback; unused.
    config.extend([1, 0]);
    config.put_u16_le(QUEUES);
    for _ in ["discard", "write zeroes"] {
        config.put_u32_le(SEGMENT_SECTORS_MAX);
        config.put_u32_le(SEGMENTS_MAX as u32);
        // Discard alignment. After the loop: write zeroes may unmap.
        config.put_u32_le(block_sectors);
    }
    config.truncate(56);
    config.extend([1, 0, 0, 0]);
    config
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use cenote_disk::Failure;
    use futures::FutureExt;
    use futures::future::{BoxFuture, ready};

    use super::*;

    /// A disk of 1 MiB without content.
    struct Blank(bool);

    type Done<T> = Result<T, Failure>;

    impl Disk for Blank {
        fn size_bytes(&self) -> u64 {
            1 << 20
        }
        fn block_bytes(&self) -> u32 {
            16 << 10
        }
        fn is_read_only(&self) -> bool {
            self.0
        }
        fn read(&self, _: Range<u64>) -> BoxFuture<'_, Done<Bytes>> {
            ready(Ok(Bytes::new())).boxed()
        }
        fn write(&self, _: u64, _: Bytes) -> BoxFuture<'_, Done<()>> {
            ready(Ok(())).boxed()
        }
        fn zero(&self, _: Range<u64>) -> BoxFuture<'_, Done<()>> {
            ready(Ok(())).boxed()
        }
        fn trim(&self, _: Range<u64>) -> BoxFuture<'_, Done<()>> {
            ready(Ok(())).boxed()
        }
        fn flush(&self) -> BoxFuture<'_, Done<()>> {
            ready(Ok(())).boxed()
        }
        fn prefetch(&self, _: Range<u64>) -> BoxFuture<'_, Done<()>> {
            ready(Ok(())).boxed()
        }
        fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Done<(bool, u64)>> {
            ready(Ok((false, range.end))).boxed()
        }
    }

    #[test]
    fn the_device_says_what_it_is_where_drivers_look() {
        let config = config(&Blank(false));
        let number = |range: Range<usize>| config[range].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        assert_eq!((number(0..8), number(20..24), config[24]), (2048, 512, 5));
        assert_eq!((config[32], number(34..36)), (1, 4), "write-back, queues");
        assert_eq!((number(36..40), number(40..44), number(44..48)), (1 << 21, 32, 32), "discard");
        assert_eq!(
            (number(48..52), number(52..56), config[56], config.len()),
            (1 << 21, 32, 1, 60),
            "zeroes"
        );
        let has = |is_read_only, bit: u64| features(&Blank(is_read_only)) >> bit & 1 == 1;
        assert!(has(true, 5) && !has(false, 5) && has(false, 9) && has(false, 13) && !has(true, 13));
    }

    #[test]
    fn what_is_not_within_the_disk_is_refused() {
        let disk = &Blank(false);
        assert_eq!(range(disk, 512, 1024), Some(512..1536));
        assert!(range(disk, 512, 100).is_none() && range(disk, 1 << 20, 512).is_none());
        assert!(range(disk, u64::MAX, 512).is_none());
        let mut header = [0xff; HEADER_BYTES];
        header[..4].fill(0);
        assert_eq!(Request::parse(&header), Request::Read(u64::MAX), "it does not wrap around");
        let segment =
            |sector: u64, count: u32| [&sector.to_le_bytes()[..], &count.to_le_bytes(), &[0; 4]].concat();
        let both = [segment(0, 8), segment(2040, 8)].concat();
        assert_eq!(segments(disk, &both), Some(vec![0..4096, 2040 * 512..1 << 20]));
        for wrong in [segment(2040, 9), segment(u64::MAX, 1), vec![0; 15], Vec::new(), vec![0; 33 * 16]] {
            assert!(segments(disk, &wrong).is_none());
        }
    }
}
