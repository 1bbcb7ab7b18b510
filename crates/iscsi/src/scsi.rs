//! SCSI commands of a disk: checks before execution, dispatch, sense data.
//!
//! ```text
//!   CDB --> unit attention pending? reservation conflict? --> command --> data, or sense
//! ```
//!
//! Read in this order: [`cdb`] (the command table), `blocks` (reading and writing), `space` (unmapping and
//! zeroing), `copy`, `inquiry`, `modes`, `reports`, [`reservations`] with `persist` (its commands).
//!
//! Source: SAM-5, SPC-4, SBC-3.

mod blocks;
pub mod cdb;
mod copy;
mod inquiry;
mod modes;
mod persist;
mod reports;
pub mod reservations;
mod space;

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cenote_disk::{Errno, Failure};

use crate::lun::{Guest, Lun, Luns, attention};
use crate::target::Unit;
use cdb::{Access, Cdb, op};

/// Logical block size. Every host can boot from 512 bytes.
pub const BLOCK_BYTES: u64 = 512;
/// Most data of one command.
pub const TRANSFER_BYTES_MAX: u64 = 32 << 20;

/// Status codes of SAM.
#[allow(missing_docs)]
pub mod status {
    pub const GOOD: u8 = 0x00;
    pub const CHECK_CONDITION: u8 = 0x02;
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    pub const TASK_SET_FULL: u8 = 0x28;
    pub const TASK_ABORTED: u8 = 0x40;
}

/// Reason for failing a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// With sense data.
    Sense(Sense),
    /// With a status alone.
    Status(u8),
}

/// Sense data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// Sense key.
    pub key: u8,
    /// Additional sense code and qualifier.
    pub code: u16,
    /// INFORMATION field.
    pub information: Option<u64>,
}

impl Sense {
    const NO_SENSE: Sense = Sense::new(0, 0);
    const INVALID_OPCODE: Sense = Sense::new(5, 0x2000);
    const OUT_OF_RANGE: Sense = Sense::new(5, 0x2100);
    const INVALID_FIELD: Sense = Sense::new(5, 0x2400);
    const NO_SUCH_LUN: Sense = Sense::new(5, 0x2500);
    const INVALID_PARAMETER: Sense = Sense::new(5, 0x2600);
    const INVALID_RELEASE: Sense = Sense::new(5, 0x2604);
    const LIST_LENGTH: Sense = Sense::new(5, 0x1a00);
    const NO_REGISTRATIONS_LEFT: Sense = Sense::new(5, 0x5504);
    const WRITE_PROTECTED: Sense = Sense::new(7, 0x2700);
    const MISCOMPARE: Sense = Sense::new(14, 0x1d00);

    const fn new(key: u8, code: u16) -> Sense {
        Sense { key, code, information: None }
    }

    fn attention(code: u16) -> Sense {
        Sense::new(6, code)
    }

    /// Encodes in fixed or descriptor format.
    pub fn encode(&self, in_descriptors: bool) -> Vec<u8> {
        let [code, qualifier] = self.code.to_be_bytes();
        if in_descriptors {
            let mut sense = vec![0x72, self.key, code, qualifier, 0, 0, 0, 0];
            if let Some(information) = self.information {
                sense[7] = 12;
                sense.extend([0, 10, 0x80, 0]);
                sense.extend(information.to_be_bytes());
            }
            return sense;
        }
        let mut sense = vec![0; 18];
        (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, self.key, 10, code, qualifier);
        if let Some(Ok(information)) = self.information.map(u32::try_from) {
            sense[0] |= 0x80;
            sense[3..7].copy_from_slice(&information.to_be_bytes());
        }
        sense
    }
}

impl From<Sense> for Trouble {
    fn from(sense: Sense) -> Trouble {
        Trouble::Sense(sense)
    }
}

impl From<Failure> for Trouble {
    /// For commands that read; see [`written`].
    fn from(failure: Failure) -> Trouble {
        Trouble::Sense(match failure.errno {
            Errno::Shutdown => Sense::new(2, 0x0400),
            Errno::NoMemory => Sense::new(5, 0x5504),
            _ => Sense::new(3, 0x1100),
        })
    }
}

/// Maps failures of commands that write.
fn written<T>(done: Result<T, Failure>) -> Outcome<T> {
    done.map_err(|failure| match failure.errno {
        Errno::Perm => Sense::WRITE_PROTECTED.into(),
        // On this sense code, hosts pause their guests until there is space.
        Errno::NoSpace => Sense::new(7, 0x2707).into(),
        Errno::Io => Sense::new(3, 0x0c00).into(),
        _ => failure.into(),
    })
}

/// Sense for internal errors, such as panics.
pub const SERVER_FAILED: Sense = Sense::new(4, 0x4400);
/// Sense for data that did not arrive as requested.
pub const WRONG_DATA: Sense = Sense::new(11, 0x0c0d);

/// Result of a command.
pub type Outcome<T = Bytes> = Result<T, Trouble>;

/// A command and its context.
pub struct Request<'a> {
    /// Initiator and disk.
    pub guest: &'a Guest,
    /// LUNs of the target.
    pub numbers: &'a [u8],
    /// All disks.
    pub luns: &'a Luns,
    /// The command.
    pub cdb: Cdb,
    /// Data-Out.
    pub data: Bytes,
    /// Data length declared by the initiator.
    pub sent_bytes: u64,
}

/// Answers a command to a LUN without a unit.
pub fn without_lun(cdb: &Cdb, numbers: &[u8]) -> Outcome {
    match cdb.opcode() {
        op::INQUIRY => inquiry::of_nothing(cdb),
        op::REPORT_LUNS => reports::luns(cdb, numbers),
        op::REQUEST_SENSE => Ok(cdb.cut(Sense::NO_SUCH_LUN.encode(cdb.byte(1) & 1 != 0))),
        _ => Err(Sense::NO_SUCH_LUN.into()),
    }
}

impl Request<'_> {
    /// State shared by the disk's sessions.
    fn lun(&self) -> &Lun {
        &self.guest.lun
    }

    fn unit(&self) -> &dyn Unit {
        &*self.guest.unit
    }

    /// Executes the command.
    ///
    /// # Errors
    /// The status or sense to report.
    pub async fn run(&self) -> Outcome {
        let (cdb, opcode) = (&self.cdb, self.cdb.opcode());
        let known = cdb.known().ok_or_else(|| cdb.unknown())?;
        self.notice_size();
        if !matches!(opcode, op::INQUIRY | op::REPORT_LUNS | op::REQUEST_SENSE)
            && let Some(code) = self.guest.attention()
        {
            return Err(Sense::attention(code).into());
        }
        if self.lun().is_reserved() {
            let access = known.access;
            if self.lun().reserve(|all| all.is_in_conflict(self.guest.initiator(), access, cdb)) {
                return Err(Trouble::Status(status::RESERVATION_CONFLICT));
            }
        }
        if cdb.is_exact() && self.sent_bytes != cdb.out_bytes() {
            return Err(Sense::INVALID_FIELD.into());
        }
        // NACA: auto contingent allegiance is not supported.
        if cdb.control() & 4 != 0 {
            return Err(Sense::INVALID_FIELD.into());
        }
        if known.access == Access::Write && known.changes_content && self.is_protected() {
            return Err(Sense::WRITE_PROTECTED.into());
        }
        match opcode {
            op::TEST_UNIT_READY | op::START_STOP_UNIT | op::PREVENT_ALLOW => self.nothing(),
            op::REQUEST_SENSE => {
                let code = self.guest.attention();
                let sense = code.map_or(Sense::NO_SENSE, Sense::attention);
                Ok(cdb.cut(sense.encode(cdb.byte(1) & 1 != 0)))
            }
            op::INQUIRY => self.inquiry(),
            op::REPORT_LUNS => reports::luns(cdb, self.numbers),
            op::MODE_SENSE_6 | op::MODE_SENSE_10 => self.mode_sense(),
            op::MODE_SELECT_6 | op::MODE_SELECT_10 => self.mode_select(),
            op::READ_CAPACITY_10 => self.read_capacity_10(),
            op::SERVICE_ACTION_IN_16 => match cdb.action() {
                cdb::READ_CAPACITY_16 => self.read_capacity_16(),
                _ => self.lba_status().await,
            },
            op::MAINTENANCE_IN => match cdb.action() {
                cdb::REPORT_TARGET_PORT_GROUPS => self.target_port_groups(),
                _ => self.supported_opcodes(),
            },
            op::RESERVE_6 | op::RESERVE_10 => self.reserve_unit(),
            op::RELEASE_6 | op::RELEASE_10 => self.release_unit(),
            op::PERSISTENT_RESERVE_IN => self.persistent_reserve_in(),
            op::PERSISTENT_RESERVE_OUT => self.persistent_reserve_out().await,
            op::EXTENDED_COPY => self.extended_copy().await,
            op::RECEIVE_COPY_RESULTS => Ok(copy::operating_parameters(cdb)),
            op::UNMAP => self.unmap().await,
            op::WRITE_SAME_10 | op::WRITE_SAME_16 => self.write_same().await,
            op::READ_6 | op::READ_10 | op::READ_12 | op::READ_16 => self.read().await,
            op::VERIFY_10 | op::VERIFY_12 | op::VERIFY_16 => self.verify().await,
            op::SYNCHRONIZE_CACHE_10 | op::SYNCHRONIZE_CACHE_16 => self.synchronize().await,
            op::PRE_FETCH_10 | op::PRE_FETCH_16 => self.prefetch().await,
            op::COMPARE_AND_WRITE => self.compare_and_write().await,
            op::ORWRITE_16 => self.or_write().await,
            _ => self.write().await,
        }
    }

    fn nothing(&self) -> Outcome {
        Ok(Bytes::new())
    }

    fn is_protected(&self) -> bool {
        self.unit().is_read_only() || self.lun().modes.lock().is_write_protected
    }

    /// Queues a unit attention if the disk's size has changed since it was last reported.
    fn notice_size(&self) {
        let now = self.unit().size_bytes();
        if self.guest.size_bytes.load(Ordering::Relaxed) != now
            && self.guest.size_bytes.swap(now, Ordering::Relaxed) != now
        {
            self.guest.attend(attention::CAPACITY_CHANGED);
        }
    }

    fn blocks(&self) -> u64 {
        self.unit().size_bytes() / BLOCK_BYTES
    }

    /// Byte range of the command's blocks.
    fn span(&self, lba: u64, count: u64) -> Outcome<Range<u64>> {
        span(self.unit(), lba, count)
    }
}

/// Byte range of blocks on a disk.
fn span(unit: &dyn Unit, lba: u64, count: u64) -> Outcome<Range<u64>> {
    let blocks = unit.size_bytes() / BLOCK_BYTES;
    match lba.checked_add(count) {
        Some(end) if end <= blocks && lba < blocks => Ok(lba * BLOCK_BYTES..end * BLOCK_BYTES),
        _ => Err(Sense::OUT_OF_RANGE.into()),
    }
}
