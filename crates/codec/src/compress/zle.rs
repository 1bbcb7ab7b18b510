//! ZLE: counted runs of zeros, literal bytes otherwise.
//!
//! ```text
//! control byte c < 64:   c + 1 literal bytes follow
//! control byte c >= 64:  c - 63 zero bytes
//! ```
//!
//! Source: OpenZFS `zle.c` with level 64 from `zio_compress.c`.

use super::{CUT_SHORT, Problem, TOO_LONG};

const LITERALS_MAX: usize = 64;
const ZEROS_MAX: usize = 256 - LITERALS_MAX;

pub(super) fn decompress(mut src: &[u8], mut dst: &mut [u8]) -> Result<(), Problem> {
    while !dst.is_empty() {
        let (&control, rest) = src.split_first().ok_or(CUT_SHORT)?;
        src = rest;
        let run = usize::from(control) + 1;
        let zeros = run.saturating_sub(LITERALS_MAX);
        let (piece, free) = dst.split_at_mut_checked(if zeros > 0 { zeros } else { run }).ok_or(TOO_LONG)?;
        if zeros > 0 {
            piece.fill(0);
        } else {
            let (literals, rest) = src.split_at_checked(run).ok_or(CUT_SHORT)?;
            piece.copy_from_slice(literals);
            src = rest;
        }
        dst = free;
    }
    Ok(())
}

pub(super) fn compress(mut src: &[u8], limit_bytes: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(limit_bytes);
    while let Some(first) = src.first() {
        let zeros = src.iter().take(ZEROS_MAX).take_while(|byte| **byte == 0).count();
        if *first == 0 {
            out.push((zeros + LITERALS_MAX - 1) as u8);
            src = &src[zeros..];
        } else {
            let literals = literal_run(src);
            out.push((literals - 1) as u8);
            out.extend_from_slice(&src[..literals]);
            src = &src[literals..];
        }
        if out.len() > limit_bytes {
            return None;
        }
    }
    Some(out)
}

/// Run length up to two zeros in a row: a single zero is cheaper as a literal.
fn literal_run(src: &[u8]) -> usize {
    let window = &src[..src.len().min(LITERALS_MAX)];
    window.windows(2).position(|pair| pair == [0, 0]).unwrap_or(window.len())
}
