//! EXTENDED COPY: copies blocks between disks of this server, without the host. Hypervisors clone and move
//! guest disks with it.
//!
//! ```text
//!   header, 16 bytes | CSCDs: the disks, 32 bytes each | segments: the blocks, 28 bytes each
//! ```
//!
//! Idea: the subset that VMware, QEMU and Linux use: list identifiers of one byte (LID1), disks named by NAA
//! designators, segments from block device to block device. A host copies only between disks to which it has
//! sessions. Blocks are cloned where the pool can do that, else copied. A command is answered when the copy
//! is done, so no results are held.
//!
//! Source: SPC-4, sections 6.4 and 6.18 (revision 37).

use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, Bytes};

use super::cdb::{Access, Cdb};
use super::{BLOCK_BYTES, Outcome, Request, Sense, Trouble, span, status, written};
use crate::lun::Guest;

const HEADER_BYTES: usize = 16;
const CSCD_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;
const CSCDS_MAX: usize = 16;
const SEGMENTS_MAX: usize = 16;
const DESCRIPTORS_BYTES_MAX: usize = CSCDS_MAX * CSCD_BYTES + SEGMENTS_MAX * SEGMENT_BYTES;
/// CSCD type: identification descriptor.
const IDENTIFICATION: u8 = 0xe4;
/// Segment type: block device to block device.
const BLOCK_TO_BLOCK: u8 = 0x02;
/// Bytes copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

const TOO_MANY_CSCDS: Sense = Sense::new(5, 0x2606);
const UNSUPPORTED_CSCD: Sense = Sense::new(5, 0x2607);
const TOO_MANY_SEGMENTS: Sense = Sense::new(5, 0x2608);
const UNSUPPORTED_SEGMENT: Sense = Sense::new(5, 0x2609);
/// COPY ABORTED: a segment names an unreachable disk.
const UNREACHABLE: Sense = Sense::new(10, 0x0804);
/// COPY ABORTED.
const ABORTED: Sense = Sense::new(10, 0);

struct Part {
    guest: Arc<Guest>,
    span: Range<u64>,
}

/// RECEIVE COPY RESULTS, OPERATING PARAMETERS.
pub(super) fn operating_parameters(cdb: &Cdb) -> Bytes {
    let mut answer = Vec::with_capacity(46);
    answer.put_u32(42);
    // SNLID: no list identifier is needed.
    answer.put_u32(1 << 24);
    answer.put_u16(CSCDS_MAX as u16);
    answer.put_u16(SEGMENTS_MAX as u16);
    answer.put_u32(DESCRIPTORS_BYTES_MAX as u32);
    answer.put_u32(u32::from(u16::MAX) * BLOCK_BYTES as u32);
    // No inline data, held data or streams.
    answer.put_bytes(0, 14);
    // Concurrent copies: 0; segment granularity: one block of 512 bytes.
    answer.put_u16(0);
    answer.extend([u8::MAX, BLOCK_BYTES.ilog2() as u8, 0, 0, 0, 0, 0]);
    answer.extend([2, BLOCK_TO_BLOCK, IDENTIFICATION]);
    cdb.cut(answer)
}

impl Request<'_> {
    pub(super) async fn extended_copy(&self) -> Outcome {
        if self.cdb.list_bytes() == 0 {
            return Ok(Bytes::new());
        }
        for (from, to) in self.segments()? {
            self.may(&from.guest, Access::Read)?;
            self.may(&to.guest, Access::Write)?;
            copy(&from, &to).await?;
        }
        Ok(Bytes::new())
    }

    /// Parses and checks the list. Returns source and target of each segment.
    fn segments(&self) -> Outcome<Vec<(Part, Part)>> {
        let list = &self.data[..];
        let (Some((header, rest)), true) =
            (list.split_first_chunk::<HEADER_BYTES>(), list.len() as u64 == self.cdb.list_bytes())
        else {
            return Err(Sense::LIST_LENGTH.into());
        };
        let cscds = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let segments = number(&header[8..12]) as usize;
        let is_there =
            cscds.checked_add(segments).is_some_and(|all| all <= rest.len().min(DESCRIPTORS_BYTES_MAX));
        if !is_there || !cscds.is_multiple_of(CSCD_BYTES) || number(&header[12..16]) > 0 {
            return Err(Sense::LIST_LENGTH.into());
        }
        if cscds > CSCDS_MAX * CSCD_BYTES {
            return Err(TOO_MANY_CSCDS.into());
        }
        let (cscds, segments) = rest[..cscds + segments].split_at(cscds);
        let disks: Vec<Option<Arc<Guest>>> =
            cscds.as_chunks().0.iter().map(|cscd| self.disk(cscd)).collect::<Outcome<_>>()?;
        // Other segment types have other lengths, so the first type is checked before the length.
        if segments.first().is_some_and(|kind| *kind != BLOCK_TO_BLOCK) {
            return Err(UNSUPPORTED_SEGMENT.into());
        }
        if segments.len() > SEGMENTS_MAX * SEGMENT_BYTES {
            return Err(TOO_MANY_SEGMENTS.into());
        }
        let (segments, []) = segments.as_chunks::<SEGMENT_BYTES>() else {
            return Err(Sense::LIST_LENGTH.into());
        };
        segments.iter().map(|segment| part_of(&disks, segment)).collect()
    }

    /// Looks up the disk of a CSCD; `None` if it does not exist or the host has no session to it.
    fn disk(&self, cscd: &[u8; CSCD_BYTES]) -> Outcome<Option<Arc<Guest>>> {
        const LU_ID_TYPE: u8 = 0xc0;
        const NUL: u8 = 0x20;
        const BINARY: u8 = 1;
        const NAA: u8 = 3;
        if cscd[0] != IDENTIFICATION {
            return Err(UNSUPPORTED_CSCD.into());
        }
        if cscd[1] & LU_ID_TYPE != 0 {
            // As libiscsi's test suite expects. SPC-4 is no more precise.
            return Err(Sense::INVALID_FIELD.into());
        }
        let is_naa = cscd[4] & 15 == BINARY && cscd[5] & 15 == NAA && cscd[7] == 8;
        if cscd[1] & NUL != 0 || !is_naa {
            return Ok(None);
        }
        Ok(self.luns.guest(number(&cscd[8..16]), &self.guest.nexus))
    }

    /// Checks reservations and write protection.
    fn may(&self, guest: &Guest, access: Access) -> Outcome<()> {
        let lun = &guest.lun;
        let is_reserved =
            lun.is_reserved() && lun.reserve(|all| all.is_in_conflict(guest.initiator(), access, &self.cdb));
        if is_reserved {
            return Err(Trouble::Status(status::RESERVATION_CONFLICT));
        }
        if access == Access::Write && (guest.unit.is_read_only() || lun.modes.lock().is_write_protected) {
            return Err(Sense::WRITE_PROTECTED.into());
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn part_of(disks: &[Option<Arc<Guest>>], segment: &[u8; SEGMENT_BYTES]) -> Outcome<(Part, Part)> {
    if segment[0] != BLOCK_TO_BLOCK {
        return Err(UNSUPPORTED_SEGMENT.into());
    }
    if usize::from(u16::from_be_bytes([segment[2], segment[3]])) != SEGMENT_BYTES - 4 {
        return Err(Sense::INVALID_PARAMETER.into());
    }
    let count = number(&segment[10..12]);
    let part = |index: &[u8], lba: &[u8]| -> Outcome<Part> {
        let disk = disks.get(number(index) as usize).cloned().flatten();
        let guest = disk.ok_or(Trouble::Sense(UNREACHABLE))?;
        let span = span(&*guest.unit, number(lba), count).map_err(|_| Trouble::Sense(ABORTED))?;
        Ok(Part { guest, span })
    };
    Ok((part(&segment[4..6], &segment[12..20])?, part(&segment[6..8], &segment[20..28])?))
}

/// Clones or copies blocks. The parts may overlap on one disk.
async fn copy(from: &Part, to: &Part) -> Outcome<()> {
    let (source, target) = (&*from.guest.unit, &*to.guest.unit);
    let _shared = to.guest.lun.alone.read().await;
    let len = to.span.end - to.span.start;
    let is_same = Arc::ptr_eq(&from.guest.lun, &to.guest.lun);
    if is_same && from.span.start < to.span.start && to.span.start < from.span.end {
        // Backwards, so that no source block is overwritten before it is read.
        let mut left = len;
        while left > 0 {
            let piece = left.min(PIECE_BYTES);
            left -= piece;
            copy_piece(from, to, left..left + piece).await?;
        }
        return Ok(());
    }
    let block = u64::from(target.block_bytes()).max(1);
    let (mut at, mut may_share) = (0, true);
    while at < len {
        let into_block = (to.span.start + at) % block;
        if may_share && into_block == 0 {
            let rest = from.span.start + at..from.span.end;
            let shared = written(target.share(to.span.start + at, source, rest).await)?;
            at += shared;
            // Once cloning is refused, the next range would be, too.
            may_share = shared > 0;
            continue;
        }
        let piece = if may_share { block - into_block } else { PIECE_BYTES };
        let end = len.min(at + piece);
        copy_piece(from, to, at..end).await?;
        at = end;
    }
    Ok(())
}

async fn copy_piece(from: &Part, to: &Part, piece: Range<u64>) -> Outcome<()> {
    let span = from.span.start + piece.start..from.span.start + piece.end;
    let data = from.guest.unit.read(span).await?;
    written(to.guest.unit.write(to.span.start + piece.start, data).await)
}
