//! A disk behind a server, as a device: the common part of all protocols.
//!
//! ```text
//!   ServerDisk    ranges -> requests, within the sizes agreed          this module
//!   Requests      those without an answer; unflushed writes            requests, requests/unflushed
//!   drive         sessions, one after the other                        session
//!   Protocol      connections; requests and answers as bytes           nbd, iscsi
//! ```
//!
//! Idea: a connection is expendable. If it ends, all connections to the server are given up, new ones made at
//! growing intervals, and everything without an answer is sent again, with the same bytes to the same places.
//! Callers notice a delay. After [`DEADLINE`](crate::DEADLINE) without a server the device is over, as a disk
//! pulled out: all requests fail, the pool goes on without it, and opens it anew once back.
//!
//! A server that returns may have restarted, and forgotten writes that it had answered but not flushed. So
//! these are kept in memory (`unflushed`) and written again first, before any other request. Only beyond a
//! bound, the next flush fails, and a resilver restores the writes since the previous one.
//!
//! Trust: a server sees and may change all data, as any disk; checksums detect changes, and encryption hides
//! content. It can't make this program allocate more than was asked for, wait longer than the deadline, or
//! crash: every reply is checked against its request.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cenote_device::{Device, DeviceError, DeviceInfo, Io, Op, Order, Place, Position, TellFenced};
use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::claim::Claim;
use crate::closing::Closing;
use crate::error::ServerError;
use crate::requests::{Answer, Ask, Kind, Requests};

/// Neighbouring operations are joined up to this size.
pub(crate) const BEST_IO_BYTES: u64 = 1 << 20;
/// Longest range of one TRIM.
const TRIM_BYTES: u64 = 1 << 30;
/// Longest wait of the program's end for the last session.
const GOODBYE: Duration = Duration::from_secs(3);
/// Shorter writes are not searched for zeros.
const ZEROS_BYTES: usize = 4096;

/// Abilities of a server's disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abilities {
    /// Requests are multiples of it.
    pub(crate) block_bytes: u32,
    /// Most data of a request, in whole blocks.
    pub(crate) payload_bytes: u32,
    /// Longest range of a TRIM; 0: there is none.
    pub(crate) trim_bytes: u64,
    /// Zeros need not be sent.
    pub(crate) can_zero: bool,
    /// A write can be durable by itself.
    pub(crate) can_write_through: bool,
}

/// A disk behind a server.
pub struct ServerDisk {
    info: DeviceInfo,
    link: Arc<Link>,
}

/// The requests, while a device or an operation needs them.
struct Link {
    requests: Arc<Requests>,
    order: Order,
    abilities: Abilities,
    runtime: Runtime,
    writing: Writing,
    /// Told when the last session is over, if the end of the program must wait for it.
    ended: Option<Mutex<mpsc::Receiver<()>>>,
}

/// The right to write.
#[derive(Clone)]
pub(crate) enum Writing {
    /// Not by this opening.
    Never,
    /// Once there is a claim.
    With(Arc<Mutex<Option<Claim>>>),
}

impl Drop for Link {
    fn drop(&mut self) {
        self.requests.close();
        if let Some(ended) = self.ended.take().filter(|_| !self.runtime.is_simulated()) {
            let (closing, runtime) = (Closing::begin(), self.runtime.clone());
            // The runtime lives as long: otherwise the end of the program would end the session's task.
            self.runtime.start_blocking(move || {
                ended.into_inner().recv_timeout(GOODBYE).ok();
                drop((closing, runtime));
            });
        }
    }
}

impl ServerDisk {
    pub(crate) fn new(
        info: DeviceInfo,
        abilities: Abilities,
        requests: Arc<Requests>,
        writing: Writing,
        ended: Option<mpsc::Receiver<()>>,
        runtime: &Runtime,
    ) -> ServerDisk {
        let (order, runtime, ended) = (Order::default(), runtime.clone(), ended.map(Mutex::new));
        let link = Arc::new(Link { requests, order, abilities, runtime, writing, ended });
        ServerDisk { info, link }
    }

    /// States its complete address, and the right to write to it.
    pub(crate) fn at(mut self, place: Place, claim: Option<Claim>) -> ServerDisk {
        self.info.nature.address = Some(place.into());
        if let Writing::With(kept) = &self.link.writing {
            *kept.lock() = claim;
        }
        self
    }

    fn failed(
        &self,
        op: Op,
        offset: u64,
        len: u64,
    ) -> impl FnOnce(io::Error) -> DeviceError + Send + 'static {
        let info = self.info.clone();
        move |error| match error.get_ref().and_then(|cause| cause.downcast_ref()) {
            Some(ServerError::Fenced { why }) => {
                DeviceError::Fenced { path: info.path.clone(), op, why: why.clone() }
            }
            _ => info.io_error(op, offset, len, error),
        }
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
        let abilities = &self.link.abilities;
        let is_zero = |piece: &Bytes| piece.iter().all(|byte| *byte == 0);
        let zeroes = abilities.can_zero && len as usize >= ZEROS_BYTES && pieces.iter().all(is_zero);
        let kind = if zeroes { Kind::Zeroes } else { Kind::Write };
        let is_through = through && abilities.can_write_through;
        let mut at = offset;
        let mut asks = Vec::new();
        for data in split(pieces, abilities.payload_bytes as usize) {
            let len = data.iter().map(Bytes::len).sum::<usize>() as u32;
            asks.push(Ask { kind, is_through, offset: at, len, data });
            at += u64::from(len);
        }
        self.change(Op::Write, offset, len, asks, through && !is_through)
    }

    fn check_aligned(&self, op: Op, offset: u64, len: u64) -> Result<(), DeviceError> {
        let align = u64::from(self.link.abilities.block_bytes);
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

impl Device for ServerDisk {
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
        let block = u64::from(self.link.abilities.block_bytes);
        let (start, end) = (offset - offset % block, (offset + len as u64).next_multiple_of(block));
        let step = u64::from(self.link.abilities.payload_bytes);
        let ask = |at: u64| Ask::bare(Kind::Read, at, step.min(end - at) as u32);
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
        let step = self.link.abilities.trim_bytes.min(TRIM_BYTES);
        if step == 0 {
            return Io::done(Err(DeviceError::Unsupported { path: self.info.path.clone(), op: Op::Discard }));
        }
        // Whole blocks within the range.
        let block = u64::from(self.link.abilities.block_bytes);
        let (start, end) = (offset.next_multiple_of(block), (offset + len) / block * block);
        let ask = |at: u64| Ask::bare(Kind::Trim, at, step.min(end - at) as u32);
        let asks: Vec<Ask> = (start..end.max(start)).step_by(step as usize).map(ask).collect();
        if asks.is_empty() {
            return Io::done(Ok(()));
        }
        self.change(Op::Discard, offset, len, asks, false)
    }

    fn align_bytes(&self) -> u32 {
        self.link.abilities.block_bytes
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
            || ServerDisk { info: DeviceInfo { size_bytes, ..self.info.clone() }, link: self.link.clone() };
        let grown = (size_bytes > self.info.size_bytes).then(|| Arc::new(grown()) as Arc<dyn Device>);
        Io::done(Ok(grown))
    }

    fn for_writing(&self) -> Option<Arc<dyn Device>> {
        let Writing::With(claim) = &self.link.writing else { return None };
        if self.link.requests.has_given_up() {
            return None;
        }
        let mut claim = claim.lock();
        if let (None, Some(place)) = (&*claim, &self.info.nature.address) {
            *claim = Some(Claim::try_take(place)?);
        }
        drop(claim);
        let info = DeviceInfo { read_only: false, ..self.info.clone() };
        Some(Arc::new(ServerDisk { info, link: self.link.clone() }))
    }

    fn on_fenced(&self, tell: TellFenced) {
        self.link.requests.on_fenced(tell);
    }
}

/// One range from consecutive parts; copied if there are several.
pub(crate) fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    whole.freeze()
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
