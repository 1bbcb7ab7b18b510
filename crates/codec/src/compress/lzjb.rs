//! LZJB: Lempel-Ziv with a 1 KiB window and no entropy coding.
//!
//! ```text
//! flags u8 | eight items, the lowest flag first
//! item, flag 0: one literal byte
//! item, flag 1: (length - 3) in 6 bits | distance in 10 bits, big-endian
//! ```
//!
//! Lengths are 3 to 66, distances 1 to 1023. Decoding stops when the block is full; the format has no end
//! mark.
//!
//! Source: OpenZFS `lzjb.c`.

use super::{BAD_OFFSET, CUT_SHORT, Problem};

const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = MATCH_MIN + 63;
const DISTANCE_MAX: usize = 1023;
const HASH_SLOTS: usize = 1024;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), Problem> {
    let mut input = src.iter().copied();
    let mut next = || input.next().ok_or(CUT_SHORT);
    let mut at = 0;
    while at < dst.len() {
        let mut flags = next()?;
        for _ in 0..8 {
            if at == dst.len() {
                break;
            }
            if flags & 1 == 0 {
                dst[at] = next()?;
                at += 1;
            } else {
                let item = u16::from_be_bytes([next()?, next()?]);
                let length = usize::from(item >> 10) + MATCH_MIN;
                at = repeat(dst, at, usize::from(item) & DISTANCE_MAX, length)?;
            }
            flags >>= 1;
        }
    }
    Ok(())
}

/// Copies up to `length` bytes from `distance` back; overlapping bytes repeat. Returns the end of the copy.
fn repeat(dst: &mut [u8], at: usize, distance: usize, length: usize) -> Result<usize, Problem> {
    let from = at.checked_sub(distance).filter(|_| distance > 0).ok_or(BAD_OFFSET)?;
    let length = length.min(dst.len() - at);
    if distance >= length {
        dst.copy_within(from..from + length, at);
    } else {
        for i in 0..length {
            dst[at + i] = dst[from + i];
        }
    }
    Ok(at + length)
}

pub(super) fn compress(src: &[u8], limit_bytes: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(limit_bytes);
    // Last position of each three-byte hash, plus one.
    let mut seen = [0usize; HASH_SLOTS];
    let mut at = 0;
    while at < src.len() {
        let flags_at = out.len();
        out.push(0);
        for bit in 0..8 {
            if at == src.len() {
                break;
            }
            match find_match(src, at, &mut seen) {
                Some((distance, length)) => {
                    let item = ((length - MATCH_MIN) << 10 | distance) as u16;
                    out.extend_from_slice(&item.to_be_bytes());
                    out[flags_at] |= 1 << bit;
                    at += length;
                }
                None => {
                    out.push(src[at]);
                    at += 1;
                }
            }
        }
        if out.len() > limit_bytes {
            return None;
        }
    }
    Some(out)
}

fn find_match(src: &[u8], at: usize, seen: &mut [usize; HASH_SLOTS]) -> Option<(usize, usize)> {
    let start = src[at..].first_chunk::<MATCH_MIN>()?;
    let hash = start.iter().fold(0u32, |hash, byte| hash << 8 | u32::from(*byte));
    let slot = &mut seen[(hash.wrapping_mul(0x9e37_79b1) >> 22) as usize];
    let candidate = std::mem::replace(slot, at + 1).checked_sub(1)?;
    let distance = at - candidate;
    if distance > DISTANCE_MAX {
        return None;
    }
    let longest = MATCH_MAX.min(src.len() - at);
    let length = (0..longest).take_while(|i| src[candidate + i] == src[at + i]).count();
    (length >= MATCH_MIN).then_some((distance, length))
}
