//! PDUs, the protocol's messages: reading and writing. All integers are big-endian.
//!
//! ```text
//!   basic header segment, 48 bytes                                 digest  data      padding  digest
//!   | opcode | flags | .. | AHS words, data bytes | LUN | ITT | ... | (4)  | ....... | 0..3 |  (4)  |
//!   0        1        4    5..8                    8     16    20
//! ```
//!
//! Additional header segments follow the basic one. Disks need none of them, so they are read and dropped. A
//! wrong digest ends the connection (error recovery level 0).
//!
//! Source: RFC 7143, section 11.

use bytes::{Buf, Bytes, BytesMut};
use cenote_disk::stream::{append, payload};
use cenote_disk::{Ended, Result};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a basic header segment.
pub const BHS_BYTES: usize = 48;
/// Reserved tag or number: none.
pub const RESERVED_TAG: u32 = 0xffff_ffff;
const DIGEST_BYTES: usize = 4;
const READ_AHEAD_BYTES: usize = 64 << 10;

/// PDU types.
#[allow(missing_docs)] // names of the protocol
pub mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// The F bit: the last PDU of a sequence.
pub const FINAL: u8 = 0x80;
/// The C bit of Login and Text: more keys follow.
pub const CONTINUES: u8 = 0x40;

/// Offsets of header words.
#[allow(missing_docs)]
pub mod at {
    pub const LUN: usize = 8;
    pub const ITT: usize = 16;
    /// Target transfer tag.
    pub const TTT: usize = 20;
    pub const EXPECTED_BYTES: usize = 20;
    /// From initiators.
    pub const CMD_SN: usize = 24;
    /// From targets.
    pub const STAT_SN: usize = 24;
    pub const EXP_CMD_SN: usize = 28;
    pub const MAX_CMD_SN: usize = 32;
    pub const CDB: usize = 32;
    pub const DATA_SN: usize = 36;
    pub const OFFSET: usize = 40;
    pub const LEN: usize = 44;
    pub const RESIDUAL: usize = 44;
}

/// A basic header segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_BYTES]);

impl Bhs {
    /// An empty header.
    pub fn new(opcode: u8, flags: u8) -> Bhs {
        let mut bhs = Bhs([0; BHS_BYTES]);
        (bhs.0[0], bhs.0[1]) = (opcode, flags);
        bhs
    }

    /// PDU type.
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// Whether the command is immediate, outside the order of commands.
    pub fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Opcode-specific flags.
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Whether this PDU ends a sequence.
    pub fn is_final(&self) -> bool {
        self.0[1] & FINAL != 0
    }

    fn ahs_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Length of the data segment.
    pub fn data_bytes(&self) -> usize {
        self.word(4) as usize & 0xff_ffff
    }

    /// Initiator task tag.
    pub fn itt(&self) -> u32 {
        self.word(at::ITT)
    }

    /// Logical unit number, by peripheral or flat addressing; `None` if no unit can have it.
    pub fn lun(&self) -> Option<u8> {
        match &self.0[at::LUN..at::LUN + 8] {
            [0 | 0x40, number, 0, 0, 0, 0, 0, 0] => Some(*number),
            _ => None,
        }
    }

    /// Reads a word.
    pub fn word(&self, at: usize) -> u32 {
        self.0[at..at + 4].iter().fold(0, |word, &byte| word << 8 | u32::from(byte))
    }

    /// Sets a word.
    pub fn put(&mut self, at: usize, word: u32) {
        self.0[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }

    /// Builder form of [`Bhs::put`].
    #[must_use]
    pub fn with(mut self, at: usize, word: u32) -> Bhs {
        self.put(at, word);
        self
    }

    /// Sets the data length, as a builder.
    #[must_use]
    pub fn with_data_bytes(mut self, len: usize) -> Bhs {
        self.put(4, u32::from(self.0[4]) << 24 | len as u32 & 0xff_ffff);
        self
    }
}

/// Parts of PDUs protected by digests (CRC32C).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digests {
    /// Headers.
    pub header: bool,
    /// Data.
    pub data: bool,
}

/// Reads PDUs: a header, then its data into a buffer of the caller's choice.
pub struct PduReader<R> {
    reader: R,
    buffer: BytesMut,
    /// Negotiated digests.
    pub digests: Digests,
}

impl<R: AsyncRead + Unpin> PduReader<R> {
    /// Wraps a connection.
    pub fn new(reader: R) -> PduReader<R> {
        let buffer = BytesMut::with_capacity(READ_AHEAD_BYTES);
        PduReader { reader, buffer, digests: Digests::default() }
    }

    /// Waits for the next PDU; false if the connection ended before it.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn has_begun(&mut self) -> Result<bool> {
        self.fill(1).await
    }

    /// Reads the next header; `None` if the connection ended before it.
    ///
    /// # Errors
    /// The connection fails or ends within the header; its digest is wrong.
    pub async fn head(&mut self) -> Result<Option<Bhs>> {
        if !self.fill(BHS_BYTES).await? {
            return Ok(None);
        }
        let mut bhs = Bhs([0; BHS_BYTES]);
        bhs.0.copy_from_slice(&self.buffer[..BHS_BYTES]);
        let header_bytes = BHS_BYTES + bhs.ahs_bytes();
        let digest_bytes = if self.digests.header { DIGEST_BYTES } else { 0 };
        self.fill(header_bytes + digest_bytes).await?;
        if self.digests.header {
            let wanted = crc32c::crc32c(&self.buffer[..header_bytes]).to_le_bytes();
            if self.buffer[header_bytes..][..DIGEST_BYTES] != wanted {
                return Err(Ended::Protocol("the digest of a header is wrong"));
            }
        }
        self.buffer.advance(header_bytes + digest_bytes);
        Ok(Some(bhs))
    }

    /// Buffers at least `len` bytes; false if the connection ended before the first.
    async fn fill(&mut self, len: usize) -> Result<bool> {
        while self.buffer.len() < len {
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(false),
                    false => Err(Ended::Protocol("a message is cut short")),
                };
            }
        }
        Ok(true)
    }

    /// Reads the data of the last header.
    ///
    /// # Errors
    /// The connection ends within it; its digest is wrong.
    pub async fn data(&mut self, len: usize) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let data = payload(&mut self.reader, &mut self.buffer, len).await?;
        self.end_of_data(&data).await?;
        Ok(data)
    }

    /// Like [`PduReader::data`], appended to `whole`.
    ///
    /// # Errors
    /// As [`PduReader::data`].
    pub async fn data_to(&mut self, whole: &mut BytesMut, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let start = whole.len();
        append(&mut self.reader, &mut self.buffer, whole, len).await?;
        self.end_of_data(&whole[start..]).await
    }

    async fn end_of_data(&mut self, data: &[u8]) -> Result<()> {
        let padding_bytes = padding(data.len()).len();
        let rest = padding_bytes + if self.digests.data { DIGEST_BYTES } else { 0 };
        if rest > 0 && !self.fill(rest).await? {
            return Err(Ended::Protocol("a message is cut short"));
        }
        if self.digests.data {
            let sum = crc32c::crc32c_append(crc32c::crc32c(data), &self.buffer[..padding_bytes]);
            if self.buffer[padding_bytes..][..DIGEST_BYTES] != sum.to_le_bytes() {
                return Err(Ended::Protocol("the digest of data is wrong"));
            }
        }
        self.buffer.advance(rest);
        Ok(())
    }
}

/// Padding after `len` bytes of data.
pub fn padding(len: usize) -> Bytes {
    static ZEROS: &[u8] = &[0; 3];
    Bytes::from_static(&ZEROS[..len.next_multiple_of(4) - len])
}

/// A header with its digest.
pub fn encoded(arena: &mut BytesMut, bhs: &Bhs, digests: Digests) -> Bytes {
    arena.extend_from_slice(&bhs.0);
    if digests.header {
        arena.extend_from_slice(&crc32c::crc32c(&bhs.0).to_le_bytes());
    }
    arena.split().freeze()
}

/// Appends a PDU to the pieces to send. The header must hold the data's length.
pub fn put_pdu(pieces: &mut Vec<Bytes>, arena: &mut BytesMut, bhs: &Bhs, data: &Bytes, digests: Digests) {
    debug_assert_eq!(bhs.data_bytes(), data.len());
    pieces.push(encoded(arena, bhs, digests));
    if data.is_empty() {
        return;
    }
    let padding = padding(data.len());
    pieces.push(data.clone());
    if digests.data {
        let sum = crc32c::crc32c_append(crc32c::crc32c(data), &padding);
        arena.extend_from_slice(&padding);
        arena.extend_from_slice(&sum.to_le_bytes());
        pieces.push(arena.split().freeze());
    } else if !padding.is_empty() {
        pieces.push(padding);
    }
}
