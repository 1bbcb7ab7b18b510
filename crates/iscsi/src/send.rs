//! Sends responses. Sequence numbers are assigned in the order of sending.
//!
//! ```text
//!   StatSN    counts responses            ExpCmdSN   the next command expected
//!   MaxCmdSN  the last command allowed: ExpCmdSN + QUEUE_DEPTH - unanswered - 1
//! ```

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Bytes, BytesMut};
use cenote_disk::stream::{PIECES, write_pieces};
use cenote_disk::{Ended, Limits, Permits, Result, Share};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::pdu::{Bhs, Digests, at, put_pdu};

/// Numbered commands in progress per session.
pub const QUEUE_DEPTH: u32 = 128;
/// Immediate commands in progress per session. The window does not limit these.
const IMMEDIATE_MAX: u32 = 64;

/// What a PDU answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// A numbered command.
    Numbered,
    /// An immediate command.
    Immediate,
    /// No command, or not its final PDU.
    Nothing,
}

/// The window of commands that may arrive.
#[derive(Debug)]
pub struct Window {
    expected: AtomicU32,
    unanswered: AtomicU32,
    immediate: AtomicU32,
}

impl Window {
    /// Begins at this CmdSN.
    pub fn new(expected: u32) -> Window {
        Window { expected: expected.into(), unanswered: 0.into(), immediate: 0.into() }
    }

    /// Admits and counts a numbered command. Returns false if the command must be ignored.
    ///
    /// # Errors
    /// An earlier command is missing. On a single connection it will never arrive.
    pub fn admit(&self, number: u32) -> Result<bool> {
        let expected = self.expected.load(Ordering::Relaxed);
        let room = QUEUE_DEPTH - self.unanswered.load(Ordering::Relaxed).min(QUEUE_DEPTH);
        let ahead = number.wrapping_sub(expected);
        if ahead >= room {
            return Ok(false);
        }
        if ahead > 0 {
            return Err(Ended::Protocol("it leaves a command out"));
        }
        // In this order, so that no reader sees too wide a window.
        self.unanswered.fetch_add(1, Ordering::Release);
        self.expected.store(expected.wrapping_add(1), Ordering::Release);
        Ok(true)
    }

    /// Counts an immediate command.
    ///
    /// # Errors
    /// Too many are in progress.
    pub fn admit_immediate(&self) -> Result<()> {
        match self.immediate.fetch_add(1, Ordering::Relaxed) < IMMEDIATE_MAX {
            true => Ok(()),
            false => Err(Ended::Protocol("it wants too much to be done at once")),
        }
    }

    /// Releases an answered command.
    pub fn answered(&self, answers: Answers) {
        match answers {
            Answers::Numbered => drop(self.unanswered.fetch_sub(1, Ordering::Release)),
            Answers::Immediate => drop(self.immediate.fetch_sub(1, Ordering::Relaxed)),
            Answers::Nothing => {}
        }
    }

    fn numbers(&self) -> (u32, u32) {
        let expected = self.expected.load(Ordering::Acquire);
        let room = QUEUE_DEPTH - self.unanswered.load(Ordering::Acquire).min(QUEUE_DEPTH);
        (expected, expected.wrapping_add(room).wrapping_sub(1))
    }
}

/// How a PDU uses StatSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// A response: takes the next number.
    Takes,
    /// Carries the next number without taking it.
    Shows,
    /// Carries none.
    None,
}

/// A PDU queued for sending.
pub struct Outgoing {
    /// Header.
    pub bhs: Bhs,
    /// Data.
    pub data: Bytes,
    /// Use of StatSN.
    pub number: Number,
    /// Answered command, which leaves the window.
    pub answers: Answers,
    /// Memory held by its command.
    pub _permits: Option<Permits>,
}

impl Outgoing {
    /// A plain response.
    pub fn response(bhs: Bhs, data: Bytes, answers: Answers) -> Outgoing {
        Outgoing { bhs, data, number: Number::Takes, answers, _permits: None }
    }
}

/// Sends queued PDUs until the queue is closed.
pub async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    mut waiting: mpsc::UnboundedReceiver<Outgoing>,
    window: &Window,
    mut stat_sn: u32,
    digests: Digests,
    (limits, share): (&Limits, &Share),
) -> Result<()> {
    let mut batch = Vec::with_capacity(PIECES);
    let (mut pieces, mut arena) = (Vec::new(), BytesMut::new());
    while waiting.recv_many(&mut batch, PIECES).await > 0 {
        pieces.clear();
        for outgoing in &mut batch {
            window.answered(outgoing.answers);
            let bhs = &mut outgoing.bhs;
            let (expected, max) = window.numbers();
            bhs.put(at::EXP_CMD_SN, expected);
            bhs.put(at::MAX_CMD_SN, max);
            if outgoing.number != Number::None {
                bhs.put(at::STAT_SN, stat_sn);
            }
            if outgoing.number == Number::Takes {
                stat_sn = stat_sn.wrapping_add(1);
            }
            let bhs = bhs.with_data_bytes(outgoing.data.len());
            put_pdu(&mut pieces, &mut arena, &bhs, &outgoing.data, digests);
        }
        let bytes = pieces.iter().map(Bytes::len).sum();
        limits.patiently(share, bytes, write_pieces(writer, &mut pieces)).await?;
        batch.clear();
    }
    writer.shutdown().await.ok();
    Ok(())
}
