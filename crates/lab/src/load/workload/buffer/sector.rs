//! Self-describing sectors, so that reads can distinguish correct data from misplaced, stale and torn ones.
//!
//! ```text
//! byte 0     8        16       24                                 512
//!      | tag | offset | number | random bytes of (offset, number) |
//! ```
//! Numbers are little-endian. The tag represents seed and worker, the offset is the sector's, the number the
//! write's. Each sector has a header, because a disk may write only some sectors of a block.

use crate::load::workload::Operation;

/// Unit of verification.
pub const SECTOR_BYTES: usize = 512;
const HEADER_BYTES: usize = 24;

pub(super) fn mark(buffer: &mut [u8], tag: u64, operation: &Operation) {
    for (index, sector) in buffer.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let offset = operation.offset + (index * SECTOR_BYTES) as u64;
        for (field, value) in sector.chunks_exact_mut(8).zip([tag, offset, operation.number]) {
            field.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Number of the write that produced the sector found at `offset`, which must be at least `least`; or the
/// defect of the sector.
pub(super) fn number(sector: &[u8], tag: u64, offset: u64, least: u64) -> Result<u64, String> {
    let Some((header, _)) = sector.split_first_chunk::<HEADER_BYTES>() else {
        return Err(format!("only {} bytes of a {SECTOR_BYTES}-byte sector", sector.len()));
    };
    let field = |index: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&header[index * 8..][..8]);
        u64::from_le_bytes(bytes)
    };
    let (found_tag, found_offset, number) = (field(0), field(1), field(2));
    if found_tag != tag {
        let zeros = sector.iter().all(|&byte| byte == 0);
        return Err(if zeros {
            format!("zeros: write {least} is missing")
        } else {
            format!(
                "not written by this run: it starts with {:02x?}, and write {least} is missing",
                &header[..8]
            )
        });
    }
    if found_offset != offset {
        return Err(format!("from write {number} to byte {found_offset}: it is misplaced"));
    }
    if number < least {
        return Err(format!("from write {number}, but write {least} came later and was lost"));
    }
    Ok(number)
}

/// First wrong byte of the random part of `found`, in words.
pub(super) fn difference(found: &[u8], expected: &[u8; SECTOR_BYTES]) -> Option<(usize, String)> {
    if found.get(HEADER_BYTES..) == Some(&expected[HEADER_BYTES..]) {
        return None;
    }
    let differs = |at: &usize| found.get(*at) != expected.get(*at);
    let at = (HEADER_BYTES..SECTOR_BYTES).find(differs)?;
    let wrong = (at..SECTOR_BYTES).filter(differs).count();
    let byte = found.get(at).copied().unwrap_or(0);
    Some((at, format!("{byte:#04x} instead of {:#04x}; {wrong} bytes of the sector are wrong", expected[at])))
}
