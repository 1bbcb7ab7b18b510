//! Zstandard in OpenZFS's framing: an 8-byte header, then a frame without magic, checksum and size.
//!
//! ```text
//! 0      4       5         8
//! | size | level | version | frame ...
//! ```
//!
//! All numbers are big-endian. `level` is OpenZFS's number ([`ZstdLevel`]), `version` the library's; both
//! matter only for compressing the same bytes again. Old big-endian machines wrote these four bytes in
//! another order, so this code ignores them.
//!
//! Source: OpenZFS `zstd.h` (`zfs_zstdhdr_t`), `zfs_zstd.c`.

use super::{BAD_STREAM, CUT_SHORT, Problem, TOO_LONG, filled};
use std::cell::RefCell;
use zstd_safe::zstd_sys::ZSTD_ErrorCode as ErrorCode;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

const HEADER_BYTES: usize = 8;

/// On-disk zstd level: 1 to 19, or 102 and more for fast ones (`enum zio_zstd_levels`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZstdLevel(u8);

impl ZstdLevel {
    /// zstd-3, the value of `compression=zstd`.
    pub const DEFAULT: Self = Self(3);

    /// First fast level, zstd-fast-1 (`ZIO_ZSTD_LEVEL_FAST_1`).
    const FAST_FIRST: u8 = 103;
    const FAST: [i32; 21] =
        [-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -20, -30, -40, -50, -60, -70, -80, -90, -100, -500, -1000];

    /// Level of an on-disk number, if valid.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        Self(number).library_level().map(|_| Self(number))
    }

    fn library_level(self) -> Option<i32> {
        match self.0 {
            1..=19 => Some(i32::from(self.0)),
            number => Self::FAST.get(usize::from(number.checked_sub(Self::FAST_FIRST)?)).copied(),
        }
    }
}

thread_local! {
    /// A context takes 160 KiB, and creating it costs more than decompressing a small block.
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), Problem> {
    let (header, rest) = src.split_first_chunk::<HEADER_BYTES>().ok_or(CUT_SHORT)?;
    let [a, b, c, d, ..] = *header;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).map_err(|_| super::BAD_LENGTH)?;
    let frame = rest.get(..length).ok_or(super::BAD_LENGTH)?;

    CONTEXT.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Some(magicless_context().ok_or("no memory for a zstd context")?);
        }
        let context = slot.as_mut().ok_or(BAD_STREAM)?;
        match context.decompress(dst, frame) {
            Ok(written) => filled(written, dst),
            Err(code) if is(code, ErrorCode::ZSTD_error_dstSize_tooSmall) => Err(TOO_LONG),
            Err(_) => Err(BAD_STREAM),
        }
    })
}

fn magicless_context() -> Option<DCtx<'static>> {
    let mut context = DCtx::try_create()?;
    context.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
    Some(context)
}

/// The library returns errors as negated codes in an unsigned integer.
fn is(code: usize, wanted: ErrorCode) -> bool {
    code.wrapping_neg() == wanted as usize
}

pub(super) fn compress(src: &[u8], limit_bytes: usize, level: ZstdLevel) -> Option<Vec<u8>> {
    let mut context = CCtx::try_create()?;
    for parameter in [
        CParameter::CompressionLevel(level.library_level()?),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ChecksumFlag(false),
        CParameter::ContentSizeFlag(false),
    ] {
        context.set_parameter(parameter).ok()?;
    }
    let mut out = vec![0; limit_bytes];
    let (header, frame) = out.split_first_chunk_mut::<HEADER_BYTES>()?;
    let length = context.compress2(frame, src).ok()?;
    let [_, major, minor, release] = zstd_safe::version_number().to_be_bytes();
    let [a, b, c, d] = u32::try_from(length).ok()?.to_be_bytes();
    *header = [a, b, c, d, level.0, major, minor, release];
    out.truncate(HEADER_BYTES + length);
    Some(out)
}
