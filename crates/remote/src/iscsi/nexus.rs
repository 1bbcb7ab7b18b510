//! A session with a target: commands under way on one connection.
//!
//! ```text
//!   own commands (reservations, descriptions) --.
//!   requests, up to the target's window        --+--> send --> target
//!   data that the target asked for (R2T)       --'
//!   target --> receive: Data-In, responses, R2T --> answers, in any order
//! ```
//!
//! Idea: one task sends and receives. From the login on it carries out the client's own commands; once
//! [`Nexus::begin`] hands it the device's requests, those too.
//!
//! Invariants: memory for data is taken only for a command of ours, no more than it asked for. Data comes in
//! order. A target may ask for data of a command once at a time, in order, and never for more than there is.
//! At most [`COMMANDS_MAX`] commands are under way, so at most that many times a request's data.
//!
//! Locking: one mutex, for a look or change. `wake` tells the sender that there is work or room.
//!
//! Source: RFC 7143, sections 4.2 and 11.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cenote_disk::Stream;
use cenote_disk::stream::write_pieces;
use cenote_iscsi::pdu::{Bhs, FINAL, PduReader, RESERVED_TAG, at, encoded, opcode, padding};
use cenote_runtime::Runtime;
use futures::channel::oneshot;
use parking_lot::Mutex;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::Notify;

use super::answers::{Outcome, Verdict, sense};
use super::commands::Command;
use super::login::{Connection, Params, RECEIVE_BYTES, gone};
use crate::error::ServerError;
use crate::requests::{ANSWER, Ask, Kind, Lane, Requests};

/// Repetitions of the client's own commands: a target may have several conditions to tell.
const REPEATS_MAX: usize = 24;
/// Commands under way.
const COMMANDS_MAX: usize = 64;
const IMMEDIATE: u8 = 0x40;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
const SIMPLE: u8 = 0x01;
/// The S bit of Data-In: a status follows.
const HAS_STATUS: u8 = 0x01;
/// Why a device is lost.
pub(super) const PREEMPTED: &str = "another machine has preempted this one's reservation of the iSCSI disk";

/// A session.
pub(super) struct Nexus {
    runtime: Runtime,
    params: Params,
    lun: u8,
    state: Mutex<State>,
    wake: Notify,
    begun: OnceLock<Begun>,
    /// The device is closed, and nothing waits.
    pub(super) drained: Notify,
    /// The reservation, or the size, may have changed.
    pub(super) poked: Notify,
    pub(super) is_resized: AtomicBool,
    logged_out: Notify,
}

/// The device's part of a session.
struct Begun {
    requests: Arc<Requests>,
    lane: Lane,
    block_bytes: u32,
    /// The disk is reserved for this machine.
    holds: bool,
}

struct State {
    tasks: BTreeMap<u32, Task>,
    tag: u32,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    out: VecDeque<Out>,
    is_drained: bool,
}

/// To be sent as soon as possible.
enum Out {
    Data { tag: u32, target_tag: u32, len: u32 },
    Pong { lun: [u8; 8], target_tag: u32 },
    Own(Command, oneshot::Sender<Outcome>),
    Logout,
}

/// A command under way.
struct Task {
    asker: Asker,
    in_bytes: u32,
    out: Vec<Bytes>,
    out_bytes: u32,
    /// Of `out`.
    sent_bytes: u32,
    /// Data that the target has asked for waits to be sent.
    is_asked: bool,
    data: BytesMut,
}

enum Asker {
    Request(u64, Arc<Ask>),
    Own(oneshot::Sender<Outcome>),
}

impl Nexus {
    /// A session on a connection, and its work.
    pub(super) fn new(
        connection: Connection,
        lun: u8,
        runtime: &Runtime,
    ) -> (Arc<Nexus>, impl Future<Output = Result<Infallible, ServerError>> + Send + use<>) {
        let Connection { reader, writer, params, cmd_sn, max_cmd_sn, exp_stat_sn } = connection;
        let (tasks, tag, out) = Default::default();
        let state = State { tasks, tag, cmd_sn, max_cmd_sn, exp_stat_sn, out, is_drained: false };
        let nexus = Arc::new(Nexus {
            runtime: runtime.clone(),
            params,
            lun,
            state: state.into(),
            wake: Notify::new(),
            begun: OnceLock::new(),
            drained: Notify::new(),
            poked: Notify::new(),
            is_resized: false.into(),
            logged_out: Notify::new(),
        });
        let working = nexus.clone();
        let work = async move {
            let (sending, receiving) = (working.send(writer), working.receive(reader));
            tokio::select! {
                biased;
                sent = sending => sent,
                received = receiving => received,
            }
        };
        (nexus, work)
    }

    /// Carries out a device's requests from now on.
    pub(super) fn begin(&self, requests: Arc<Requests>, lane: Lane, block_bytes: u32, holds: bool) {
        self.begun.set(Begun { requests, lane, block_bytes, holds }).ok();
        self.wake.notify_one();
    }

    /// A command of the client's own. It waits as long as the session lasts.
    pub(super) async fn own(&self, command: Command) -> Result<Outcome, ServerError> {
        let (tell, told) = oneshot::channel();
        self.state.lock().out.push_back(Out::Own(command, tell));
        self.wake.notify_one();
        told.await.map_err(|_| gone())
    }

    /// A command of the client's own, repeated while the target can't carry it out.
    pub(super) async fn settled(&self, command: Command) -> Result<Outcome, ServerError> {
        for _ in 0..REPEATS_MAX {
            let outcome = self.own(command.clone()).await?;
            match outcome.verdict() {
                Verdict::Again(pause) => self.pause(pause).await,
                _ => return Ok(outcome),
            }
        }
        Err(ServerError::Ending)
    }

    pub(super) async fn pause(&self, time: Duration) {
        self.runtime.sleep(time).await;
    }

    /// Ends the session in order.
    pub(super) async fn log_out(&self) {
        self.state.lock().out.push_back(Out::Logout);
        self.wake.notify_one();
        self.logged_out.notified().await;
    }
}

/// Sending.
impl Nexus {
    async fn send(&self, mut writer: WriteHalf<Box<dyn Stream>>) -> Result<Infallible, ServerError> {
        loop {
            let mut woken = std::pin::pin!(self.wake.notified());
            // Registered before the look, or a notification could fall between the two.
            woken.as_mut().enable();
            let (mut pieces, most) = self.ready();
            if pieces.is_empty() {
                let Some(begun) = self.begun.get().filter(|_| most > 0) else {
                    woken.await;
                    continue;
                };
                let batch = tokio::select! {
                    biased;
                    () = woken => continue,
                    batch = begun.requests.next(begun.lane, most) => batch,
                };
                match batch {
                    Some(batch) => pieces = self.started(batch, begun.block_bytes),
                    None => {
                        self.state.lock().is_drained = true;
                        self.drained.notify_one();
                        continue;
                    }
                }
            }
            write_pieces(&mut writer, &mut pieces).await?;
        }
    }

    /// All that is ready but requests, and how many of those may follow.
    fn ready(&self) -> (Vec<Bytes>, usize) {
        let (mut pieces, mut arena) = (Vec::new(), BytesMut::new());
        let mut state = self.state.lock();
        while let Some(next) = state.out.pop_front() {
            match next {
                Out::Own(..) if state.room() == 0 => {
                    state.out.push_front(next);
                    break;
                }
                Out::Own(command, tell) => {
                    self.start(&mut state, command, Asker::Own(tell), &mut pieces, &mut arena);
                }
                Out::Data { tag, target_tag, len } => {
                    self.data_out(&mut state, (tag, target_tag, len), &mut pieces, &mut arena);
                }
                Out::Pong { lun, target_tag } => {
                    let mut bhs = state.header(opcode::NOP_OUT | IMMEDIATE, FINAL, RESERVED_TAG);
                    bhs.put(at::TTT, target_tag);
                    bhs.0[at::LUN..at::LUN + 8].copy_from_slice(&lun);
                    pieces.push(encoded(&mut arena, &bhs, self.params.digests));
                }
                Out::Logout => {
                    let tag = state.tag();
                    let bhs = state.header(opcode::LOGOUT | IMMEDIATE, FINAL, tag);
                    pieces.push(encoded(&mut arena, &bhs, self.params.digests));
                }
            }
        }
        let most = if state.is_drained { 0 } else { state.room() };
        (pieces, most)
    }

    fn started(&self, batch: Vec<(u64, Arc<Ask>)>, block_bytes: u32) -> Vec<Bytes> {
        let (mut pieces, mut arena) = (Vec::new(), BytesMut::new());
        let mut state = self.state.lock();
        for (cookie, ask) in batch {
            let command = Command::of(&ask, block_bytes);
            self.start(&mut state, command, Asker::Request(cookie, ask), &mut pieces, &mut arena);
        }
        pieces
    }

    fn start(
        &self,
        state: &mut State,
        command: Command,
        asker: Asker,
        pieces: &mut Vec<Bytes>,
        arena: &mut BytesMut,
    ) {
        let (tag, out_bytes) = (state.tag(), command.out_bytes());
        let Command { cdb, out, in_bytes } = command;
        let direction = match (in_bytes, out_bytes) {
            (0, 0) => 0,
            (_, 0) => READS,
            _ => WRITES,
        };
        let mut bhs = state.header(opcode::SCSI_COMMAND, FINAL | direction | SIMPLE, tag);
        state.cmd_sn = state.cmd_sn.wrapping_add(1);
        bhs.0[at::LUN + 1] = self.lun;
        bhs.put(at::EXPECTED_BYTES, in_bytes.max(out_bytes));
        bhs.0[at::CDB..at::CDB + 16].copy_from_slice(&cdb);
        let sent_bytes = out_bytes.min(self.params.immediate_bytes);
        self.put(bhs, part(&out, 0, sent_bytes), pieces, arena);
        let (is_asked, data) = Default::default();
        state.tasks.insert(tag, Task { asker, in_bytes, out, out_bytes, sent_bytes, is_asked, data });
    }

    /// Data that the target has asked for.
    fn data_out(
        &self,
        state: &mut State,
        (tag, target_tag, len): (u32, u32, u32),
        pieces: &mut Vec<Bytes>,
        arena: &mut BytesMut,
    ) {
        let exp_stat_sn = state.exp_stat_sn;
        let Some(task) = state.tasks.get_mut(&tag) else { return };
        let (mut number, end) = (0, task.sent_bytes + len);
        while task.sent_bytes < end {
            let len = self.params.send_bytes.min(end - task.sent_bytes);
            let is_last = task.sent_bytes + len == end;
            let mut bhs = Bhs::new(opcode::DATA_OUT, if is_last { FINAL } else { 0 })
                .with(at::ITT, tag)
                .with(at::TTT, target_tag)
                .with(at::EXP_CMD_SN, exp_stat_sn)
                .with(at::DATA_SN, number)
                .with(at::OFFSET, task.sent_bytes);
            bhs.0[at::LUN + 1] = self.lun;
            self.put(bhs, part(&task.out, task.sent_bytes, len), pieces, arena);
            task.sent_bytes += len;
            number += 1;
        }
        task.is_asked = false;
    }

    fn put(&self, bhs: Bhs, data: Vec<Bytes>, pieces: &mut Vec<Bytes>, arena: &mut BytesMut) {
        let len = data.iter().map(Bytes::len).sum();
        pieces.push(encoded(arena, &bhs.with_data_bytes(len), self.params.digests));
        pieces.extend(data);
        pieces.extend(Some(padding(len)).filter(|padding| !padding.is_empty()));
    }
}

impl State {
    /// Commands that may be sent.
    fn room(&self) -> usize {
        // Numbers wrap around.
        let window = (self.max_cmd_sn.wrapping_sub(self.cmd_sn) as i32).saturating_add(1).max(0);
        (window as usize).min(COMMANDS_MAX.saturating_sub(self.tasks.len()))
    }

    /// An unused tag.
    fn tag(&mut self) -> u32 {
        loop {
            self.tag = self.tag.wrapping_add(1);
            if self.tag != RESERVED_TAG && !self.tasks.contains_key(&self.tag) {
                return self.tag;
            }
        }
    }

    fn header(&self, opcode: u8, flags: u8, tag: u32) -> Bhs {
        // A target finds the next response expected where it puts the next command expected.
        Bhs::new(opcode, flags)
            .with(at::ITT, tag)
            .with(at::CMD_SN, self.cmd_sn)
            .with(at::EXP_CMD_SN, self.exp_stat_sn)
    }
}

/// A part of consecutive pieces.
fn part(pieces: &[Bytes], offset: u32, len: u32) -> Vec<Bytes> {
    let (mut skip, mut left, mut parts) = (offset as usize, len as usize, Vec::new());
    for piece in pieces {
        let start = skip.min(piece.len());
        let end = (start + left).min(piece.len());
        skip -= start;
        left -= end - start;
        parts.extend((start < end).then(|| piece.slice(start..end)));
    }
    parts
}

/// Receiving.
impl Nexus {
    async fn receive(
        &self,
        mut reader: PduReader<ReadHalf<Box<dyn Stream>>>,
    ) -> Result<Infallible, ServerError> {
        loop {
            let bhs = reader.head().await?.ok_or_else(gone)?;
            let len = bhs.data_bytes();
            if len > RECEIVE_BYTES as usize {
                return Err(ServerError::Protocol("a message has more data than was agreed on"));
            }
            self.note_numbers(&bhs);
            match bhs.opcode() {
                opcode::DATA_IN => {
                    let mut data = self.buffer(&bhs)?;
                    reader.data_to(&mut data, len).await?;
                    self.came(&bhs, data)?;
                }
                opcode::SCSI_RESPONSE => {
                    let data = reader.data(len).await?;
                    // Not 0: the target could not carry the command out.
                    let status = if bhs.0[2] == 0 { bhs.0[3] } else { 0xff };
                    self.over(bhs.itt(), status, &data)?;
                }
                opcode::R2T => self.asked(&bhs)?,
                opcode::NOP_IN => {
                    reader.data(len).await?;
                    if bhs.word(at::TTT) != RESERVED_TAG {
                        self.ping(&bhs)?;
                    }
                }
                opcode::ASYNC => {
                    reader.data(len).await?;
                    // 0 is about the disk, which its next answer tells. All others end the session.
                    if bhs.0[36] != 0 {
                        return Err(ServerError::Ending);
                    }
                }
                opcode::LOGOUT_RESPONSE => self.logged_out.notify_one(),
                opcode::REJECT => return Err(ServerError::Protocol("it rejects a message")),
                _ => return Err(ServerError::Protocol("a message has an unknown type")),
            }
        }
    }

    fn note_numbers(&self, bhs: &Bhs) {
        let mut state = self.state.lock();
        let max_cmd_sn = bhs.word(at::MAX_CMD_SN);
        if max_cmd_sn.wrapping_sub(state.max_cmd_sn) as i32 > 0 {
            state.max_cmd_sn = max_cmd_sn;
            self.wake.notify_one();
        }
        let has_status = match bhs.opcode() {
            opcode::DATA_IN => bhs.flags() & HAS_STATUS != 0,
            opcode::R2T => false,
            opcode::NOP_IN => bhs.itt() != RESERVED_TAG,
            _ => true,
        };
        if has_status {
            state.exp_stat_sn = bhs.word(at::STAT_SN).wrapping_add(1);
        }
    }

    /// The memory for data of a command, with the data so far.
    fn buffer(&self, bhs: &Bhs) -> Result<BytesMut, ServerError> {
        let mut state = self.state.lock();
        let task = state.tasks.get_mut(&bhs.itt());
        let task = task.ok_or(ServerError::Protocol("it sends data of no command"))?;
        let there = task.data.len();
        if bhs.word(at::OFFSET) as usize != there || there + bhs.data_bytes() > task.in_bytes as usize {
            return Err(ServerError::Protocol("data is out of order, or more than was asked for"));
        }
        let mut data = std::mem::take(&mut task.data);
        if there == 0 {
            data.reserve(task.in_bytes as usize);
        }
        Ok(data)
    }

    fn came(&self, bhs: &Bhs, data: BytesMut) -> Result<(), ServerError> {
        if let Some(task) = self.state.lock().tasks.get_mut(&bhs.itt()) {
            task.data = data;
        }
        match bhs.flags() & HAS_STATUS {
            0 => Ok(()),
            _ => self.over(bhs.itt(), bhs.0[3], b""),
        }
    }

    /// R2T.
    fn asked(&self, bhs: &Bhs) -> Result<(), ServerError> {
        let (tag, target_tag) = (bhs.itt(), bhs.word(at::TTT));
        let (offset, len) = (bhs.word(at::OFFSET), bhs.word(at::LEN));
        let mut state = self.state.lock();
        let task = state.tasks.get_mut(&tag);
        let task = task.ok_or(ServerError::Protocol("it asks for data of no command"))?;
        let is_sound =
            offset == task.sent_bytes && len > 0 && len <= task.out_bytes - task.sent_bytes && !task.is_asked;
        if !is_sound {
            return Err(ServerError::Protocol("it asks for data out of order, or for more than there is"));
        }
        task.is_asked = true;
        // Numbers of R2Ts are not needed: they come in order, one at a time.
        state.out.push_front(Out::Data { tag, target_tag, len });
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    fn ping(&self, bhs: &Bhs) -> Result<(), ServerError> {
        let mut lun = [0; 8];
        lun.copy_from_slice(&bhs.0[at::LUN..at::LUN + 8]);
        let mut state = self.state.lock();
        let pings = state.out.iter().filter(|out| matches!(out, Out::Pong { .. })).count();
        if pings >= COMMANDS_MAX {
            return Err(ServerError::Protocol("it pings without waiting for answers"));
        }
        state.out.push_back(Out::Pong { lun, target_tag: bhs.word(at::TTT) });
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// The end of a command.
    fn over(&self, tag: u32, status: u8, data: &[u8]) -> Result<(), ServerError> {
        let task = self.state.lock().tasks.remove(&tag);
        let task = task.ok_or(ServerError::Protocol("it answers a command that was not sent"))?;
        self.wake.notify_one();
        let is_whole = task.sent_bytes == task.out_bytes;
        let outcome = Outcome { status, sense: sense(data), data: task.data.freeze() };
        if let (Some(code), Some(_)) = (outcome.attention(), self.begun.get()) {
            self.attend(code)?;
        }
        match task.asker {
            // The asker may be gone.
            Asker::Own(tell) => drop(tell.send(outcome)),
            Asker::Request(cookie, ask) => self.answer(cookie, &ask, outcome, is_whole)?,
        }
        Ok(())
    }

    /// A condition told once.
    fn attend(&self, code: u16) -> Result<(), ServerError> {
        const CAPACITY_CHANGED: u16 = 0x2a09;
        match code {
            // Power on, or a reset: unflushed writes may be lost. A new session repeats them.
            0x2900..=0x29ff => return Err(ServerError::Reset),
            // Reservations were preempted or released, registrations preempted.
            0x2a03..=0x2a05 => self.poked.notify_one(),
            CAPACITY_CHANGED => {
                self.is_resized.store(true, Ordering::Release);
                self.poked.notify_one();
            }
            _ => {}
        }
        Ok(())
    }

    fn answer(&self, cookie: u64, ask: &Ask, outcome: Outcome, is_whole: bool) -> Result<(), ServerError> {
        let Some(Begun { requests, lane, holds, .. }) = self.begun.get() else { return Ok(()) };
        let wanted = if ask.kind == Kind::Read { ask.len as usize } else { 0 };
        let result = match outcome.verdict() {
            Verdict::Done if !is_whole => return Err(ServerError::Protocol("it has not taken all data")),
            Verdict::Done if outcome.data.len() != wanted => {
                return Err(ServerError::Protocol("a read is answered in part"));
            }
            Verdict::Done => Ok(outcome.data),
            Verdict::Again(pause) if pause.is_zero() => match requests.repeat(*lane, cookie) {
                true => return Ok(()),
                false => Err(ServerError::Silent { since: ANSWER }.into()),
            },
            Verdict::Again(pause) => {
                let (runtime, requests, lane) = (self.runtime.clone(), requests.clone(), *lane);
                let again = async move {
                    runtime.sleep(pause).await;
                    if !requests.repeat(lane, cookie) {
                        requests.answer(lane, cookie, Err(ServerError::Silent { since: ANSWER }.into()));
                    }
                };
                self.runtime.spawn(again).detach();
                return Ok(());
            }
            Verdict::Conflict if *holds => return Err(ServerError::Fenced { why: PREEMPTED.into() }),
            Verdict::Conflict => {
                let why = "another initiator has reserved the disk";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            Verdict::NotReady => return Err(ServerError::Ending),
            Verdict::Illegal(error) | Verdict::Failed(error) => Err(error),
        };
        requests.answer(*lane, cookie, result);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_pieces_are_cut_at_their_bounds() {
        let pieces: Vec<Bytes> = [&b"abc"[..], b"", b"defgh", b"ij"].map(Bytes::from_static).into();
        for (offset, len) in (0..10u32).flat_map(|offset| (0..=10 - offset).map(move |len| (offset, len))) {
            let all = b"abcdefghij";
            assert_eq!(part(&pieces, offset, len).concat(), all[offset as usize..][..len as usize]);
        }
    }
}
