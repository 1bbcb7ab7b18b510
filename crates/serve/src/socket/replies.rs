//! Messages and answers to a verb's client.
//!
//! Locking: a mutex on the stream is held for one message. A client that takes nothing within its attendant's
//! patience counts as gone: further messages are lost.

use std::io;
use std::os::unix::net::UnixStream;

use cenote_control::remote::{Failure, Told};
use parking_lot::Mutex;
use serde::Serialize;

use super::answers::{self, CONTENT_BYTES_MAX, Kind};

pub(super) const ANSWER_BYTES_MAX: usize = 1 << 30;
pub(super) const PART_BYTES_MAX: usize = 64 << 20;
const TEXT_BYTES_MAX: usize = CONTENT_BYTES_MAX / 8;

/// A client's receiving side.
#[derive(Debug)]
pub struct Replies(Mutex<UnixStream>);

impl Replies {
    pub(super) fn to(stream: UnixStream) -> Replies {
        Replies(Mutex::new(stream))
    }

    /// Sends a message while the verb runs.
    pub fn tell(&self, told: &Told) {
        self.send_json(Kind::Told, told);
    }

    /// Shows a plain text: the prompt for a secret.
    pub fn show(&self, text: &str) {
        let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
        self.send(Kind::Message, &text.as_bytes()[..end.unwrap_or(0)]);
    }

    /// Sends the answer.
    pub fn answer(&self, json: &[u8]) {
        if json.len() > ANSWER_BYTES_MAX {
            let text = "the answer is longer than 1 GiB; ask for less at a time".to_owned();
            return self.fail(&Failure { text, status: 1 });
        }
        json.chunks(CONTENT_BYTES_MAX).for_each(|part| self.send(Kind::Answer, part));
    }

    /// Sends a part, and waits until the client has it.
    ///
    /// # Errors
    /// The client is gone; the part is too long.
    pub fn part(&self, json: &[u8]) -> io::Result<()> {
        if json.len() > PART_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a part of it is longer than 64 MiB"));
        }
        let stream = self.0.lock();
        json.chunks(CONTENT_BYTES_MAX).try_for_each(|piece| answers::send(&*stream, Kind::Part, piece))?;
        match json.len().is_multiple_of(CONTENT_BYTES_MAX) {
            true => answers::send(&*stream, Kind::Part, &[]),
            false => Ok(()),
        }
    }

    /// Sends the failure instead of an answer.
    pub fn fail(&self, failure: &Failure) {
        self.send_json(Kind::Failed, failure);
    }

    fn send_json(&self, kind: Kind, value: &impl Serialize) {
        match serde_json::to_vec(value) {
            Ok(json) if json.len() <= CONTENT_BYTES_MAX => self.send(kind, &json),
            _ => self.show("a message of the daemon is too long\n"),
        }
    }

    fn send(&self, kind: Kind, content: &[u8]) {
        answers::send(&*self.0.lock(), kind, content).ok();
    }
}
