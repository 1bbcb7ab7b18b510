//! A client of volumes, by iSCSI: an initiator with one session and one command at a time.
//!
//! ```text
//!   login, one request --> commands: data at once, or when the target asks (R2T) --> data, status, sense
//! ```
//!
//! Idea: messages are built by `cenote-iscsi`'s PDU layer; all above it is written anew. Each session draws
//! its parameters, and each command its form.
//!
//! A target that wants its initiator to leave says so (ASYNC); the initiator leaves at once.
//!
//! Source: RFC 7143; SAM-5 and SBC-3 of T10.

use std::io::{Error, ErrorKind, Result};

use bytes::{BufMut, Bytes, BytesMut};
use cenote_disk::Ended;
use cenote_fuse::Errno;
use cenote_iscsi::pdu::{Bhs, Digests, FINAL, PduReader, at, opcode, put_pdu};
use cenote_iscsi::scsi::cdb::op;
use cenote_iscsi::scsi::status;
use cenote_runtime::Rng;
use cenote_serve::iscsi::NAME;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

use super::Reply;

const SECTOR_BYTES: u64 = 512;
/// Flags of requests and commands.
const IMMEDIATE: u8 = 0x40;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
/// The S bit: a Data-In that carries the status.
const HAS_STATUS: u8 = 1;
/// Bits of the second byte of a CDB.
const FUA: u8 = 0x08;
const UNMAPS: u8 = 0x08;
const NDOB: u8 = 0x01;
/// Login stages.
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// A sense key: the command was not carried out, since the unit has news.
const UNIT_ATTENTION: u8 = 6;
/// News in a row, at most.
const ATTENTIONS_MAX: usize = 8;
/// The most that an initiator may send before it is asked.
const FIRST_BURST_BYTES: u64 = 64 << 10;

/// A session with one target, whose unit 0 is the volume.
pub struct Session {
    reader: PduReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
    rng: Rng,
    digests: Digests,
    has_immediate_data: bool,
    cmd_sn: u32,
    stat_sn: u32,
    itt: u32,
}

/// A command: its CDB, its data, and the most that it reads.
struct Command<'a> {
    cdb: Vec<u8>,
    data: &'a [u8],
    reads_bytes: u64,
}

fn gone() -> Error {
    ErrorKind::ConnectionAborted.into()
}

/// A wrong digest ends the world. A message may be cut short, since the daemon may end within it.
fn io<T>(done: std::result::Result<T, Ended>) -> Result<T> {
    if let Err(Ended::Protocol(why)) = &done {
        assert!(!why.contains("digest"), "the target breaks the protocol: {why}");
    }
    done.map_err(|ended| Error::other(ended.to_string()))
}

/// The target of a volume: small letters, digits and `-` stay as they are.
fn target_of(volume: &str) -> String {
    let name: String = volume
        .chars()
        .map(|char| match char {
            '/' => ":".to_owned(),
            'a'..='z' | '0'..='9' | '-' => char.to_string(),
            other => format!(".{:02x}", other as u32),
        })
        .collect();
    format!("{NAME}:{name}")
}

fn word(value: u64) -> [u8; 4] {
    (value as u32).to_be_bytes()
}

impl Session {
    /// Logs in to a volume's target. `None`: it is refused.
    ///
    /// # Errors
    /// The connection ends.
    pub async fn open(stream: DuplexStream, volume: &str, mut rng: Rng) -> Result<Option<Session>> {
        let (reader, writer) = tokio::io::split(stream);
        let mut yes_or_no = || if rng.chance(0.5) { "Yes" } else { "No" };
        let immediate = yes_or_no();
        let digests = ["None", "CRC32C"][rng.below(2) as usize];
        let (cmd_sn, stat_sn) = (rng.next_u64() as u32, rng.next_u64() as u32);
        let port = rng.next_u64();
        let mut session = Session {
            reader: PduReader::new(reader),
            writer,
            rng,
            digests: Digests::default(),
            has_immediate_data: immediate == "Yes",
            cmd_sn,
            stat_sn,
            itt: 0,
        };
        let keys = [
            format!("InitiatorName={NAME}.world:{port:x}"),
            format!("TargetName={}", target_of(volume)),
            "SessionType=Normal".to_owned(),
            format!("HeaderDigest={digests}"),
            format!("DataDigest={digests}"),
            format!("ImmediateData={immediate}"),
            format!("FirstBurstLength={FIRST_BURST_BYTES}"),
        ];
        let text: String = keys.iter().map(|key| format!("{key}\0")).collect();
        let flags = FINAL | OPERATIONAL << 2 | FULL_FEATURE;
        let mut login =
            Bhs::new(opcode::LOGIN | IMMEDIATE, flags).with(at::CMD_SN, cmd_sn).with(at::EXP_CMD_SN, stat_sn);
        // The ISID: a random one.
        login.0[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, 1]);
        session.send(login, text.as_bytes()).await?;
        let (reply, answer) = session.next().await?;
        assert_eq!(reply.opcode(), opcode::LOGIN_RESPONSE, "the target does not answer a login");
        let login_status = u16::from_be_bytes([reply.0[36], reply.0[37]]);
        if login_status != 0 {
            return Ok(None);
        }
        session.stat_sn = reply.word(at::STAT_SN).wrapping_add(1);
        let has = |key: &str| answer.split(|byte| *byte == 0).any(|pair| pair == key.as_bytes());
        session.has_immediate_data &= has("ImmediateData=Yes");
        session.digests = Digests { header: has("HeaderDigest=CRC32C"), data: has("DataDigest=CRC32C") };
        session.reader.digests = session.digests;
        Ok(Some(session))
    }

    async fn send(&mut self, bhs: Bhs, data: &[u8]) -> Result<()> {
        let (mut pieces, mut arena) = (Vec::new(), BytesMut::new());
        let data = Bytes::copy_from_slice(data);
        put_pdu(&mut pieces, &mut arena, &bhs.with_data_bytes(data.len()), &data, self.digests);
        self.writer.write_all(&pieces.concat()).await
    }

    async fn next(&mut self) -> Result<(Bhs, Bytes)> {
        let bhs = io(self.reader.head().await)?.ok_or_else(gone)?;
        let data = io(self.reader.data(bhs.data_bytes()).await)?;
        Ok((bhs, data))
    }

    /// Carries out a command, again if the unit has news.
    async fn ask(&mut self, command: Command<'_>) -> Result<Reply> {
        for _ in 0..ATTENTIONS_MAX {
            match self.try_once(&command).await? {
                Ok(data) => return Ok(Ok(data)),
                Err(Some(sense)) if sense[2] & 0xf == UNIT_ATTENTION => {}
                Err(sense) => return Ok(Err(errno(sense.as_deref()))),
            }
        }
        panic!("the unit has {ATTENTIONS_MAX} unit attentions in a row");
    }

    /// Its data, or its sense data if there is any.
    async fn try_once(&mut self, command: &Command<'_>) -> Result<std::result::Result<Bytes, Option<Bytes>>> {
        let Command { cdb, data, reads_bytes } = command;
        self.itt = self.itt.wrapping_add(1);
        let flags = match (data.is_empty(), *reads_bytes) {
            (false, _) => WRITES,
            (true, 0) => 0,
            _ => READS,
        };
        let expected_bytes = if data.is_empty() { *reads_bytes } else { data.len() as u64 };
        let mut bhs = Bhs::new(opcode::SCSI_COMMAND, FINAL | flags)
            .with(at::ITT, self.itt)
            .with(at::EXPECTED_BYTES, expected_bytes as u32)
            .with(at::CMD_SN, self.cmd_sn)
            .with(at::EXP_CMD_SN, self.stat_sn);
        bhs.0[at::CDB..][..cdb.len()].copy_from_slice(cdb);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let at_once = self.immediate_bytes(data.len());
        self.send(bhs, &data[..at_once]).await?;
        let mut read = BytesMut::new();
        loop {
            let (reply, came) = self.next().await?;
            if reply.opcode() == opcode::ASYNC {
                return Err(gone());
            }
            assert_eq!(reply.itt(), self.itt, "an answer to another command");
            match reply.opcode() {
                opcode::R2T => {
                    self.bring(&reply, data).await?;
                    continue;
                }
                opcode::DATA_IN => {
                    assert_eq!(reply.word(at::OFFSET) as usize, read.len(), "data out of order");
                    read.put(came);
                    if reply.flags() & HAS_STATUS == 0 {
                        continue;
                    }
                    self.count(&reply);
                    return Ok(if reply.0[3] == status::GOOD { Ok(read.freeze()) } else { Err(None) });
                }
                opcode::SCSI_RESPONSE => {
                    self.count(&reply);
                    return Ok(match reply.0[3] {
                        status::GOOD => Ok(read.freeze()),
                        _ => Err((came.len() > 2).then(|| came.slice(2..))),
                    });
                }
                other => panic!("the target answers a command with opcode {other:#x}"),
            }
        }
    }

    /// The status was taken.
    fn count(&mut self, reply: &Bhs) {
        assert_eq!(reply.word(at::STAT_SN), self.stat_sn, "a status is out of order");
        self.stat_sn = self.stat_sn.wrapping_add(1);
    }

    /// Data sent with a command.
    fn immediate_bytes(&mut self, len: usize) -> usize {
        let most = len.min(FIRST_BURST_BYTES as usize);
        match self.rng.below(3) {
            _ if !self.has_immediate_data => 0,
            0 => 0,
            1 => most,
            _ => self.rng.below(most as u64 / 4 + 1) as usize * 4,
        }
    }

    /// Sends the data that the target asks for, in one message or more.
    async fn bring(&mut self, r2t: &Bhs, data: &[u8]) -> Result<()> {
        let (start, len) = (r2t.word(at::OFFSET) as usize, r2t.word(at::LEN) as usize);
        let part_bytes = 4096 << self.rng.below(4);
        let asked = data.get(start..start + len).expect("the target asks for data that the command has not");
        let count = asked.len().div_ceil(part_bytes);
        for (number, part) in asked.chunks(part_bytes).enumerate() {
            let bhs = Bhs::new(opcode::DATA_OUT, if number + 1 == count { FINAL } else { 0 })
                .with(at::ITT, self.itt)
                .with(at::TTT, r2t.word(at::TTT))
                .with(at::EXP_CMD_SN, self.stat_sn)
                .with(at::DATA_SN, number as u32)
                .with(at::OFFSET, (start + number * part_bytes) as u32);
            self.send(bhs, part).await?;
        }
        Ok(())
    }

    /// READ or WRITE of 10, 12 or 16 bytes.
    fn moving(&mut self, opcodes: [u8; 3], flags: u8, offset: u64, len: u64) -> Vec<u8> {
        let (lba, count) = (offset / SECTOR_BYTES, len / SECTOR_BYTES);
        let form = self.rng.below(3) as usize;
        let mut cdb = vec![opcodes[form], flags];
        match form {
            0 => {
                cdb.extend(word(lba));
                cdb.put_u8(0);
                cdb.put_u16(count as u16);
                cdb.put_u8(0);
            }
            1 => {
                cdb.extend([word(lba), word(count)].concat());
                cdb.put_u16(0);
            }
            _ => {
                cdb.put_u64(lba);
                cdb.extend(word(count));
                cdb.put_u16(0);
            }
        }
        cdb
    }

    /// Reads.
    ///
    /// # Errors
    /// The connection ends; within: the target's error.
    pub async fn read(&mut self, offset: u64, len: u64) -> Result<Reply> {
        let cdb = self.moving([op::READ_10, op::READ_12, op::READ_16], 0, offset, len);
        self.ask(Command { cdb, data: &[], reads_bytes: len }).await
    }

    /// Writes.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub async fn write(&mut self, offset: u64, data: &[u8], is_durable: bool) -> Result<Reply> {
        let (flags, len) = (if is_durable { FUA } else { 0 }, data.len() as u64);
        let cdb = self.moving([op::WRITE_10, op::WRITE_12, op::WRITE_16], flags, offset, len);
        self.ask(Command { cdb, data, reads_bytes: 0 }).await
    }

    /// Zeroes: WRITE SAME with or without a block of zeros, or UNMAP.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub async fn zero(&mut self, offset: u64, len: u64) -> Result<Reply> {
        let (lba, count) = (offset / SECTOR_BYTES, len / SECTOR_BYTES);
        let unmaps = if self.rng.chance(0.5) { UNMAPS } else { 0 };
        let zeros = [0; SECTOR_BYTES as usize];
        match self.rng.below(3) {
            0 => {
                let mut list = Vec::new();
                // The length of all that follows, and of the descriptors.
                list.put_u16(6 + 16);
                list.put_u16(16);
                list.put_u32(0);
                list.put_u64(lba);
                list.extend([word(count), word(0)].concat());
                let mut cdb = vec![op::UNMAP, 0, 0, 0, 0, 0, 0];
                cdb.put_u16(list.len() as u16);
                cdb.put_u8(0);
                self.ask(Command { cdb, data: &list, reads_bytes: 0 }).await
            }
            1 => {
                let mut cdb = vec![op::WRITE_SAME_10, unmaps];
                cdb.extend(word(lba));
                cdb.put_u8(0);
                cdb.put_u16(count as u16);
                cdb.put_u8(0);
                self.ask(Command { cdb, data: &zeros, reads_bytes: 0 }).await
            }
            _ => {
                let has_block = self.rng.chance(0.5);
                let mut cdb = vec![op::WRITE_SAME_16, if has_block { unmaps } else { unmaps | NDOB }];
                cdb.put_u64(lba);
                cdb.extend(word(count));
                cdb.put_u16(0);
                let data = if has_block { &zeros[..] } else { &[] };
                self.ask(Command { cdb, data, reads_bytes: 0 }).await
            }
        }
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub async fn flush(&mut self) -> Result<Reply> {
        // From block 0 to the end.
        let mut cdb = vec![0; 16];
        cdb[0] = if self.rng.chance(0.5) { op::SYNCHRONIZE_CACHE_16 } else { op::SYNCHRONIZE_CACHE_10 };
        self.ask(Command { cdb, data: &[], reads_bytes: 0 }).await
    }
}

/// The error that Linux makes of sense data in the fixed format; `None`: there is only a status.
fn errno(sense: Option<&[u8]>) -> Errno {
    const SPACE_ALLOCATION_FAILED: [u8; 2] = [0x27, 0x07];
    match sense {
        Some(sense) if sense.get(12..14) == Some(&SPACE_ALLOCATION_FAILED) => Errno::NOSPC,
        _ => Errno::IO,
    }
}
