//! Encrypted and authenticated bytes of dnode and intent-log blocks.
//!
//! Idea: scrub, claim and send work without keys, so parts of these blocks stay readable: the tree below a
//! dnode, the chain of a log. Their portable bytes are authenticated (AAD).
//!
//! ```text
//! dnode, 512 bytes x (1 + extra slots)
//!   core 64 | pointers 128 x n | bonus ...                      | spill pointer 128, if flagged
//!   AAD(*)  | AAD(+)           | encrypted if its type is,       | AAD(+)
//!                                else AAD
//! log block
//!   chain header 144 | embedded checksum and MAC 40 | records ... up to `used`
//!   AAD              | neither
//! log record
//!   header 32 | body                                     any other: body encrypted
//!   AAD       | 32 fields | pointer 128 | data ...       TX_WRITE: fields and data encrypted, pointer AAD
//!             | 32 fields | count, pointers ...          TX_CLONE_RANGE: fields encrypted, the rest AAD
//! ```
//!
//! (*) without the non-portable flags and used space; (+) condensed as in [`super::mac`].
//!
//! Invariant: ranges ascend, do not overlap, and lie within their block. They depend on plaintext only, so
//! they are the same before and after decryption.
//!
//! Source: OpenZFS `zio_crypt.c` (`zio_crypt_init_uios_dnode`, `zio_crypt_init_uios_zil`), `dnode.h`,
//! `zil.h`.

use super::mac::{POINTER_BYTES, pointer_digest};
use super::{CryptoError, KeyVersion, Mac};
use crate::Endian;
use std::ops::Range;

/// Encrypted ranges and authenticated bytes of a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    secret: Vec<Range<usize>>,
    aad: Vec<u8>,
}

impl Layout {
    /// Encrypted ranges.
    #[must_use]
    pub fn secret(&self) -> &[Range<usize>] {
        &self.secret
    }

    /// Additional authenticated data.
    #[must_use]
    pub fn aad(&self) -> &[u8] {
        &self.aad
    }

    pub(super) fn gather(&self, block: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let mut secret = Vec::with_capacity(self.secret.iter().map(ExactSizeIterator::len).sum());
        for range in &self.secret {
            secret.extend_from_slice(block.get(range.clone()).ok_or(OTHER_BLOCK)?);
        }
        Ok(secret)
    }

    pub(super) fn scatter(&self, mut secret: &[u8], block: &mut [u8]) -> Result<(), CryptoError> {
        for range in &self.secret {
            let (piece, rest) = secret.split_at_checked(range.len()).ok_or(OTHER_BLOCK)?;
            block.get_mut(range.clone()).ok_or(OTHER_BLOCK)?.copy_from_slice(piece);
            secret = rest;
        }
        Ok(())
    }

    fn hide(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.secret.push(range);
        }
    }
}

const OTHER_BLOCK: CryptoError = CryptoError::BadLayout("the layout is of another block");

/// `DNODE_MIN_SIZE`.
const SLOT_BYTES: usize = 512;
/// `DNODE_CORE_SIZE`.
pub(super) const CORE_BYTES: usize = 64;
/// `DNODE_FLAG_SPILL_BLKPTR`, the only portable flag (`DNODE_CRYPT_PORTABLE_FLAGS_MASK`).
pub(super) const FLAG_SPILL: u8 = 1 << 2;
pub(super) const FLAGS_AT: usize = 7;
/// `dn_used`.
pub(super) const USED: Range<usize> = 24..32;

pub(super) struct Dnode<'a> {
    pub(super) core: &'a [u8; CORE_BYTES],
    /// Block pointers, then the spill pointer.
    pub(super) pointers: Vec<&'a [u8; POINTER_BYTES]>,
    bonus: Range<usize>,
    slots: usize,
}

impl<'a> Dnode<'a> {
    pub(super) fn at(bytes: &'a [u8]) -> Result<Self, CryptoError> {
        const CUT: CryptoError = CryptoError::BadLayout("a dnode reaches beyond its block");
        let core = bytes.first_chunk::<CORE_BYTES>().ok_or(CUT)?;
        let slots = 1 + usize::from(core[12]);
        let dnode = bytes.get(..slots * SLOT_BYTES).ok_or(CUT)?;

        let bonus_at = CORE_BYTES + usize::from(core[3]) * POINTER_BYTES;
        let spill = core[FLAGS_AT] & FLAG_SPILL != 0;
        let bonus_end = dnode.len() - if spill { POINTER_BYTES } else { 0 };
        if bonus_at > bonus_end {
            return Err(CryptoError::BadLayout("a dnode has more pointers than fit"));
        }
        let pointers = dnode[CORE_BYTES..bonus_at].as_chunks().0.iter();
        let spill_pointer = dnode[bonus_end..].as_chunks().0.iter().take(usize::from(spill));
        Ok(Dnode {
            core,
            pointers: pointers.chain(spill_pointer).collect(),
            bonus: bonus_at..bonus_end,
            slots,
        })
    }

    pub(super) fn is_allocated(&self) -> bool {
        self.core[0] != 0
    }

    /// Independent of the byte order: zero is zero in both.
    fn has_secret_bonus(&self) -> bool {
        self.is_allocated() && is_encrypted_type(self.core[4]) && self.core[10..12] != [0, 0]
    }
}

/// Whether objects and bonuses of this type are encrypted (`DMU_OT_IS_ENCRYPTED`).
#[must_use]
pub fn is_encrypted_type(object_type: u8) -> bool {
    const NEW_TYPE: u8 = 0x80;
    const NEW_ENCRYPTED: u8 = 0x20;
    // Log, dnode, old ACL, file, directory, delete queue, zvol, uint8, uint64, ACL, system ACL, FUIDs, space
    // used and quota, and four kinds of system attributes.
    const OLD_ENCRYPTED: [u8; 18] = [9, 10, 18, 19, 20, 22, 23, 25, 26, 33, 34, 35, 39, 40, 44, 45, 46, 47];
    if object_type & NEW_TYPE != 0 {
        object_type & NEW_ENCRYPTED != 0
    } else {
        OLD_ENCRYPTED.contains(&object_type)
    }
}

/// Layout of a stored dnode block.
pub fn dnodes(block: &[u8], endian: Endian, version: KeyVersion) -> Result<Layout, CryptoError> {
    let mut layout = Layout { aad: Vec::with_capacity(block.len()), secret: Vec::new() };
    let mut at = 0;
    while at + SLOT_BYTES <= block.len() {
        let dnode = Dnode::at(&block[at..])?;
        let mut core = *dnode.core;
        core[FLAGS_AT] &= FLAG_SPILL;
        core[USED].fill(0);
        layout.aad.extend_from_slice(&core);
        for pointer in &dnode.pointers {
            layout.aad.extend_from_slice(pointer_digest(pointer, endian, version).bytes());
        }
        let bonus = at + dnode.bonus.start..at + dnode.bonus.end;
        if dnode.has_secret_bonus() {
            layout.hide(bonus);
        } else {
            layout.aad.extend_from_slice(&block[bonus]);
        }
        at += dnode.slots * SLOT_BYTES;
    }
    Ok(layout)
}

/// Offsets in `zil_chain_t`: used count, end of the AAD, MAC, records.
const CHAIN_USED_AT: usize = 136;
const CHAIN_AAD_BYTES: usize = 144;
const CHAIN_MAC: Range<usize> = 168..184;
const RECORDS_AT: usize = 184;
/// `lr_t`.
const RECORD_HEADER_BYTES: usize = 32;
/// Four fields before the pointers of `lr_write_t` and `lr_clone_range_t`.
const FIELDS_END: usize = RECORD_HEADER_BYTES + 32;
const WRITE_DATA_AT: usize = FIELDS_END + POINTER_BYTES;
const TX_WRITE: u64 = 9;
const TX_CLONE_RANGE: u64 = 24;

/// MAC inside an intent-log block, whose pointer was written before its content was known.
#[must_use]
pub fn log_mac(block: &[u8]) -> Option<Mac> {
    block.get(CHAIN_MAC)?.try_into().ok()
}

/// Stores the MAC in an intent-log block. Returns whether it fits.
#[must_use]
pub fn store_log_mac(block: &mut [u8], mac: &Mac) -> bool {
    block.get_mut(CHAIN_MAC).map(|place| place.copy_from_slice(mac)).is_some()
}

/// Layout of a stored intent-log block.
pub fn log(block: &[u8], endian: Endian) -> Result<Layout, CryptoError> {
    const CUT: CryptoError = CryptoError::BadLayout("the log block is shorter than its header");
    let used = endian.u64_at(block, CHAIN_USED_AT).and_then(|used| usize::try_from(used).ok()).ok_or(CUT)?;
    let used = block.get(..used).filter(|used| used.len() >= RECORDS_AT).ok_or(CUT)?;

    let mut layout = Layout { aad: Vec::with_capacity(used.len()), secret: Vec::new() };
    layout.aad.extend_from_slice(&used[..CHAIN_AAD_BYTES]);
    let mut at = RECORDS_AT;
    while at < used.len() {
        at += log_record(&mut layout, &used[at..], at, endian)?;
    }
    Ok(layout)
}

/// Adds the record at the start of `rest`, block offset `at`; returns its length.
fn log_record(layout: &mut Layout, rest: &[u8], at: usize, endian: Endian) -> Result<usize, CryptoError> {
    const BAD: CryptoError = CryptoError::BadLayout("a log record reaches beyond its block");
    let record_type = endian.u64_at(rest, 0).ok_or(BAD)?;
    let length = endian.u64_at(rest, 8).and_then(|length| usize::try_from(length).ok()).ok_or(BAD)?;
    let record = rest.get(..length).filter(|record| record.len() >= RECORD_HEADER_BYTES).ok_or(BAD)?;

    layout.aad.extend_from_slice(&record[..RECORD_HEADER_BYTES]);
    match record_type {
        TX_WRITE => {
            let pointer = record.get(FIELDS_END..WRITE_DATA_AT).ok_or(BAD)?;
            layout.hide(at + RECORD_HEADER_BYTES..at + FIELDS_END);
            layout.aad.extend_from_slice(pointer);
            layout.hide(at + WRITE_DATA_AT..at + length);
        }
        TX_CLONE_RANGE => {
            let pointers = record.get(FIELDS_END..).ok_or(BAD)?;
            layout.hide(at + RECORD_HEADER_BYTES..at + FIELDS_END);
            layout.aad.extend_from_slice(pointers);
        }
        _ => layout.hide(at + RECORD_HEADER_BYTES..at + length),
    }
    Ok(length)
}

#[cfg(test)]
mod tests;
