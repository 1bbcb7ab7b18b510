//! SCSI commands, as the client sends them.
//!
//! Source: SPC-4, SBC-3.

use bytes::{BufMut, Bytes, BytesMut};
use cenote_iscsi::scsi::cdb::{READ_CAPACITY_16, op};

use crate::requests::{Ask, Kind};

/// FUA: durable once answered.
const FUA: u8 = 0x08;
/// Most data of an answer that describes the disk.
pub(super) const REPORT_BYTES: u16 = 252;
/// Most data of a list of keys: 1,023 of them.
const KEYS_BYTES: u16 = 8192;
/// "Write exclusive, registrants only".
const REGISTRANTS_WRITE: u8 = 5;
/// The registration outlives a power cut (APTPL).
const PERSISTS: u8 = 0x01;

/// A command.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) cdb: [u8; 16],
    /// Data to send.
    pub(super) out: Vec<Bytes>,
    /// Most data of the answer.
    pub(super) in_bytes: u32,
}

impl Command {
    fn new(start: &[u8], in_bytes: u32) -> Command {
        let mut cdb = [0; 16];
        cdb[..start.len()].copy_from_slice(start);
        Command { cdb, out: Vec::new(), in_bytes }
    }

    pub(super) fn out_bytes(&self) -> u32 {
        self.out.iter().map(|piece| piece.len() as u32).sum()
    }

    pub(super) fn test_unit_ready() -> Command {
        Command::new(&[op::TEST_UNIT_READY], 0)
    }

    pub(super) fn inquiry() -> Command {
        let [high, low] = REPORT_BYTES.to_be_bytes();
        Command::new(&[op::INQUIRY, 0, 0, high, low], REPORT_BYTES.into())
    }

    /// A page of vital product data.
    pub(super) fn vital(page: u8) -> Command {
        let [high, low] = REPORT_BYTES.to_be_bytes();
        Command::new(&[op::INQUIRY, 1, page, high, low], REPORT_BYTES.into())
    }

    pub(super) fn read_capacity() -> Command {
        const BYTES: u8 = 32;
        let mut command = Command::new(&[op::SERVICE_ACTION_IN_16, READ_CAPACITY_16], BYTES.into());
        command.cdb[13] = BYTES;
        command
    }

    /// All mode pages, for their header.
    pub(super) fn mode_sense() -> Command {
        const NO_BLOCK_DESCRIPTORS: u8 = 0x08;
        const ALL: u8 = 0x3f;
        let start = [op::MODE_SENSE_6, NO_BLOCK_DESCRIPTORS, ALL, 0, REPORT_BYTES as u8];
        Command::new(&start, REPORT_BYTES.into())
    }

    pub(super) fn synchronize_cache() -> Command {
        Command::new(&[op::SYNCHRONIZE_CACHE_16], 0)
    }

    fn reserve_in(action: u8, bytes: u16) -> Command {
        let [high, low] = bytes.to_be_bytes();
        Command::new(&[op::PERSISTENT_RESERVE_IN, action, 0, 0, 0, 0, 0, high, low], bytes.into())
    }

    pub(super) fn read_keys() -> Command {
        Command::reserve_in(0, KEYS_BYTES)
    }

    pub(super) fn read_reservation() -> Command {
        Command::reserve_in(1, REPORT_BYTES)
    }

    pub(super) fn report_capabilities() -> Command {
        Command::reserve_in(2, REPORT_BYTES)
    }

    fn reserve_out(action: u8, kind: u8, key: u64, other: u64, flags: u8) -> Command {
        let mut list = BytesMut::with_capacity(24);
        list.put_u64(key);
        list.put_u64(other);
        list.put_slice(&[0, 0, 0, 0, flags, 0, 0, 0]);
        let start = [op::PERSISTENT_RESERVE_OUT, action, kind, 0, 0, 0, 0, 0, list.len() as u8];
        Command { out: vec![list.freeze()], ..Command::new(&start, 0) }
    }

    /// Registers a key, whatever was registered before.
    pub(super) fn register(key: u64) -> Command {
        Command::reserve_out(6, 0, 0, key, PERSISTS)
    }

    /// Withdraws a key, and the reservation with it. Those of others go on to outlive power cuts.
    pub(super) fn unregister(key: u64) -> Command {
        Command::reserve_out(0, 0, key, 0, PERSISTS)
    }

    pub(super) fn reserve(key: u64) -> Command {
        Command::reserve_out(1, REGISTRANTS_WRITE, key, 0, 0)
    }

    /// Withdraws another key, takes its reservation over, and aborts its commands (PREEMPT AND ABORT).
    pub(super) fn preempt(key: u64, victim: u64) -> Command {
        Command::reserve_out(5, REGISTRANTS_WRITE, key, victim, 0)
    }

    /// The command for a request, on blocks of this size.
    pub(super) fn of(ask: &Ask, block_bytes: u32) -> Command {
        let (first, count) = (ask.offset / u64::from(block_bytes), ask.len / block_bytes);
        let on_blocks = |opcode: u8, flags: u8| {
            let mut command = Command::new(&[opcode, flags], 0);
            command.cdb[2..10].copy_from_slice(&first.to_be_bytes());
            command.cdb[10..14].copy_from_slice(&count.to_be_bytes());
            command
        };
        match ask.kind {
            Kind::Read => Command { in_bytes: ask.len, ..on_blocks(op::READ_16, 0) },
            Kind::Write | Kind::Zeroes => {
                let flags = if ask.is_through { FUA } else { 0 };
                Command { out: ask.data.clone(), ..on_blocks(op::WRITE_16, flags) }
            }
            Kind::Flush => Command::synchronize_cache(),
            Kind::Trim => {
                let mut list = BytesMut::with_capacity(24);
                // Bytes that follow the length; bytes of descriptors, which are one.
                list.put_u16(22);
                list.put_u16(16);
                list.put_u32(0);
                list.put_u64(first);
                list.put_u32(count);
                list.put_u32(0);
                let start = [op::UNMAP, 0, 0, 0, 0, 0, 0, 0, list.len() as u8];
                Command { out: vec![list.freeze()], ..Command::new(&start, 0) }
            }
        }
    }
}
