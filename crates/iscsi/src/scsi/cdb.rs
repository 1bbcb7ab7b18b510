//! Command descriptor blocks: the command table and the layout of fields.
//!
//! Idea: one table holds, for each command, its length, the bits that may be set (as in REPORT SUPPORTED
//! OPERATION CODES), the form of its Data-Out, and its effect on reservations.

use bytes::Bytes;

use super::{BLOCK_BYTES, Sense};

/// Operation codes.
#[allow(missing_docs)] // names of the standards
pub mod op {
    pub const TEST_UNIT_READY: u8 = 0x00;
    pub const REQUEST_SENSE: u8 = 0x03;
    pub const READ_6: u8 = 0x08;
    pub const WRITE_6: u8 = 0x0a;
    pub const INQUIRY: u8 = 0x12;
    pub const MODE_SELECT_6: u8 = 0x15;
    pub const RESERVE_6: u8 = 0x16;
    pub const RELEASE_6: u8 = 0x17;
    pub const MODE_SENSE_6: u8 = 0x1a;
    pub const START_STOP_UNIT: u8 = 0x1b;
    pub const PREVENT_ALLOW: u8 = 0x1e;
    pub const READ_CAPACITY_10: u8 = 0x25;
    pub const READ_10: u8 = 0x28;
    pub const WRITE_10: u8 = 0x2a;
    pub const WRITE_VERIFY_10: u8 = 0x2e;
    pub const VERIFY_10: u8 = 0x2f;
    pub const PRE_FETCH_10: u8 = 0x34;
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    pub const WRITE_SAME_10: u8 = 0x41;
    pub const UNMAP: u8 = 0x42;
    pub const MODE_SELECT_10: u8 = 0x55;
    pub const RESERVE_10: u8 = 0x56;
    pub const RELEASE_10: u8 = 0x57;
    pub const MODE_SENSE_10: u8 = 0x5a;
    pub const PERSISTENT_RESERVE_IN: u8 = 0x5e;
    pub const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
    pub const EXTENDED_COPY: u8 = 0x83;
    pub const RECEIVE_COPY_RESULTS: u8 = 0x84;
    pub const READ_16: u8 = 0x88;
    pub const COMPARE_AND_WRITE: u8 = 0x89;
    pub const WRITE_16: u8 = 0x8a;
    pub const ORWRITE_16: u8 = 0x8b;
    pub const WRITE_VERIFY_16: u8 = 0x8e;
    pub const VERIFY_16: u8 = 0x8f;
    pub const PRE_FETCH_16: u8 = 0x90;
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub const WRITE_SAME_16: u8 = 0x93;
    pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
    pub const REPORT_LUNS: u8 = 0xa0;
    pub const MAINTENANCE_IN: u8 = 0xa3;
    pub const READ_12: u8 = 0xa8;
    pub const WRITE_12: u8 = 0xaa;
    pub const WRITE_VERIFY_12: u8 = 0xae;
    pub const VERIFY_12: u8 = 0xaf;
}

/// Of `SERVICE ACTION IN (16)`.
pub const READ_CAPACITY_16: u8 = 0x10;
/// Of `SERVICE ACTION IN (16)`.
pub const GET_LBA_STATUS: u8 = 0x12;
/// Of `EXTENDED COPY`: list identifiers of one byte.
pub const EXTENDED_COPY_LID1: u8 = 0x00;
/// Of `RECEIVE COPY RESULTS`.
pub const COPY_OPERATING_PARAMETERS: u8 = 0x03;
/// Of `MAINTENANCE IN`.
pub const REPORT_TARGET_PORT_GROUPS: u8 = 0x0a;
/// Of `MAINTENANCE IN`.
pub const REPORT_SUPPORTED_OPCODES: u8 = 0x0c;

/// Class of a command in reservation conflict checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Never conflicts with a persistent reservation. Under an SPC-2 reservation, only RESERVE and the
    /// PERSISTENT RESERVE commands of this class do.
    Free,
    /// Conflicts with SPC-2 reservations only.
    Looks,
    /// Reads content.
    Read,
    /// Changes the disk.
    Write,
}

/// An entry of the command table.
#[derive(Debug)]
pub struct Known {
    /// Operation code.
    pub opcode: u8,
    /// Service action, if the opcode has several.
    pub action: Option<u8>,
    /// Mask of bits that may be set, without the opcode. Its length gives the CDB's.
    pub usage: &'static [u8],
    /// Reservation class.
    pub access: Access,
    /// Whether write protection applies.
    pub changes_content: bool,
    out: Out,
}

/// Form of a command's Data-Out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    None,
    /// The blocks to write.
    Blocks,
    /// The blocks, if BYTCHK asks for comparison.
    Compared,
    /// The blocks twice: to compare, then to write.
    Twice,
    /// One block, unless NDOB is set.
    One,
    /// Parameter list.
    List,
}

const fn known(opcode: u8, access: Access, out: Out, usage: &'static [u8]) -> Known {
    let changes_content = matches!(out, Out::Blocks | Out::Twice | Out::One) || opcode == op::UNMAP;
    Known { opcode, action: None, usage, access, changes_content, out }
}

const fn action(opcode: u8, action: u8, access: Access, out: Out, usage: &'static [u8]) -> Known {
    Known { action: Some(action), ..known(opcode, access, out, usage) }
}

const PR_IN: &[u8] = &[0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0x07];
const PR_OUT: &[u8] = &[0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x07];
const F: u8 = 0xff;
const SIX: &[u8] = &[0, 0, 0, 0, 7];
const LBA_6: &[u8] = &[0x1f, F, F, F, 7];
const READ_10: &[u8] = &[0xf8, F, F, F, F, 0x3f, F, F, 7];
const READ_12: &[u8] = &[0xf8, F, F, F, F, F, F, F, F, 0x3f, 7];
const READ_16: &[u8] = &[0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7];
const VERIFY_10: &[u8] = &[0xf6, F, F, F, F, 0x3f, F, F, 7];
const VERIFY_12: &[u8] = &[0xf6, F, F, F, F, F, F, F, F, 0x3f, 7];
const VERIFY_16: &[u8] = &[0xf6, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7];
const RANGE_10: &[u8] = &[0x06, F, F, F, F, 0x3f, F, F, 7];
const RANGE_16: &[u8] = &[0x06, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7];
const COPY_16: &[u8] = &[0x1f, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 7];
const ACTION_16: &[u8] = &[0x1f, F, F, F, F, F, F, F, F, F, F, F, F, 0x01, 7];

use Access::{Free, Looks, Read, Write};

/// All supported commands, by opcode.
pub const KNOWN: &[Known] = &[
    known(op::TEST_UNIT_READY, Looks, Out::None, SIX),
    known(op::REQUEST_SENSE, Free, Out::None, &[1, 0, 0, F, 7]),
    known(op::READ_6, Read, Out::None, LBA_6),
    known(op::WRITE_6, Write, Out::Blocks, LBA_6),
    known(op::INQUIRY, Free, Out::None, &[1, F, F, F, 7]),
    known(op::MODE_SELECT_6, Write, Out::List, &[0x11, 0, 0, F, 7]),
    known(op::RESERVE_6, Free, Out::None, SIX),
    known(op::RELEASE_6, Free, Out::None, SIX),
    known(op::MODE_SENSE_6, Read, Out::None, &[8, F, F, F, 7]),
    known(op::START_STOP_UNIT, Looks, Out::None, &[1, 0, 0x0f, 0xf7, 7]),
    known(op::PREVENT_ALLOW, Looks, Out::None, &[0, 0, 0, 3, 7]),
    known(op::READ_CAPACITY_10, Looks, Out::None, &[0, F, F, F, F, 0, 0, 1, 7]),
    known(op::READ_10, Read, Out::None, READ_10),
    known(op::WRITE_10, Write, Out::Blocks, READ_10),
    known(op::WRITE_VERIFY_10, Write, Out::Blocks, VERIFY_10),
    known(op::VERIFY_10, Read, Out::Compared, VERIFY_10),
    known(op::PRE_FETCH_10, Read, Out::None, RANGE_10),
    known(op::SYNCHRONIZE_CACHE_10, Write, Out::None, RANGE_10),
    known(op::WRITE_SAME_10, Write, Out::One, &[0xf8, F, F, F, F, 0x3f, F, F, 7]),
    known(op::UNMAP, Write, Out::List, &[1, 0, 0, 0, 0, 0x3f, F, F, 7]),
    known(op::MODE_SELECT_10, Write, Out::List, &[0x11, 0, 0, 0, 0, 0, F, F, 7]),
    known(op::RESERVE_10, Free, Out::None, &[0, 0, 0, 0, 0, 0, 0, 0, 7]),
    known(op::RELEASE_10, Free, Out::None, &[0, 0, 0, 0, 0, 0, 0, 0, 7]),
    known(op::MODE_SENSE_10, Read, Out::None, &[0x18, F, F, 0, 0, 0, F, F, 7]),
    action(op::PERSISTENT_RESERVE_IN, 0, Free, Out::None, PR_IN),
    action(op::PERSISTENT_RESERVE_IN, 1, Free, Out::None, PR_IN),
    action(op::PERSISTENT_RESERVE_IN, 2, Free, Out::None, PR_IN),
    action(op::PERSISTENT_RESERVE_IN, 3, Free, Out::None, PR_IN),
    action(op::PERSISTENT_RESERVE_OUT, 0, Free, Out::List, PR_OUT),
    action(op::PERSISTENT_RESERVE_OUT, 1, Free, Out::List, PR_OUT),
    action(op::PERSISTENT_RESERVE_OUT, 2, Free, Out::List, PR_OUT),
    action(op::PERSISTENT_RESERVE_OUT, 3, Free, Out::List, PR_OUT),
    action(op::PERSISTENT_RESERVE_OUT, 4, Free, Out::List, PR_OUT),
    action(op::PERSISTENT_RESERVE_OUT, 5, Free, Out::List, PR_OUT),
    action(op::PERSISTENT_RESERVE_OUT, 6, Free, Out::List, PR_OUT),
    action(op::EXTENDED_COPY, EXTENDED_COPY_LID1, Write, Out::List, COPY_16),
    action(op::RECEIVE_COPY_RESULTS, COPY_OPERATING_PARAMETERS, Free, Out::None, COPY_16),
    known(op::READ_16, Read, Out::None, READ_16),
    known(op::COMPARE_AND_WRITE, Write, Out::Twice, &[0xf8, F, F, F, F, F, F, F, F, 0, 0, 0, F, 0x3f, 7]),
    known(op::WRITE_16, Write, Out::Blocks, READ_16),
    known(op::ORWRITE_16, Write, Out::Blocks, READ_16),
    known(op::WRITE_VERIFY_16, Write, Out::Blocks, VERIFY_16),
    known(op::VERIFY_16, Read, Out::Compared, VERIFY_16),
    known(op::PRE_FETCH_16, Read, Out::None, RANGE_16),
    known(op::SYNCHRONIZE_CACHE_16, Write, Out::None, RANGE_16),
    known(op::WRITE_SAME_16, Write, Out::One, &[0xf9, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7]),
    action(op::SERVICE_ACTION_IN_16, READ_CAPACITY_16, Looks, Out::None, ACTION_16),
    action(op::SERVICE_ACTION_IN_16, GET_LBA_STATUS, Read, Out::None, ACTION_16),
    known(op::REPORT_LUNS, Free, Out::None, &[0, F, 0, 0, 0, F, F, F, F, 0, 7]),
    action(
        op::MAINTENANCE_IN,
        REPORT_TARGET_PORT_GROUPS,
        Free,
        Out::None,
        &[F, 0, 0, 0, 0, F, F, F, F, 0, 7],
    ),
    action(
        op::MAINTENANCE_IN,
        REPORT_SUPPORTED_OPCODES,
        Free,
        Out::None,
        &[0x1f, 0x87, F, F, F, F, F, F, F, 0, 7],
    ),
    known(op::READ_12, Read, Out::None, READ_12),
    known(op::WRITE_12, Write, Out::Blocks, READ_12),
    known(op::WRITE_VERIFY_12, Write, Out::Blocks, VERIFY_12),
    known(op::VERIFY_12, Read, Out::Compared, VERIFY_12),
];

/// A command descriptor block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cdb(pub [u8; 16]);

impl Cdb {
    /// Operation code.
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Service action, of opcodes with one.
    pub fn action(&self) -> u8 {
        self.0[1] & 0x1f
    }

    /// Reads a byte.
    pub fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// Reads a big-endian number.
    pub fn number(&self, at: usize, bytes: usize) -> u64 {
        self.0[at..at + bytes].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// Looks the command up in the table.
    pub fn known(&self) -> Option<&'static Known> {
        let start = KNOWN.partition_point(|known| known.opcode < self.opcode());
        let same = KNOWN[start..].iter().take_while(|known| known.opcode == self.opcode());
        { same }.find(|known| known.action.is_none_or(|action| action == self.action()))
    }

    /// Sense for a command missing from the table.
    pub(super) fn unknown(&self) -> Sense {
        match KNOWN.iter().any(|known| known.opcode == self.opcode()) {
            true => Sense::INVALID_FIELD,
            false => Sense::INVALID_OPCODE,
        }
    }

    /// Length in bytes.
    fn len(&self) -> usize {
        match self.opcode() >> 5 {
            0 => 6,
            1 | 2 => 10,
            4 => 16,
            _ => 12,
        }
    }

    /// The control byte.
    pub fn control(&self) -> u8 {
        self.0[self.len() - 1]
    }

    /// First block and block count.
    pub fn blocks(&self) -> (u64, u64) {
        match self.len() {
            // 0 means 256.
            6 => (self.number(1, 3) & 0x1f_ffff, (self.number(4, 1) + 255) % 256 + 1),
            10 => (self.number(2, 4), self.number(7, 2)),
            12 => (self.number(2, 4), self.number(6, 4)),
            _ if self.opcode() == op::COMPARE_AND_WRITE => (self.number(2, 8), self.number(13, 1)),
            _ => (self.number(2, 8), self.number(10, 4)),
        }
    }

    /// Allocation length or parameter list length.
    pub fn list_bytes(&self) -> u64 {
        match (self.opcode(), self.len()) {
            (op::INQUIRY, _) => self.number(3, 2),
            (op::PERSISTENT_RESERVE_OUT, _) => self.number(5, 4),
            (op::SERVICE_ACTION_IN_16 | op::EXTENDED_COPY | op::RECEIVE_COPY_RESULTS, _) => {
                self.number(10, 4)
            }
            (_, 6) => self.number(4, 1),
            (_, 10) => self.number(7, 2),
            _ => self.number(6, 4),
        }
    }

    /// Truncates an answer to the allocation length.
    pub fn cut(&self, mut answer: Vec<u8>) -> Bytes {
        answer.truncate(usize::try_from(self.list_bytes()).unwrap_or(usize::MAX));
        answer.into()
    }

    /// Data-Out bytes that the command needs.
    pub fn out_bytes(&self) -> u64 {
        let blocks = || self.blocks().1 * BLOCK_BYTES;
        match self.known().map_or(Out::None, |known| known.out) {
            Out::None => 0,
            Out::Blocks => blocks(),
            Out::Compared if self.byte(1) & 6 == 2 => blocks(),
            // BYTCHK 11: one block for all.
            Out::Compared if self.byte(1) & 6 == 6 => BLOCK_BYTES.min(blocks()),
            Out::Compared => 0,
            Out::Twice => 2 * blocks(),
            // NDOB: no Data-Out block.
            Out::One if self.opcode() == op::WRITE_SAME_16 && self.byte(1) & 1 != 0 => 0,
            Out::One => BLOCK_BYTES,
            Out::List => self.list_bytes(),
        }
    }

    /// Whether the Data-Out length must match exactly.
    pub(super) fn is_exact(&self) -> bool {
        self.known().is_some_and(|known| matches!(known.out, Out::Twice | Out::One))
    }

    /// Most Data-In bytes of the command.
    pub fn in_bytes(&self) -> u64 {
        match self.opcode() {
            op::READ_6 | op::READ_10 | op::READ_12 | op::READ_16 => self.blocks().1 * BLOCK_BYTES,
            _ if self.out_bytes() == 0 => self.list_bytes().min(64 << 10),
            _ => 0,
        }
    }
}
