//! A SCSI command from arrival to answer.
//!
//! ```text
//!   its turn --> memory --> data (R2T) --> memory for data read --> SCSI --> answer
//! ```

use std::sync::Arc;

use bytes::Bytes;
use cenote_disk::{Ended, Permits, Result};
use futures::FutureExt;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, oneshot};

use super::{Session, Used, answers};
use crate::pdu::{Bhs, FINAL, RESERVED_TAG, at, opcode};
use crate::scsi::cdb::Cdb;
use crate::scsi::{self, Request, TRANSFER_BYTES_MAX, Trouble, status};
use crate::send::{Answers, Number, Outgoing};
use crate::tasks::{AbortedBy, Coming};

/// Bits of a command's flags.
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
/// Bits of a response's flags.
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const HAS_STATUS: u8 = 0x01;

/// A SCSI command and its response parameters.
struct Command {
    bhs: Bhs,
    cdb: Cdb,
    /// Bytes that the initiator expects to send or receive.
    expected_bytes: usize,
    payload: Payload,
}

enum Payload {
    /// Complete, with its permits.
    Here(Bytes, Option<Permits>),
    /// Arrives once memory for this many bytes is granted.
    Coming(oneshot::Receiver<Bytes>, usize, Option<Permits>),
}

/// A command's place in the execution order.
enum Place {
    BesideOthers { _place: OwnedRwLockReadGuard<()> },
    Alone { _place: OwnedRwLockWriteGuard<()> },
}

impl Session {
    /// Handles a new command with its immediate data.
    pub(super) fn command(self: &Arc<Session>, bhs: Bhs, data: Bytes) -> Result<()> {
        let Some(used) = &self.used else {
            return Err(Ended::Protocol("it sends commands while it looks for targets"));
        };
        let mut cdb = Cdb([0; 16]);
        cdb.0.copy_from_slice(&bhs.0[at::CDB..]);
        let itt = bhs.itt();
        let expected_bytes = bhs.word(at::EXPECTED_BYTES) as usize;
        let sends_bytes = if bhs.flags() & WRITES != 0 { expected_bytes } else { 0 };
        let first_bytes = sends_bytes.min(self.params.first_burst_bytes as usize);
        if data.len() > first_bytes || !data.is_empty() && !self.params.immediate_data {
            return Err(Ended::Protocol("a command carries more data than was agreed on"));
        }
        let comes_unasked = !bhs.is_final();
        if comes_unasked && (self.params.initial_r2t || first_bytes == data.len()) {
            return Err(Ended::Protocol("data follows a command that nobody asked for"));
        }
        // From here on the command is always answered, and `end` removes it.
        used.nexus.tasks.begin(itt, bhs.lun())?;
        let want_bytes = match cdb.out_bytes() {
            // The command itself will be refused for this.
            wanted if wanted > TRANSFER_BYTES_MAX => 0,
            wanted => sends_bytes.min(wanted as usize),
        };
        let mut permits = None;
        let unasked_bytes = if comes_unasked { first_bytes } else { data.len() };
        if unasked_bytes > 0 {
            permits = self.limits.try_take(&self.memory, unasked_bytes as u32);
        }
        let is_full = unasked_bytes > 0 && permits.is_none();
        let payload = if comes_unasked || data.len() < want_bytes {
            // Without memory, arriving data is read and dropped.
            let want_bytes = if is_full { 0 } else { want_bytes };
            let unasked_end = comes_unasked.then_some(first_bytes);
            let coming = used.nexus.tasks.expect(itt, Coming { immediate: data, want_bytes, unasked_end });
            Payload::Coming(coming, want_bytes, permits)
        } else {
            Payload::Here(data.slice(..data.len().min(want_bytes)), permits)
        };
        let command = Command { bhs, cdb, expected_bytes, payload };
        let session = self.clone();
        let mut answering = Box::pin(async move { session.answer(command, is_full).await });
        // Commands whose data is in memory complete here, without a task.
        if answering.as_mut().now_or_never().is_none() {
            self.runtime.spawn(answering).detach();
        }
        Ok(())
    }

    /// Waits for a command's turn.
    async fn place(&self, attribute: u8) -> Place {
        const ORDERED: u8 = 2;
        match attribute {
            ORDERED => Place::Alone { _place: self.order.clone().write_owned().await },
            _ => Place::BesideOthers { _place: self.order.clone().read_owned().await },
        }
    }

    async fn answer(&self, command: Command, is_full: bool) {
        let Some(used) = &self.used else { return };
        let Command { bhs, cdb, expected_bytes, payload } = command;
        let _place = self.place(bhs.flags() & 7).await;
        let mut permits = Vec::with_capacity(1);
        let data = match payload {
            Payload::Here(data, held) => {
                permits.extend(held);
                Some(data)
            }
            Payload::Coming(coming, want_bytes, held) => {
                permits.extend(held);
                permits.extend(self.limits.take(&self.memory, want_bytes as u32).await);
                let burst_bytes = self.params.burst_bytes as usize;
                self.after(used.nexus.tasks.grant(bhs.itt(), burst_bytes));
                let data = async { Ok(coming.await.ok()) };
                let coming = self.limits.patiently(&self.memory, want_bytes, data);
                coming.await.unwrap_or_else(|_| {
                    used.end(true);
                    None
                })
            }
        };
        let outcome = match data {
            // Aborted, or the data was wrong.
            None => Err(Trouble::Sense(scsi::WRONG_DATA)),
            _ if is_full => Err(Trouble::Status(status::TASK_SET_FULL)),
            Some(data) => {
                let in_bytes = if bhs.flags() & READS != 0 { cdb.in_bytes() } else { 0 };
                if in_bytes > 0 && in_bytes <= TRANSFER_BYTES_MAX {
                    permits.extend(self.limits.take(&self.memory, in_bytes as u32).await);
                }
                // A panic in the engine must neither end the connection nor leave the initiator waiting.
                let running = std::panic::AssertUnwindSafe(self.run(used, &bhs, cdb, data)).catch_unwind();
                running.await.unwrap_or(Err(Trouble::Sense(scsi::SERVER_FAILED)))
            }
        };
        let outcome = match used.nexus.tasks.end(bhs.itt()) {
            None => outcome,
            // It leaves the window without a response.
            Some(AbortedBy::Own) => return self.window.answered(answers(&bhs)),
            Some(AbortedBy::Another) => Err(Trouble::Status(status::TASK_ABORTED)),
        };
        self.respond(&bhs, &cdb, expected_bytes, outcome, permits.pop());
    }

    async fn run(&self, used: &Used, bhs: &Bhs, cdb: Cdb, data: Bytes) -> scsi::Outcome {
        let Some(guest) = bhs.lun().and_then(|number| used.guests.get(&number)) else {
            return scsi::without_lun(&cdb, &used.numbers);
        };
        let sent_bytes = if bhs.flags() & WRITES != 0 { bhs.word(at::EXPECTED_BYTES).into() } else { 0 };
        let (numbers, luns) = (&*used.numbers, &self.luns);
        Request { guest, numbers, luns, cdb, data, sent_bytes }.run().await
    }

    /// Queues the data and status of a command.
    fn respond(
        &self,
        command: &Bhs,
        cdb: &Cdb,
        expected_bytes: usize,
        outcome: scsi::Outcome,
        permits: Option<Permits>,
    ) {
        let (answers, itt) = (answers(command), command.itt());
        let (reads, writes) = (command.flags() & READS != 0, command.flags() & WRITES != 0);
        let (code, data, sense) = match outcome {
            Ok(data) => (status::GOOD, data, Bytes::new()),
            Err(Trouble::Status(code)) => (code, Bytes::new(), Bytes::new()),
            Err(Trouble::Sense(sense)) => {
                let guest = command.lun().and_then(|number| self.used.as_ref()?.guests.get(&number));
                let modes = guest.map(|guest| *guest.lun.modes.lock()).unwrap_or_default();
                let sense = sense.encode(modes.has_descriptor_sense);
                let len = (sense.len() as u16).to_be_bytes();
                (status::CHECK_CONDITION, Bytes::new(), [&len[..], &sense].concat().into())
            }
        };
        let moved = match (reads, writes) {
            (true, _) => data.len() as u64,
            (_, true) => cdb.out_bytes(),
            _ if cdb.out_bytes() > 0 => cdb.out_bytes(),
            _ => data.len() as u64,
        };
        let (residual_flag, residual) = match moved.checked_sub(expected_bytes as u64) {
            Some(0) => (0, 0),
            Some(more) => (OVERFLOW, more),
            None => (UNDERFLOW, expected_bytes as u64 - moved),
        };
        let residual = u32::try_from(residual).unwrap_or(u32::MAX);
        let data = if reads { data.slice(..data.len().min(expected_bytes)) } else { Bytes::new() };
        if code != status::GOOD || data.is_empty() {
            let mut bhs = Bhs::new(opcode::SCSI_RESPONSE, FINAL | residual_flag)
                .with(at::ITT, itt)
                .with(at::RESIDUAL, residual);
            bhs.0[3] = code;
            return self.say(Outgoing { _permits: permits, ..Outgoing::response(bhs, sense, answers) });
        }
        let most = self.params.send_bytes as usize;
        let burst_bytes = self.params.burst_bytes as usize;
        let (mut start, mut number, mut permits) = (0, 0, permits);
        while start < data.len() {
            let burst_end = (start / burst_bytes + 1) * burst_bytes;
            let end = (start + most).min(burst_end).min(data.len());
            let is_last = end == data.len();
            let mut bhs = Bhs::new(opcode::DATA_IN, if is_last || end == burst_end { FINAL } else { 0 })
                .with(at::ITT, itt)
                .with(at::TTT, RESERVED_TAG)
                .with(at::DATA_SN, number)
                .with(at::OFFSET, start as u32);
            if is_last {
                bhs.0[1] |= HAS_STATUS | residual_flag;
                bhs.put(at::RESIDUAL, residual);
            }
            self.say(Outgoing {
                bhs,
                data: data.slice(start..end),
                number: if is_last { Number::Takes } else { Number::None },
                answers: if is_last { answers } else { Answers::Nothing },
                _permits: if is_last { permits.take() } else { None },
            });
            (start, number) = (end, number + 1);
        }
    }
}
