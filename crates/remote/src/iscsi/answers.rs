//! Answers of targets: statuses with sense data, and descriptions of the disk. Bytes in, values out.
//!
//! Trust: any bytes may come. A field beyond the end counts as 0, a length is never believed.
//!
//! Source: SAM-5 (statuses), SPC-4 (sense data, INQUIRY, MODE SENSE, PERSISTENT RESERVE IN), SBC-3 (READ
//! CAPACITY, pages B0h to B2h).

use std::io;
use std::time::Duration;

use bytes::Bytes;
use cenote_iscsi::scsi::status;

/// Statuses that only some targets use.
const CONDITION_MET: u8 = 0x04;
const BUSY: u8 = 0x08;
/// Pause before a command is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// Sense data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sense {
    pub(super) key: u8,
    /// Additional sense code and qualifier.
    pub(super) code: u16,
}

/// The end of a command.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    pub(super) status: u8,
    pub(super) sense: Option<Sense>,
    pub(super) data: Bytes,
}

/// Meaning of an outcome.
#[derive(Debug)]
pub(super) enum Verdict {
    Done,
    /// Not carried out; it may be, after a pause.
    Again(Duration),
    /// A reservation forbids it.
    Conflict,
    /// The disk is not there now.
    NotReady,
    /// The target does not know the command, or takes it for wrong.
    Illegal(io::Error),
    Failed(io::Error),
}

/// Sense data of a response.
pub(super) fn sense(data: &[u8]) -> Option<Sense> {
    let sense = data.get(2..)?;
    let at = |index: usize| sense.get(index).copied().unwrap_or(0);
    let (key, code) = match at(0) & 0x7f {
        0x70 | 0x71 => (at(2), [at(12), at(13)]),
        0x72 | 0x73 => (at(1), [at(2), at(3)]),
        _ => return None,
    };
    Some(Sense { key: key & 15, code: u16::from_be_bytes(code) })
}

const UNIT_ATTENTION: u8 = 6;

impl Outcome {
    /// The condition that a target tells once, instead of carrying a command out.
    pub(super) fn attention(&self) -> Option<u16> {
        let sense = self.sense.filter(|_| self.status == status::CHECK_CONDITION)?;
        (sense.key == UNIT_ATTENTION).then_some(sense.code)
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self.status {
            status::GOOD | CONDITION_MET => return Verdict::Done,
            status::RESERVATION_CONFLICT => return Verdict::Conflict,
            BUSY | status::TASK_SET_FULL | status::TASK_ABORTED => return Verdict::Again(PAUSE),
            status::CHECK_CONDITION => {}
            other => return Verdict::Failed(said(io::ErrorKind::Other, &format!("status {other:#04x}"))),
        }
        let Some(Sense { key, code }) = self.sense else {
            return Verdict::Failed(said(io::ErrorKind::Other, "an error without sense data"));
        };
        let [asc, ascq] = code.to_be_bytes();
        let text = format!("sense key {key}, code {asc:02x}h/{ascq:02x}h");
        match (key, code) {
            // No sense, and recovered errors.
            (0 | 1, _) => Verdict::Done,
            (2, _) => Verdict::NotReady,
            (5, 0x2500) => Verdict::NotReady,
            (5, _) => Verdict::Illegal(said(io::ErrorKind::Unsupported, &text)),
            (UNIT_ATTENTION, _) => Verdict::Again(Duration::ZERO),
            // Space allocation failed.
            (7, 0x2707) => Verdict::Failed(said(io::ErrorKind::StorageFull, &text)),
            (7, _) => Verdict::Failed(said(io::ErrorKind::ReadOnlyFilesystem, &text)),
            // Aborted commands.
            (11, _) => Verdict::Again(PAUSE),
            _ => Verdict::Failed(said(io::ErrorKind::Other, &text)),
        }
    }
}

fn said(kind: io::ErrorKind, text: &str) -> io::Error {
    io::Error::new(kind, format!("the target says: {text}"))
}

fn byte(data: &[u8], at: usize) -> u8 {
    data.get(at).copied().unwrap_or(0)
}

/// A big-endian number.
fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    (at..at + bytes).fold(0, |number, at| number << 8 | u64::from(byte(data, at)))
}

/// READ CAPACITY (16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) blocks: u64,
    pub(super) block_bytes: u32,
    pub(super) physical_bytes: u32,
    /// LBPME: the disk has space to give back.
    pub(super) is_thin: bool,
}

impl Capacity {
    pub(super) fn parse(data: &[u8]) -> Option<Capacity> {
        let blocks = number(data, 0, 8).checked_add(1)?;
        let block_bytes = number(data, 8, 4) as u32;
        let physical_bytes = block_bytes.checked_mul(1 << (byte(data, 13) & 15))?;
        Some(Capacity { blocks, block_bytes, physical_bytes, is_thin: byte(data, 14) & 0x80 != 0 })
    }

    /// `None` beyond all sizes.
    pub(super) fn size_bytes(&self) -> Option<u64> {
        self.blocks.checked_mul(self.block_bytes.into())
    }
}

/// INQUIRY: whether the unit is a disk.
pub(super) fn is_disk(data: &[u8]) -> bool {
    // Peripheral qualifier and type.
    data.first() == Some(&0)
}

/// The content of a page of vital product data; empty if it is another one.
pub(super) fn page(data: &[u8], wanted: u8) -> &[u8] {
    let content = data.get(4..).unwrap_or_default();
    match byte(data, 1) == wanted {
        true => &content[..content.len().min(number(data, 2, 2) as usize)],
        false => &[],
    }
}

/// Limits of commands, in blocks (page B0h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// Most blocks of a transfer; 0: no limit.
    pub(super) transfer_blocks: u32,
    /// Most blocks of one UNMAP; 0: there is none.
    pub(super) unmap_blocks: u32,
}

impl Limits {
    pub(super) fn parse(page: &[u8]) -> Limits {
        let has_descriptor = number(page, 20, 4) > 0;
        let unmap_blocks = if has_descriptor { number(page, 16, 4) as u32 } else { 0 };
        Limits { transfer_blocks: number(page, 4, 4) as u32, unmap_blocks }
    }
}

/// Whether the disk rotates (page B1h); `None`: it doesn't say.
pub(super) fn rotates(page: &[u8]) -> Option<bool> {
    match number(page, 0, 2) {
        1 => Some(false),
        0x401..=0xfffe => Some(true),
        _ => None,
    }
}

/// Whether UNMAP is supported (page B2h: LBPU).
pub(super) fn unmaps(page: &[u8]) -> bool {
    byte(page, 1) & 0x80 != 0
}

/// MODE SENSE (6): write protection, and whether writes can have FUA.
pub(super) fn modes(data: &[u8]) -> (bool, bool) {
    (byte(data, 2) & 0x80 != 0, byte(data, 2) & 0x10 != 0)
}

/// PERSISTENT RESERVE IN, READ KEYS.
pub(super) fn keys(data: &[u8]) -> Vec<u64> {
    let list = list(data);
    list.as_chunks::<8>().0.iter().map(|key| u64::from_be_bytes(*key)).collect()
}

/// PERSISTENT RESERVE IN, READ RESERVATION: the holder's key, and the type.
pub(super) fn reservation(data: &[u8]) -> Option<(u64, u8)> {
    let list = list(data);
    (list.len() >= 16).then(|| (number(list, 0, 8), byte(list, 13) & 15))
}

/// A list behind its length.
fn list(data: &[u8]) -> &[u8] {
    let list = data.get(8..).unwrap_or_default();
    &list[..list.len().min(number(data, 4, 4) as usize)]
}

/// PERSISTENT RESERVE IN, REPORT CAPABILITIES: whether registrations outlive a restart of the target
/// (PTPL_C), and "write exclusive, registrants only" exists.
pub(super) fn can_hold(data: &[u8]) -> bool {
    let (outlives, has_types) = (byte(data, 2) & 1 != 0, byte(data, 3) & 0x80 != 0);
    outlives && (!has_types || byte(data, 4) & 0x20 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(key: u8, code: u16) -> Outcome {
        Outcome { status: status::CHECK_CONDITION, sense: Some(Sense { key, code }), data: Bytes::new() }
    }

    #[test]
    fn sense_data_is_read_in_both_formats_and_cut_short() {
        let fixed = [0, 18, 0xf0, 0, 0x46, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x2a, 0x05, 0, 0, 0, 0];
        assert_eq!(sense(&fixed), Some(Sense { key: 6, code: 0x2a05 }));
        assert_eq!(sense(&fixed[..6]), Some(Sense { key: 6, code: 0 }));
        assert_eq!(sense(&[0, 8, 0x72, 5, 0x20, 0, 0, 0, 0, 0]), Some(Sense { key: 5, code: 0x2000 }));
        assert_eq!(sense(&[0, 2]), None);
        assert_eq!(sense(&[0, 1, 0]), None);
    }

    #[test]
    fn each_outcome_has_a_meaning() {
        let good = Outcome::default();
        assert!(matches!(good.verdict(), Verdict::Done) && good.attention().is_none());
        let attention = checked(6, 0x2900);
        assert_eq!(attention.attention(), Some(0x2900));
        assert!(matches!(attention.verdict(), Verdict::Again(Duration::ZERO)));
        let conflict = Outcome { status: status::RESERVATION_CONFLICT, ..Outcome::default() };
        assert!(matches!(conflict.verdict(), Verdict::Conflict));
        assert!(matches!(checked(2, 0x0400).verdict(), Verdict::NotReady));
        assert!(matches!(checked(5, 0x2000).verdict(), Verdict::Illegal(_)));
        assert!(matches!(Outcome { status: BUSY, ..good }.verdict(), Verdict::Again(PAUSE)));
        let Verdict::Failed(error) = checked(3, 0x1100).verdict() else { panic!("read error") };
        assert!(error.to_string().contains("sense key 3, code 11h/00h"), "{error}");
        let Verdict::Failed(error) = checked(7, 0x2707).verdict() else { panic!("no space") };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn descriptions_are_read() {
        let mut data = [0; 32];
        (data[7], data[10], data[13], data[14]) = (0xff, 2, 3, 0x80);
        let capacity = Capacity::parse(&data).unwrap();
        let wanted = Capacity { blocks: 256, block_bytes: 512, physical_bytes: 4096, is_thin: true };
        assert_eq!((capacity, capacity.size_bytes()), (wanted, Some(131_072)));
        assert_eq!(page(&[0, 0xb1, 0, 2, 0, 1, 9], 0xb1), [0, 1]);
        assert!(page(&[0, 0xb1, 0, 2, 0, 1, 9], 0xb0).is_empty());
        assert_eq!([rotates(&[0, 1]), rotates(&[0x1c, 0x20]), rotates(b"")], [Some(false), Some(true), None]);
        let mut keys_data = vec![0, 0, 0, 1, 0, 0, 0, 24];
        keys_data.extend(7u64.to_be_bytes());
        keys_data.extend(9u64.to_be_bytes());
        assert_eq!(keys(&keys_data), [7, 9], "the list is cut short");
        let held = [&[0, 0, 0, 1, 0, 0, 0, 16][..], &7u64.to_be_bytes(), &[0, 0, 0, 0, 0, 5, 0, 0]].concat();
        assert_eq!(reservation(&held), Some((7, 5)));
        assert_eq!(reservation(&[0, 0, 0, 1, 0, 0, 0, 0]), None);
        assert!(can_hold(&[0, 8, 5, 0x80, 0xea, 1]) && !can_hold(&[0, 8, 4, 0x80, 0xea, 1]));
        assert!(!can_hold(&[0, 8, 5, 0x80, 0xca, 1]) && can_hold(&[0, 8, 1, 0]) && !can_hold(b""));
    }

    /// All parsers take all bytes.
    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        for _ in 0..100_000 {
            let mut data: Vec<u8> = (0..random() % 64).map(|_| random() as u8).collect();
            // Often with a known beginning.
            if let (Some(first), true) = (data.get_mut(2), random().is_multiple_of(2)) {
                *first = 0x70 + (random() % 4) as u8;
            }
            let outcome =
                Outcome { status: (random() % 5 * 2) as u8, sense: sense(&data), data: Bytes::new() };
            drop(outcome.verdict());
            let listed = keys(&data);
            assert!(listed.len() * 8 <= data.len());
            let limits = Limits::parse(page(&data, byte(&data, 1)));
            let size = Capacity::parse(&data).map(|capacity| capacity.size_bytes());
            std::hint::black_box((limits, size, rotates(&data), unmaps(&data), modes(&data)));
            std::hint::black_box((can_hold(&data), reservation(&data), is_disk(&data)));
        }
    }
}
