//! Commands under way in a session, and data that comes for them.
//!
//! ```text
//!   command with data to come --> unasked data (F ends it) --> R2T, data (F ends it) --> ... --> all there
//! ```
//!
//! Idea: bursts come one after the other and in order, so that data is appended to one buffer, straight from
//! the connection. Memory for more than what comes unasked is granted first: nothing is asked for before.
//!
//! A task that is aborted says nothing any more; who aborts it waits until it has ended, so that what it
//! changed does not come after what the initiator does next.
//!
//! Locking: the table is locked for one look or change.

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
    /// The unit that it is for, if there may be one.
    lun: Option<u8>,
    is_aborted: bool,
    /// They learn of the end when these are dropped.
    waiting: Vec<oneshot::Sender<()>>,
    transfer: Option<Transfer>,
}

/// Data that comes for a task.
struct Transfer {
    buffer: BytesMut,
    /// All that the command needs.
    want_bytes: usize,
    /// Where the burst under way ends at the latest.
    burst_end: usize,
    /// The tag of what was asked for; none: the burst comes unasked.
    tag: u32,
    data_sn: u32,
    is_under_way: bool,
    is_granted: bool,
    done: oneshot::Sender<Bytes>,
}

/// How data comes for a command.
pub struct Coming {
    /// What came with it.
    pub immediate: Bytes,
    /// All that it needs.
    pub want_bytes: usize,
    /// Where data ends at the latest that comes unasked, if any does.
    pub unasked_end: Option<usize>,
}

/// What happens when a burst is over.
pub enum After {
    /// Nothing yet.
    Nothing,
    /// More is asked for.
    Ask(Bhs),
}

impl Tasks {
    /// Writes a task down.
    ///
    /// # Errors
    /// There is one with this tag.
    pub fn begin(&self, itt: u32, lun: Option<u8>) -> Result<()> {
        match self.0.lock().insert(itt, Entry { lun, ..Entry::default() }) {
            None => Ok(()),
            Some(_) => Err(Ended::Protocol("it uses a task tag twice")),
        }
    }

    /// Strikes a task off; whether it was aborted.
    pub fn end(&self, itt: u32) -> bool {
        self.0.lock().remove(&itt).is_some_and(|entry| entry.is_aborted)
    }

    /// Whether a task is under way.
    pub fn has(&self, itt: u32) -> bool {
        self.0.lock().contains_key(&itt)
    }

    /// Aborts the tasks that are chosen, by tag and unit, and waits for their end.
    pub async fn abort(&self, chosen: impl Fn(u32, Option<u8>) -> bool) {
        for end in self.stop(chosen) {
            end.await.ok();
        }
    }

    /// Aborts the tasks that are chosen; what this returns tells of their end. None waits for data any more.
    pub fn stop(&self, chosen: impl Fn(u32, Option<u8>) -> bool) -> Vec<oneshot::Receiver<()>> {
        let mut table = self.0.lock();
        let chosen = table.iter_mut().filter(|(itt, entry)| chosen(**itt, entry.lun));
        let abort = |(_, entry): (&u32, &mut Entry)| {
            let (waiting, end) = oneshot::channel();
            entry.is_aborted = true;
            entry.transfer = None;
            entry.waiting.push(waiting);
            end
        };
        chosen.map(abort).collect()
    }

    /// Data will come for a task. What this returns has it when all is there.
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

    /// There is memory for all data of a task.
    pub fn grant(&self, itt: u32, burst_bytes: usize) -> After {
        let mut table = self.0.lock();
        let Some(entry) = table.get_mut(&itt) else { return After::Nothing };
        if let Some(transfer) = &mut entry.transfer {
            transfer.is_granted = true;
        }
        entry.go_on(itt, burst_bytes)
    }

    /// A piece of data comes: the buffer for it; none if nobody wants it. If it is not what was asked for,
    /// its command gets no data.
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

    /// A piece of data has come.
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
    /// When no burst is under way: hands all data over, or asks for more.
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
        // Tags are the numbers of R2Ts, which begin with 0 in each task.
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
