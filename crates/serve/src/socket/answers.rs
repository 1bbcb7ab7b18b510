//! Frames sent to a client: kind (1 byte), length (4 bytes, little endian), content.

use std::io::{self, Read, Write};

pub(super) const CONTENT_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The command ended; one byte: its exit status.
    Status = 0,
    /// The prompt for a secret.
    Message = 2,
    /// The command does not run; the reason.
    Refused = 3,
    /// A note or progress: a `Told` as JSON.
    Told = 4,
    /// The next piece of a verb's JSON answer.
    Answer = 5,
    /// The verb failed: a `Failure` as JSON.
    Failed = 6,
    /// A piece of a part of the answer, which is JSON. The last piece is shorter than the longest content.
    Part = 7,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Status, Kind::Message, Kind::Refused, Kind::Told, Kind::Answer, Kind::Failed, Kind::Part];
}

/// Sends a frame of at most [`CONTENT_BYTES_MAX`].
pub(super) fn send(mut stream: impl Write, kind: Kind, content: &[u8]) -> io::Result<()> {
    let mut answer = vec![kind as u8];
    answer.extend((content.len() as u32).to_le_bytes());
    answer.extend(content);
    stream.write_all(&answer)
}

pub(super) fn receive(mut stream: impl Read) -> io::Result<(Kind, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
    let Some(kind) = kind.filter(|_| length <= CONTENT_BYTES_MAX) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the daemon is of another version"));
    };
    let mut content = vec![0; length];
    stream.read_exact(&mut content)?;
    Ok((kind, content))
}
