//! A disk behind an NBD server, as a device.
//!
//! ```text
//!   NbdDevice     ranges -> requests, within the sizes agreed         this module
//!   Requests      those without an answer; unflushed writes           requests, unflushed
//!   session       connections of one agreement: all live, or none     session
//!     handshake   TLS, structured replies, the export and its limits  handshake
//!     replies     bounded, checked, put together                      replies
//! ```
//!
//! Idea: a connection is expendable. If it ends, all connections to the server are given up, new ones made at
//! growing intervals, and everything without an answer is sent again, with the same bytes to the same places.
//! Callers notice a delay. After [`DEADLINE`] without a server the device is over, as a disk pulled out: all
//! requests fail, the pool goes on without it, and opens it anew once back.
//!
//! A server that returns may have restarted, and forgotten writes that it had answered but not flushed. So
//! these are kept in memory ([`unflushed`]) and written again first, before any other request. Only beyond a
//! bound, the next flush fails, and a resilver restores the writes since the previous one.
//!
//! Trust: a server sees and may change all data, as any disk; checksums detect changes, and encryption hides
//! content. It can't make this program allocate more than was asked for, wait longer than the deadline, or
//! crash: every reply is checked against its request.
//!
//! A server must not carry out a request of an ended connection after it has answered a later one. Cenote's
//! drops such requests.
//!
//! Not supported: NBD_OPT_EXPORT_NAME (servers before 2016), extended headers, growth of an export while
//! connected (it is noticed at the next connection), locks: two machines can open the same export.
//!
//! Source: the NBD project's `doc/proto.md`, of 2025.

mod handshake;
mod lively;
mod replies;
mod requests;
mod session;
mod unflushed;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use cenote_device::{
    Device, DeviceError, DeviceInfo, Distance, Io, Nature, Op, Order, Place, Position, StorageLock,
};
use cenote_nbd::wire::{Command, can, flag};
use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::claim::Claim;
use crate::dial::Dial;
use crate::error::NbdError;
use handshake::Agreed;
use replies::joined;
pub use requests::DEADLINE;
use requests::{ANSWER, Answer, Ask, Requests};

/// Neighbouring operations are joined up to this size.
const BEST_IO_BYTES: u64 = 1 << 20;
/// Largest preferred block that counts as a sector: a larger one would be a waste of space.
const SECTOR_BYTES_MAX: u32 = 4096;
/// Longest range of one TRIM.
const TRIM_BYTES: u64 = 1 << 30;
/// Shorter writes are not searched for zeros.
const ZEROS_BYTES: usize = 4096;

/// A disk behind an NBD server.
pub struct NbdDevice {
    info: DeviceInfo,
    link: Arc<Link>,
}

/// The connections, while a device or an operation needs them.
struct Link {
    requests: Arc<Requests>,
    order: Order,
    agreed: Agreed,
    runtime: Runtime,
    /// Once open for writing.
    claim: Arc<Mutex<Option<Claim>>>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.requests.close();
    }
}

impl NbdDevice {
    /// Connects to a server. `name`: the device's, in messages.
    ///
    /// # Errors
    /// The server can't be reached, refuses, or offers less than a pool needs.
    pub async fn open(
        name: Arc<str>,
        export: String,
        dial: Arc<dyn Dial>,
        read_only: bool,
        runtime: &Runtime,
    ) -> Result<NbdDevice, NbdError> {
        let first = session::connect(&*dial, &export, runtime).await?;
        let agreed = first.agreed.clone();
        if !read_only {
            agreed.check_writable()?;
        }
        let (domain, others_may_write) = (dial.domain(), dial.others_may_write());
        let info = DeviceInfo {
            path: name,
            size_bytes: agreed.size_bytes,
            sector_bytes: agreed.preferred_bytes.min(SECTOR_BYTES_MAX).max(agreed.block_bytes).max(512),
            rotational: agreed.can(can::ROTATIONAL).then_some(true),
            read_only,
            others_may_write,
            nature: Nature {
                address: None,
                distance: if domain.is_some() { Distance::Network } else { Distance::Local },
                domain,
                best_io_bytes: BEST_IO_BYTES,
                deadline: ANSWER,
                storage_lock: StorageLock::None,
            },
        };
        let requests = Arc::new(Requests::new(runtime, &agreed));
        let (order, claim): (Order, Arc<Mutex<Option<Claim>>>) = Default::default();
        let (driving, kept) = (requests.clone(), claim.clone());
        let driving = session::drive(driving, dial, export, first, runtime.clone());
        // A disk given up may be opened anew, although a suspended pool still has this device.
        runtime.spawn(async move { (driving.await, kept.lock().take()) }).detach();
        let link = Link { requests, order, agreed, runtime: runtime.clone(), claim };
        Ok(NbdDevice { info, link: Arc::new(link) })
    }

    /// States its complete address, and the right to write to it.
    pub(crate) fn at(mut self, place: Place, claim: Option<Claim>) -> NbdDevice {
        self.info.nature.address = Some(place.into());
        *self.link.claim.lock() = claim;
        self
    }

    fn failed(
        &self,
        op: Op,
        offset: u64,
        len: u64,
    ) -> impl FnOnce(io::Error) -> DeviceError + Send + 'static {
        let info = self.info.clone();
        move |error| info.io_error(op, offset, len, error)
    }

    /// Sends a change in its turn among overlapping ones.
    fn change(&self, op: Op, offset: u64, len: u64, asks: Vec<Ask>, flushes: bool) -> Io<()> {
        let (link, failed) = (self.link.clone(), self.failed(op, offset, len));
        let send = |link: &Link, asks: Vec<Ask>| -> Vec<Answer> {
            asks.into_iter().map(|ask| link.requests.send(ask)).collect()
        };
        let sent = match self.link.order.enter(offset, len) {
            Position::First(turn) => (Some((turn, send(&link, asks))), None),
            behind => (None, Some((behind, asks))),
        };
        Io::pending(&self.link.runtime, async move {
            let (turn, answers) = match sent {
                (Some((turn, answers)), _) => (turn, answers),
                (None, Some((behind, asks))) => {
                    let turn = behind.turn().await;
                    let answers = send(&link, asks);
                    (turn, answers)
                }
                (None, None) => (None, Vec::new()),
            };
            let done = async {
                let mut all = Ok(());
                // All are over before the turn is.
                for answer in answers {
                    let answered = answer.await.map(drop);
                    all = all.and(answered);
                }
                all?;
                if flushes { link.requests.flush().await.map(drop) } else { Ok(()) }
            };
            let done = done.await;
            drop(turn);
            done.map_err(failed)
        })
    }

    fn write(&self, offset: u64, pieces: Vec<Bytes>, through: bool) -> Io<()> {
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let checked = self.info.check_writable(Op::Write, offset, len);
        if let Err(error) = checked.and_then(|()| self.check_aligned(Op::Write, offset, len)) {
            return Io::done(Err(error));
        }
        if len == 0 {
            return Io::done(Ok(()));
        }
        let agreed = &self.link.agreed;
        let is_zero = |piece: &Bytes| piece.iter().all(|byte| *byte == 0);
        let zeroes =
            agreed.can(can::WRITE_ZEROES) && len as usize >= ZEROS_BYTES && pieces.iter().all(is_zero);
        let command = if zeroes { Command::WriteZeroes } else { Command::Write };
        let has_fua = agreed.can(can::FUA);
        let flags = if through && has_fua { flag::FUA } else { 0 };
        let mut at = offset;
        let mut asks = Vec::new();
        for data in split(pieces, agreed.payload_bytes as usize) {
            let len = data.iter().map(Bytes::len).sum::<usize>() as u32;
            asks.push(Ask { command, flags, offset: at, len, data });
            at += u64::from(len);
        }
        self.change(Op::Write, offset, len, asks, through && !has_fua)
    }

    fn check_aligned(&self, op: Op, offset: u64, len: u64) -> Result<(), DeviceError> {
        let align = u64::from(self.link.agreed.block_bytes);
        if offset.is_multiple_of(align) && len.is_multiple_of(align) {
            return Ok(());
        }
        Err(DeviceError::Misaligned { path: self.info.path.clone(), op, offset, len, align })
    }
}

/// Cuts consecutive pieces into groups of at most `most` bytes.
fn split(pieces: Vec<Bytes>, most: usize) -> Vec<Vec<Bytes>> {
    let (mut groups, mut group, mut room) = (Vec::new(), Vec::new(), most);
    for mut piece in pieces {
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(room));
            room -= part.len();
            group.push(part);
            if room == 0 {
                groups.push(std::mem::take(&mut group));
                room = most;
            }
        }
    }
    groups.extend((!group.is_empty()).then_some(group));
    groups
}

impl Device for NbdDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        if let Err(error) = self.info.check_range(Op::Read, offset, len as u64) {
            return Io::done(Err(error));
        }
        if len == 0 {
            return Io::done(Ok(Bytes::new()));
        }
        let block = u64::from(self.link.agreed.block_bytes);
        let (start, end) = (offset - offset % block, (offset + len as u64).next_multiple_of(block));
        let step = u64::from(self.link.agreed.payload_bytes);
        let ask = |at: u64| {
            let len = step.min(end - at) as u32;
            Ask { command: Command::Read, flags: 0, offset: at, len, data: Vec::new() }
        };
        let asks = (start..end).step_by(step as usize).map(ask);
        let answers: Vec<Answer> = asks.map(|ask| self.link.requests.send(ask)).collect();
        let (link, failed) = (self.link.clone(), self.failed(Op::Read, offset, len as u64));
        Io::pending(&self.link.runtime, async move {
            let mut parts = Vec::with_capacity(answers.len());
            for answer in answers {
                match answer.await {
                    Ok(part) => parts.push(part),
                    Err(error) => return Err(failed(error)),
                }
            }
            drop(link);
            let skip = (offset - start) as usize;
            Ok(joined(parts).slice(skip..skip + len))
        })
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.write(offset, vec![data], false)
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.write(offset, vec![data], true)
    }

    fn write_pieces(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        self.write(offset, pieces, false)
    }

    fn flush(&self) -> Io<()> {
        let (link, failed) = (self.link.clone(), self.failed(Op::Flush, 0, 0));
        let answer = self.link.requests.flush();
        Io::pending(&self.link.runtime, async move {
            let answered = answer.await;
            drop(link);
            answered.map(drop).map_err(failed)
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        if let Err(error) = self.info.check_writable(Op::Discard, offset, len) {
            return Io::done(Err(error));
        }
        if !self.link.agreed.can(can::TRIM) {
            return Io::done(Err(DeviceError::Unsupported { path: self.info.path.clone(), op: Op::Discard }));
        }
        // Whole blocks within the range.
        let block = u64::from(self.link.agreed.block_bytes);
        let (start, end) = (offset.next_multiple_of(block), (offset + len) / block * block);
        let ask = |at: u64| {
            let len = TRIM_BYTES.min(end - at) as u32;
            Ask { command: Command::Trim, flags: 0, offset: at, len, data: Vec::new() }
        };
        let asks: Vec<Ask> = (start..end.max(start)).step_by(TRIM_BYTES as usize).map(ask).collect();
        if asks.is_empty() {
            return Io::done(Ok(()));
        }
        self.change(Op::Discard, offset, len, asks, false)
    }

    fn align_bytes(&self) -> u32 {
        self.link.agreed.block_bytes
    }

    fn is_there(&self) -> Io<bool> {
        Io::done(Ok(!self.link.requests.has_given_up()))
    }

    fn size_now(&self) -> Io<u64> {
        Io::done(Ok(self.link.requests.size_bytes()))
    }

    fn grown(&self) -> Io<Option<Arc<dyn Device>>> {
        let size_bytes = self.link.requests.size_bytes();
        let grown =
            || NbdDevice { info: DeviceInfo { size_bytes, ..self.info.clone() }, link: self.link.clone() };
        let grown = (size_bytes > self.info.size_bytes).then(|| Arc::new(grown()) as Arc<dyn Device>);
        Io::done(Ok(grown))
    }

    fn for_writing(&self) -> Option<Arc<dyn Device>> {
        self.link.agreed.check_writable().ok().filter(|()| !self.link.requests.has_given_up())?;
        let mut claim = self.link.claim.lock();
        if let (None, Some(place)) = (&*claim, &self.info.nature.address) {
            *claim = Some(Claim::try_take(place)?);
        }
        drop(claim);
        let info = DeviceInfo { read_only: false, ..self.info.clone() };
        Some(Arc::new(NbdDevice { info, link: self.link.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_at_the_largest_payload() {
        let pieces: Vec<Bytes> = [&b"abc"[..], b"", b"defgh", b"ij"].map(Bytes::from_static).into();
        let groups = split(pieces, 4);
        let texts: Vec<Vec<&[u8]>> =
            groups.iter().map(|group| group.iter().map(|part| &**part).collect()).collect();
        assert_eq!(texts, [vec![&b"abc"[..], b"d"], vec![&b"efgh"[..]], vec![&b"ij"[..]]]);
    }
}
