//! Micro ZAP: one block of names of up to 49 bytes, with a 64-bit value each.
//!
//! Layout:
//!
//! ```text
//!   0 block type (8)  8 salt (8)  16 normflags (8)  24 zeros (40)
//!   then entries of 64: value (8)  collision differentiator (4)  zeros (2)  name with NUL (50);
//!                       free if the name is empty
//! ```
//!
//! Source: OpenZFS `zap_impl.h` (`mzap_phys_t`, `mzap_ent_phys_t`).

use bytes::Bytes;

use super::{ZBT_MICRO, ZapHasher};
use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result, at_most};

/// Name size with NUL, `MZAP_NAME_LEN`.
pub const MZAP_NAME_LEN: usize = 50;
/// Entry and header size, `MZAP_ENT_LEN`.
const ENTRY_BYTES: usize = 64;
/// Name offset: after value, differentiator and padding.
const NAME_AT: usize = 8 + 4 + 2;

const _: () = assert!(NAME_AT + MZAP_NAME_LEN == ENTRY_BYTES);
/// Largest micro ZAP, `MZAP_MAX_SIZE`; above 128 KiB needs feature `large_microzap`.
const MAX_BLOCK_BYTES: u64 = 1 << 20;

/// Whole micro ZAP.
#[derive(Debug, Clone)]
pub struct MicroZap {
    /// Hash salt.
    pub salt: u64,
    /// Name normalization.
    pub normflags: u64,
    endian: Endian,
    block: Bytes,
}

/// Entry of a micro ZAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroEntry<'a> {
    /// Nonempty, without NUL.
    pub name: &'a [u8],
    /// Value.
    pub value: u64,
    /// Differentiator of equal hashes.
    pub cd: u32,
}

impl MicroZap {
    /// Decodes the block.
    ///
    /// # Errors
    /// A wrong block type, a truncated block or one above 1 MiB.
    pub fn decode(block: Bytes, endian: Endian) -> Result<MicroZap> {
        at_most("micro ZAP bytes", block.len() as u64, MAX_BLOCK_BYTES)?;
        let mut r = Reader::new("micro ZAP", &block, endian);
        let [block_type, salt, normflags, ..] = r.words::<8>()?;
        if block_type != ZBT_MICRO {
            return Err(FormatError::BadMagic { what: "micro ZAP", found: block_type });
        }
        Ok(MicroZap { salt, normflags, endian, block })
    }

    /// Hasher of its names, for hash order.
    pub fn hasher(&self) -> ZapHasher {
        ZapHasher { salt: self.salt, flags: 0 }
    }

    /// Entries in on-disk order.
    pub fn entries(&self) -> impl Iterator<Item = MicroEntry<'_>> {
        let endian = self.endian;
        let slots = self.block.as_chunks::<ENTRY_BYTES>().0;
        slots.iter().skip(1).filter(|slot| slot[NAME_AT] != 0).map(move |slot| decode_entry(slot, endian))
    }

    /// Value of a name.
    pub fn lookup(&self, name: &[u8]) -> Option<u64> {
        self.entries().find(|entry| entry.name == name).map(|entry| entry.value)
    }

    /// Encodes a block of `block_bytes`.
    ///
    /// # Errors
    /// Too many entries; a name that is empty, too long or contains NUL.
    pub fn encode<'a>(
        entries: impl IntoIterator<Item = MicroEntry<'a>>,
        hasher: ZapHasher,
        normflags: u64,
        block_bytes: usize,
        endian: Endian,
    ) -> Result<Vec<u8>> {
        let mut w = Writer::new(endian);
        w.words(&[ZBT_MICRO, hasher.salt, normflags]).pad_to(ENTRY_BYTES);
        for entry in entries {
            at_most("micro ZAP name bytes", entry.name.len() as u64, MZAP_NAME_LEN as u64 - 1)?;
            if entry.name.is_empty() || entry.name.contains(&0) {
                return Err(FormatError::Corrupt { what: "micro ZAP name", why: "is empty or holds NUL" });
            }
            let end = w.position() + ENTRY_BYTES;
            w.u64(entry.value).u32(entry.cd).u16(0).bytes(entry.name).pad_to(end);
        }
        at_most("micro ZAP bytes", w.position() as u64, MAX_BLOCK_BYTES.min(block_bytes as u64))?;
        w.pad_to(block_bytes);
        Ok(w.finish())
    }
}

/// Sets the values of all entries to one number. Returns how many there are.
pub(super) fn set_numbers(block: &mut [u8], number: u64) -> usize {
    let slots = block.as_chunks_mut::<ENTRY_BYTES>().0.iter_mut().skip(1);
    slots
        .filter(|slot| slot[NAME_AT] != 0)
        .map(|slot| slot[..8].copy_from_slice(&number.to_ne_bytes()))
        .count()
}

fn decode_entry(slot: &[u8; ENTRY_BYTES], endian: Endian) -> MicroEntry<'_> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, _, _, text @ ..] = slot;
    let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    MicroEntry {
        name: &text[..len],
        value: endian.u64([*a, *b, *c, *d, *e, *f, *g, *h]),
        cd: endian.u32([*i, *j, *k, *l]),
    }
}
