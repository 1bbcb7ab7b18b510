//! What is sent: numbers are given in the order of sending.
//!
//! ```text
//!   StatSN    counts responses            ExpCmdSN   the next command that is wanted
//!   MaxCmdSN  the last one that may come: as many as are answered, and QUEUE_DEPTH more
//! ```

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Bytes, BytesMut};
use cenote_disk::stream::{PIECES, write_pieces};
use cenote_disk::{Ended, Limits, Permits, Result, Share};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::pdu::{Bhs, Digests, at, put_pdu};

/// Commands of a session at a time.
pub const QUEUE_DEPTH: u32 = 128;
/// The same of those that are to be carried out at once, which no window holds back.
const IMMEDIATE_MAX: u32 = 64;

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// A command with a number of its own.
    Numbered,
    /// One that was to be carried out at once.
    Immediate,
    /// Nothing, or nothing yet.
    Nothing,
}

/// Which commands may come.
#[derive(Debug)]
pub struct Window {
    expected: AtomicU32,
    unanswered: AtomicU32,
    immediate: AtomicU32,
}

impl Window {
    /// From this number on.
    pub fn new(expected: u32) -> Window {
        Window { expected: expected.into(), unanswered: 0.into(), immediate: 0.into() }
    }

    /// Whether a command of this number comes now, which counts it; false: it is to be ignored.
    ///
    /// # Errors
    /// One before it is missing: on one connection it will never come.
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
        // In this order, so that nobody sees a window that is too wide.
        self.unanswered.fetch_add(1, Ordering::Release);
        self.expected.store(expected.wrapping_add(1), Ordering::Release);
        Ok(true)
    }

    /// Counts a command that is to be carried out at once.
    ///
    /// # Errors
    /// There are too many.
    pub fn admit_immediate(&self) -> Result<()> {
        match self.immediate.fetch_add(1, Ordering::Relaxed) < IMMEDIATE_MAX {
            true => Ok(()),
            false => Err(Ended::Protocol("it wants too much to be done at once")),
        }
    }

    /// A command has been answered.
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

/// Whether a PDU has a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// It is a response: it takes the next one.
    Takes,
    /// It shows which one is next.
    Shows,
    /// It has none.
    None,
}

/// A PDU that waits to be sent.
pub struct Outgoing {
    /// Its header.
    pub bhs: Bhs,
    /// Its data.
    pub data: Bytes,
    /// Its number.
    pub number: Number,
    /// What it answers, which leaves the window.
    pub answers: Answers,
    /// What its command holds.
    pub _permits: Option<Permits>,
}

impl Outgoing {
    /// A response without more.
    pub fn response(bhs: Bhs, data: Bytes, answers: Answers) -> Outgoing {
        Outgoing { bhs, data, number: Number::Takes, answers, _permits: None }
    }
}

/// Sends what is queued until the queue is closed.
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
