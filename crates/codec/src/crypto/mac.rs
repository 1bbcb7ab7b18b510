//! MACs over structure: block pointers, indirect blocks and object sets.
//!
//! Idea: blocks above level 0 are plaintext, but their rearrangement must be detected. So each pointer is
//! condensed to the parts that survive a raw send: its MAC and the portable bits of its properties:
//!
//! ```text
//! blk_prop, masked, little-endian 8 | MAC 16 | zeros 8       (the zeros are missing in key version 0)
//! ```
//!
//! An indirect block's MAC is a plain SHA-512 over its condensed pointers. An object set's *portable* MAC is
//! an HMAC over type, flags and metadnode; its *local* MAC covers flags and the accounting dnodes, which are
//! never sent. Both use little-endian images, except for the type, which OpenZFS feeds big-endian.
//!
//! Source: OpenZFS `zio_crypt.c` (`zio_crypt_bp_auth_init`, `zio_crypt_do_indirect_mac_checksum`,
//! `zio_crypt_do_objset_hmacs`), `dmu_objset.h` (`objset_phys_t`).

use super::layout::{CORE_BYTES, Dnode, FLAG_SPILL, FLAGS_AT, USED};
use super::{CryptoError, KeyVersion, Mac, MasterKey};
use crate::Endian;
use aws_lc_rs::{digest, hmac};

pub(super) const POINTER_BYTES: usize = 128;
/// `ZIO_OBJSET_MAC_LEN`.
pub const OBJSET_MAC_BYTES: usize = 32;

/// Fields of `blk_prop`.
const PROP_PSIZE: u64 = 0xffff << 16;
const PROP_COMPRESS: u64 = 0x7f << 32;
const PROP_CHECKSUM: u64 = 0xff << 40;
const PROP_LEVEL: u64 = 0x1f << 56;
const PROP_DEDUP: u64 = 1 << 62;
const PROP_LITTLE_ENDIAN: u64 = 1 << 63;
const TYPE_OBJSET: u64 = 11;

/// Portable part of a pointer (`blkptr_auth_buf_t`).
pub(super) struct PointerDigest {
    bytes: [u8; 32],
    len: usize,
}

impl PointerDigest {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// `endian` is the byte order of the containing block.
pub(super) fn pointer_digest(
    pointer: &[u8; POINTER_BYTES],
    endian: Endian,
    version: KeyVersion,
) -> PointerDigest {
    let (words, _) = pointer.as_chunks::<8>();
    let word = |i: usize| endian.u64(words[i]);
    let prop = word(6);
    let is_hole = word(0) == 0 && word(1) == 0;

    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&portable_prop(prop, is_hole, version).to_le_bytes());
    // The MAC is a byte string in words of the target block's byte order. An object set keeps its MACs
    // inside.
    if (prop >> 48) & 0xff != TYPE_OBJSET {
        let target = if prop & PROP_LITTLE_ENDIAN != 0 { Endian::Little } else { Endian::Big };
        bytes[8..16].copy_from_slice(&target.bytes(word(14)));
        bytes[16..24].copy_from_slice(&target.bytes(word(15)));
    }
    PointerDigest { bytes, len: if version == KeyVersion::V0 { 24 } else { 32 } }
}

/// `zio_crypt_bp_zero_nonportable_blkprop`. A physical size of one sector is stored as zero.
fn portable_prop(prop: u64, is_hole: bool, version: KeyVersion) -> u64 {
    let at_level_0 = prop & PROP_LEVEL == 0;
    match version {
        KeyVersion::V0 => prop & !(PROP_DEDUP | PROP_CHECKSUM | PROP_PSIZE),
        KeyVersion::V1 if is_hole => 0,
        KeyVersion::V1 if at_level_0 => prop & !(PROP_DEDUP | PROP_CHECKSUM),
        // A raw send carries no indirect blocks, so the receiver's may differ.
        KeyVersion::V1 => {
            prop & !(PROP_DEDUP | PROP_CHECKSUM | PROP_PSIZE | PROP_COMPRESS | PROP_LITTLE_ENDIAN)
        }
    }
}

/// Whether `mac` is the MAC of a decompressed indirect block.
///
/// This needs no key, so the key version is unknown: both are tried.
#[must_use]
pub fn indirect_matches(block: &[u8], endian: Endian, mac: &Mac) -> bool {
    [KeyVersion::V1, KeyVersion::V0].into_iter().any(|version| indirect_mac(block, endian, version) == *mac)
}

/// MAC of an indirect block: SHA-512 over its condensed pointers, cut to 16 bytes.
#[must_use]
pub fn indirect_mac(block: &[u8], endian: Endian, version: KeyVersion) -> Mac {
    let mut sha = digest::Context::new(&digest::SHA512);
    for pointer in block.as_chunks::<POINTER_BYTES>().0 {
        sha.update(pointer_digest(pointer, endian, version).bytes());
    }
    let digest = sha.finish();
    std::array::from_fn(|i| digest.as_ref()[i])
}

/// Both MACs of an object set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjsetMacs {
    /// Covers the metadnode; part of a raw send.
    pub portable: [u8; OBJSET_MAC_BYTES],
    /// Covers user, group and project accounting; zeros without any.
    pub local: [u8; OBJSET_MAC_BYTES],
}

/// Offsets in `objset_phys_t`.
const TYPE_AT: usize = 704;
const FLAGS_OBJSET_AT: usize = 712;
const PORTABLE_MAC_AT: usize = 720;
const LOCAL_MAC_AT: usize = 752;
const USER_USED_AT: usize = 1024;
const GROUP_USED_AT: usize = 1536;
const PROJECT_USED_AT: usize = 2048;
/// `OBJSET_FLAG_USERACCOUNTING_COMPLETE`.
const FLAG_ACCOUNTING_COMPLETE: u64 = 1;
/// `OBJSET_PHYS_SIZE_V2` and `_V3`: user and group accounting, and project accounting, start at these sizes.
const SIZE_V2: usize = 2048;
const SIZE_V3: usize = 4096;

impl ObjsetMacs {
    /// Stored MACs of an object set; `None` if too short.
    #[must_use]
    pub fn stored(objset: &[u8]) -> Option<Self> {
        let field = |at: usize| objset.get(at..)?.first_chunk().copied();
        Some(Self { portable: field(PORTABLE_MAC_AT)?, local: field(LOCAL_MAC_AT)? })
    }

    /// Stores the MACs in an object set. Returns whether they fit.
    #[must_use]
    pub fn store(&self, objset: &mut [u8]) -> bool {
        let Some(fields) = objset.get_mut(PORTABLE_MAC_AT..LOCAL_MAC_AT + OBJSET_MAC_BYTES) else {
            return false;
        };
        fields[..OBJSET_MAC_BYTES].copy_from_slice(&self.portable);
        fields[OBJSET_MAC_BYTES..].copy_from_slice(&self.local);
        true
    }
}

/// Expected MACs of a decompressed object set.
pub fn objset_macs(objset: &[u8], endian: Endian, key: &MasterKey) -> Result<ObjsetMacs, CryptoError> {
    const SHORT: CryptoError = CryptoError::BadLayout("the object set is too short");
    let object_type = endian.u64_at(objset, TYPE_AT).ok_or(SHORT)?;
    let flags = endian.u64_at(objset, FLAGS_OBJSET_AT).ok_or(SHORT)?;

    let mut portable = key.hmac();
    portable.update(&object_type.to_be_bytes());
    // Portable flags: none exist so far.
    portable.update(&[0; 8]);
    add_dnode(&mut portable, &Dnode::at(objset)?, endian, key.version());

    let accounting = accounting_dnodes(objset)?;
    let local = if flags & FLAG_ACCOUNTING_COMPLETE == 0 || accounting.is_empty() {
        [0; OBJSET_MAC_BYTES]
    } else {
        let mut local = key.hmac();
        local.update(&flags.to_le_bytes());
        for dnode in &accounting {
            add_dnode(&mut local, dnode, endian, key.version());
        }
        finish(local)
    };
    Ok(ObjsetMacs { portable: finish(portable), local })
}

/// None if the user or group dnode is missing, as in OpenZFS.
fn accounting_dnodes(objset: &[u8]) -> Result<Vec<Dnode<'_>>, CryptoError> {
    let mut places = Vec::new();
    if objset.len() >= SIZE_V2 {
        places.extend([USER_USED_AT, GROUP_USED_AT]);
    }
    if objset.len() >= SIZE_V3 {
        places.push(PROJECT_USED_AT);
    }
    let is_allocated = |at: &usize| objset.get(*at).is_some_and(|object_type| *object_type != 0);
    if !is_allocated(&USER_USED_AT) && !is_allocated(&GROUP_USED_AT) {
        return Ok(Vec::new());
    }
    places.into_iter().filter(is_allocated).map(|at| Dnode::at(&objset[at..])).collect()
}

fn add_dnode(hmac: &mut hmac::Context, dnode: &Dnode<'_>, endian: Endian, version: KeyVersion) {
    hmac.update(&little_endian_core(dnode.core, endian));
    for pointer in &dnode.pointers {
        hmac.update(pointer_digest(pointer, endian, version).bytes());
    }
}

fn little_endian_core(core: &[u8; CORE_BYTES], endian: Endian) -> [u8; CORE_BYTES] {
    let mut core = *core;
    core[FLAGS_AT] &= FLAG_SPILL;
    core[USED].fill(0);
    if endian == Endian::Big {
        core[8..10].reverse(); // dn_datablkszsec
        core[10..12].reverse(); // dn_bonuslen
        core[16..24].reverse(); // dn_maxblkid
    }
    core
}

fn finish(hmac: hmac::Context) -> [u8; OBJSET_MAC_BYTES] {
    let tag = hmac.sign();
    std::array::from_fn(|i| tag.as_ref()[i])
}
