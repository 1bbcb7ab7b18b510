//! Commands in progress in a session, and the data that arrives for them.
//!
//! ```text
//!   command --> unsolicited data (F ends it) --> R2T, data (F ends it) --> ... --> all data received
//! ```
//!
//! Idea: bursts arrive in order, so data is appended to one buffer, straight from the connection. Unsolicited
//! data excepted, R2T is sent only after memory for the data has been granted.
//!
//! A task that its own initiator aborts sends no response; one that another initiator aborts ends with TASK
//! ABORTED, since its own would otherwise wait until it times out. The aborting task waits for its end, so
//! its changes cannot land after later commands of the initiator.
//!
//! Locking: the table is locked for one lookup or change.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use cenote_disk::{Ended, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::pdu::{Bhs, FINAL, RESERVED_TAG, at, opcode};

/// All tasks of a session, by initiator task tag.
#[derive(Default)]
pub struct Tasks(Mutex<HashMap<u32, Entry>>);

#[derive(Default)]
struct Entry {
    /// Logical unit, if the LUN is valid.
    lun: Option<u8>,
    aborted: Option<AbortedBy>,
    /// Dropped when the task ends, which wakes the tasks that abort it.
    waiting: Vec<oneshot::Sender<()>>,
    transfer: Option<Transfer>,
}

/// The initiator that aborted a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortedBy {
    /// Its own.
    Own,
    /// Another one, by a reset or PREEMPT AND ABORT.
    Another,
}

/// Incoming data of a task.
struct Transfer {
    buffer: BytesMut,
    /// Total bytes that the command needs.
    want_bytes: usize,
    /// Upper bound for the end of the current burst.
    burst_end: usize,
    /// Target transfer tag of the R2T; [`RESERVED_TAG`] for an unsolicited burst.
    tag: u32,
    data_sn: u32,
    is_under_way: bool,
    is_granted: bool,
    done: oneshot::Sender<Bytes>,
}

/// Data expected for a command.
pub struct Coming {
    /// Immediate data.
    pub immediate: Bytes,
    /// Total bytes needed.
    pub want_bytes: usize,
    /// Upper bound for the end of unsolicited data, if any may come.
    pub unasked_end: Option<usize>,
}

/// Next step after a burst.
pub enum After {
    /// None yet.
    Nothing,
    /// Send this R2T.
    Ask(Bhs),
}

impl Tasks {
    /// Registers a task.
    ///
    /// # Errors
    /// The tag is in use.
    pub fn begin(&self, itt: u32, lun: Option<u8>) -> Result<()> {
        match self.0.lock().insert(itt, Entry { lun, ..Entry::default() }) {
            None => Ok(()),
            Some(_) => Err(Ended::Protocol("it uses a task tag twice")),
        }
    }

    /// Removes a task. Returns who aborted it, if anyone did.
    pub fn end(&self, itt: u32) -> Option<AbortedBy> {
        self.0.lock().remove(&itt)?.aborted
    }

    /// Whether a task is in progress.
    pub fn has(&self, itt: u32) -> bool {
        self.0.lock().contains_key(&itt)
    }

    /// Aborts the chosen tasks (by tag and unit) and waits until they end.
    pub async fn abort(&self, by: AbortedBy, chosen: impl Fn(u32, Option<u8>) -> bool) {
        for end in self.stop(by, chosen) {
            end.await.ok();
        }
    }

    /// Aborts the chosen tasks without waiting: the receivers resolve when they end. Stopped tasks stop
    /// waiting for data.
    pub fn stop(
        &self,
        by: AbortedBy,
        chosen: impl Fn(u32, Option<u8>) -> bool,
    ) -> Vec<oneshot::Receiver<()>> {
        let mut table = self.0.lock();
        let chosen = table.iter_mut().filter(|(itt, entry)| chosen(**itt, entry.lun));
        let abort = |(_, entry): (&u32, &mut Entry)| {
            let (waiting, end) = oneshot::channel();
            if entry.aborted != Some(AbortedBy::Own) {
                entry.aborted = Some(by);
            }
            entry.transfer = None;
            entry.waiting.push(waiting);
            end
        };
        chosen.map(abort).collect()
    }

    /// Expects data for a task. The receiver resolves once all has arrived.
    pub fn expect(&self, itt: u32, coming: Coming) -> oneshot::Receiver<Bytes> {
        let (done, all) = oneshot::channel();
        let transfer = Transfer {
            buffer: coming.immediate.into(),
            want_bytes: coming.want_bytes,
            burst_end: coming.unasked_end.unwrap_or_default(),
            tag: RESERVED_TAG,
            data_sn: 0,
            is_under_way: coming.unasked_end.is_some(),
            is_granted: false,
            done,
        };
        if let Some(entry) = self.0.lock().get_mut(&itt) {
            entry.transfer = Some(transfer);
        }
        all
    }

    /// Records that memory for all data of a task has been granted.
    pub fn grant(&self, itt: u32, burst_bytes: usize) -> After {
        let mut table = self.0.lock();
        let Some(entry) = table.get_mut(&itt) else { return After::Nothing };
        if let Some(transfer) = &mut entry.transfer {
            transfer.is_granted = true;
        }
        entry.go_on(itt, burst_bytes)
    }

    /// Returns the buffer for a Data-Out PDU; `None` if its task does not expect data. Data that violates the
    /// R2T fails the transfer: the command gets none.
    pub fn piece(&self, bhs: &Bhs) -> Option<BytesMut> {
        let mut table = self.0.lock();
        let entry = table.get_mut(&bhs.itt())?;
        let transfer = entry.transfer.as_mut()?;
        let start = bhs.word(at::OFFSET) as usize;
        let is_expected = transfer.is_under_way
            && bhs.word(at::TTT) == transfer.tag
            && bhs.word(at::DATA_SN) == transfer.data_sn
            && start == transfer.buffer.len()
            && start + bhs.data_bytes() <= transfer.burst_end;
        if !is_expected {
            entry.transfer = None;
            return None;
        }
        transfer.data_sn += 1;
        Some(std::mem::take(&mut transfer.buffer))
    }

    /// Records that a Data-Out PDU has been read.
    pub fn came(&self, bhs: &Bhs, buffer: BytesMut, burst_bytes: usize) -> After {
        let mut table = self.0.lock();
        let Some(entry) = table.get_mut(&bhs.itt()) else { return After::Nothing };
        let Some(transfer) = &mut entry.transfer else { return After::Nothing };
        transfer.buffer = buffer;
        if bhs.is_final() || transfer.buffer.len() == transfer.burst_end {
            transfer.is_under_way = false;
        }
        entry.go_on(bhs.itt(), burst_bytes)
    }
}

impl Entry {
    /// Between bursts: delivers the data if complete, else asks for more.
    fn go_on(&mut self, itt: u32, burst_bytes: usize) -> After {
        let Some(mut transfer) = self.transfer.take_if(|transfer| !transfer.is_under_way) else {
            return After::Nothing;
        };
        let there = transfer.buffer.len();
        if there >= transfer.want_bytes {
            transfer.buffer.truncate(transfer.want_bytes);
            transfer.done.send(transfer.buffer.freeze()).ok();
            return After::Nothing;
        }
        if !transfer.is_granted {
            self.transfer = Some(transfer);
            return After::Nothing;
        }
        let (ask, number) = ((transfer.want_bytes - there).min(burst_bytes), transfer.tag.wrapping_add(1));
        transfer.buffer.reserve(transfer.want_bytes - there);
        // The target transfer tag is the R2TSN, which begins at 0 in each task.
        (transfer.tag, transfer.data_sn) = (number, 0);
        (transfer.burst_end, transfer.is_under_way) = (there + ask, true);
        self.transfer = Some(transfer);
        let bhs = Bhs::new(opcode::R2T, FINAL)
            .with(at::ITT, itt)
            .with(at::TTT, number)
            .with(at::DATA_SN, number)
            .with(at::OFFSET, there as u32)
            .with(at::LEN, ask as u32);
        After::Ask(bhs)
    }
}
