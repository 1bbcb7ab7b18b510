//! Requests and their execution on a disk.

use std::ops::Range;

use bytes::Bytes;
use cenote_disk::{Disk, Errno, Failure};

use crate::abi::{Descriptor, IO_BYTES_MAX, SECTOR_BYTES};

/// `UBLK_IO_F_FUA`
const FUA: u32 = 1 << 13;

/// A kernel request. Ranges are unchecked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reads a range.
    Read(Range<u64>),
    /// Writes a range; `true` (FUA): durably.
    Write(Range<u64>, bool),
    /// Makes completed writes durable.
    Flush,
    /// Frees a range.
    Discard(Range<u64>),
    /// Zeroes a range.
    Zero(Range<u64>),
    /// An operation that the device does not support.
    Unknown,
}

impl Request {
    /// Reads a descriptor.
    pub fn of(descriptor: &Descriptor) -> Request {
        // Saturates, so that an overflow stays out of range.
        let start = descriptor.first.saturating_mul(SECTOR_BYTES);
        let range = start..start.saturating_add(u64::from(descriptor.sectors) * SECTOR_BYTES);
        match descriptor.op {
            Descriptor::READ => Request::Read(range),
            Descriptor::WRITE => Request::Write(range, descriptor.flags & FUA != 0),
            2 => Request::Flush,
            3 => Request::Discard(range),
            5 => Request::Zero(range),
            _ => Request::Unknown,
        }
    }

    /// Bytes of data to read or write.
    pub fn data_bytes(&self) -> u32 {
        match self {
            // Larger requests than allowed will be refused.
            Request::Read(range) | Request::Write(range, _) => {
                (range.end - range.start).min(IO_BYTES_MAX.into()) as u32
            }
            _ => 0,
        }
    }

    /// Executes the request. `data`: data to write. Returns data read.
    ///
    /// # Errors
    /// The disk's error; the range is out of bounds.
    pub async fn carry_out(&self, disk: &dyn Disk, data: Bytes) -> Result<Bytes, Failure> {
        let check = |range: &Range<u64>| {
            let is_within = range.start < range.end && range.end <= disk.size_bytes();
            let outside = || Failure::new(Errno::Io, "the request is not within the disk");
            is_within.then(|| range.clone()).ok_or_else(outside)
        };
        let is_change = matches!(self, Request::Write(..) | Request::Discard(_) | Request::Zero(_));
        if is_change && disk.is_read_only() {
            return Err(Failure::new(Errno::Perm, "the disk is read-only"));
        }
        match self {
            Request::Read(range) if range.end - range.start <= IO_BYTES_MAX.into() => {
                disk.read(check(range)?).await
            }
            Request::Write(range, is_durable) if range.end - range.start == data.len() as u64 => {
                disk.write(check(range)?.start, data).await?;
                if *is_durable {
                    disk.flush().await?;
                }
                Ok(Bytes::new())
            }
            Request::Flush => disk.flush().await.map(|()| Bytes::new()),
            Request::Discard(range) => disk.trim(check(range)?).await.map(|()| Bytes::new()),
            Request::Zero(range) => disk.zero(check(range)?).await.map(|()| Bytes::new()),
            Request::Read(_) | Request::Write(..) => {
                Err(Failure::new(Errno::Io, "the request is larger than was offered"))
            }
            Request::Unknown => Err(Failure::new(Errno::NotSupported, "an unknown request")),
        }
    }

    /// Result for the kernel: bytes read or written, or a negative errno.
    pub fn result(&self, done: &Result<Bytes, Failure>) -> i32 {
        match (self, done) {
            (_, Err(failure)) => -(failure.errno as i32),
            (Request::Read(_), Ok(data)) => data.len() as i32,
            (_, Ok(_)) => self.data_bytes() as i32,
        }
    }
}

#[cfg(test)]
mod tests {
    use cenote_runtime::{Runtime, SimConfig};
    use futures::FutureExt;
    use futures::future::{BoxFuture, ready};
    use parking_lot::Mutex;

    use super::*;

    /// A RAM disk that records calls.
    struct Memory {
        bytes: Mutex<Vec<u8>>,
        asked: Mutex<Vec<String>>,
        is_read_only: bool,
    }

    type Done<T> = Result<T, Failure>;

    impl Memory {
        fn new(is_read_only: bool) -> Memory {
            Memory { bytes: vec![0; 64 << 10].into(), asked: Mutex::default(), is_read_only }
        }

        fn clear(&self, what: &str, range: Range<u64>) -> BoxFuture<'_, Done<()>> {
            self.asked.lock().push(format!("{what} {range:?}"));
            self.bytes.lock()[range.start as usize..range.end as usize].fill(0);
            ready(Ok(())).boxed()
        }
    }

    impl Disk for Memory {
        fn size_bytes(&self) -> u64 {
            64 << 10
        }
        fn block_bytes(&self) -> u32 {
            8 << 10
        }
        fn is_read_only(&self) -> bool {
            self.is_read_only
        }
        fn read(&self, range: Range<u64>) -> BoxFuture<'_, Done<Bytes>> {
            let found = self.bytes.lock()[range.start as usize..range.end as usize].to_vec();
            ready(Ok(found.into())).boxed()
        }
        fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Done<()>> {
            self.asked.lock().push(format!("write {offset}"));
            self.bytes.lock()[offset as usize..][..data.len()].copy_from_slice(&data);
            let is_full = data.iter().all(|byte| *byte == 0xff);
            ready(if is_full { Err(Failure::new(Errno::NoSpace, "full")) } else { Ok(()) }).boxed()
        }
        fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Done<()>> {
            self.clear("zero", range)
        }
        fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Done<()>> {
            self.clear("trim", range)
        }
        fn flush(&self) -> BoxFuture<'_, Done<()>> {
            self.asked.lock().push("flush".into());
            ready(Ok(())).boxed()
        }
        fn prefetch(&self, _: Range<u64>) -> BoxFuture<'_, Done<()>> {
            ready(Ok(())).boxed()
        }
        fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Done<(bool, u64)>> {
            ready(Ok((false, range.end))).boxed()
        }
    }

    fn request(op: u8, flags: u32, first: u64, sectors: u32) -> Request {
        Request::of(&Descriptor { op, flags, sectors, first })
    }

    /// Executes a request. Returns the kernel's result and the data.
    fn answer(disk: &Memory, request: &Request, data: &[u8]) -> (i32, Bytes) {
        let data = Bytes::copy_from_slice(data);
        let work = |_: Runtime| request.carry_out(disk, data);
        let done = Runtime::simulate(SimConfig::default(), work).0;
        (request.result(&done), done.unwrap_or_default())
    }

    #[test]
    fn what_was_written_is_read_again() {
        let disk = Memory::new(false);
        assert_eq!(answer(&disk, &request(1, 0, 2, 1), &[7; 512]).0, 512);
        let (count, data) = answer(&disk, &request(0, 0, 1, 3), &[]);
        assert_eq!((count, &data[511..514], &data[1023..1025]), (1536, &[0, 7, 7][..], &[7, 0][..]));
        assert_eq!(disk.asked.lock()[..], ["write 1024"], "nothing is flushed that needn't be");
    }

    #[test]
    fn a_write_with_fua_is_flushed_before_it_is_answered() {
        let disk = Memory::new(false);
        assert_eq!(answer(&disk, &request(1, FUA, 0, 1), &[7; 512]).0, 512);
        assert_eq!(answer(&disk, &request(2, 0, 0, 0), &[]).0, 0);
        assert_eq!(disk.asked.lock()[..], ["write 0", "flush", "flush"]);
    }

    #[test]
    fn discarding_and_zeroing_are_about_their_range() {
        let disk = Memory::new(false);
        assert_eq!(answer(&disk, &request(3, 0, 16, 16), &[]).0, 0);
        assert_eq!(answer(&disk, &request(5, 0, 32, 1), &[]).0, 0);
        assert_eq!(disk.asked.lock()[..], ["trim 8192..16384", "zero 16384..16896"]);
    }

    #[test]
    fn errors_have_their_numbers() {
        let disk = Memory::new(false);
        assert_eq!(answer(&disk, &request(1, 0, 0, 1), &[0xff; 512]).0, -28, "ENOSPC");
        assert_eq!(answer(&disk, &request(0, 0, 127, 2), &[]).0, -5, "beyond the end");
        assert_eq!(answer(&disk, &request(0, 0, u64::MAX, 2), &[]).0, -5, "it does not wrap around");
        assert_eq!(answer(&disk, &request(0, 0, 0, 1 << 20), &[]).0, -5, "larger than offered");
        assert_eq!(answer(&disk, &request(1, 0, 0, 2), &[7; 512]).0, -5, "less than it says");
        assert_eq!(answer(&disk, &request(4, 0, 0, 1), &[]).0, -95, "EOPNOTSUPP");
        let disk = Memory::new(true);
        for op in [1, 3, 5] {
            assert_eq!(answer(&disk, &request(op, 0, 0, 1), &[7; 512]).0, -1, "EPERM");
        }
        assert_eq!(answer(&disk, &request(0, 0, 0, 1), &[]).0, 512);
    }
}
