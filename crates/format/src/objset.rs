//! Object set head: the root of a dataset's objects, or of the MOS.
//!
//! Layout:
//!
//! ```text
//!      0 meta dnode (512): the object whose data are all dnodes
//!    512 intent-log header (192)
//!    704 type (8)   712 flags (8)   720 portable MAC (32)   752 local MAC (32)
//!   1024 user-used dnode (512)   1536 group-used dnode (512)     from size 2048 on
//!   2048 project-used dnode (512)                                from size 4096 on
//! ```
//!
//! Source: OpenZFS `dmu_objset.h` (`objset_phys_t`), `zil.h` (`zil_header_t`).

use bytes::Bytes;

use crate::blkptr::{BLKPTR_BYTES, Blkptr};
use crate::bytes::{Endian, Reader, Writer};
use crate::dnode::{DNODE_MIN_BYTES, Dnode};
use crate::error::{FormatError, Result};
use crate::units::Txg;

/// `OBJSET_PHYS_SIZE_V1`, without accounting objects.
pub const OBJSET_PHYS_SIZE_V1: usize = 1024;
/// `OBJSET_PHYS_SIZE_V2`, with user and group accounting.
pub const OBJSET_PHYS_SIZE_V2: usize = 2048;
/// `OBJSET_PHYS_SIZE_V3`, with project accounting.
pub const OBJSET_PHYS_SIZE_V3: usize = 4096;

const ZIL_HEADER_AT: usize = DNODE_MIN_BYTES;
const FIELDS_END: usize = ZIL_HEADER_AT + ZIL_HEADER_BYTES + 2 * 8 + 2 * 32;
const USERUSED_AT: usize = OBJSET_PHYS_SIZE_V1;
const GROUPUSED_AT: usize = USERUSED_AT + DNODE_MIN_BYTES;
const PROJECTUSED_AT: usize = OBJSET_PHYS_SIZE_V2;

const _: () = {
    assert!(ZIL_HEADER_AT + ZIL_HEADER_BYTES == 704, "where the type lies");
    assert!(FIELDS_END == 784 && FIELDS_END <= OBJSET_PHYS_SIZE_V1);
    assert!(GROUPUSED_AT + DNODE_MIN_BYTES == OBJSET_PHYS_SIZE_V2);
    assert!(PROJECTUSED_AT + DNODE_MIN_BYTES <= OBJSET_PHYS_SIZE_V3);
    assert!(ZIL_HEADER_BYTES == 2 * 8 + BLKPTR_BYTES + 6 * 8);
};

/// `OBJSET_FLAG_USERACCOUNTING_COMPLETE`: user and group space is accounted.
pub const OBJSET_FLAG_USERACCOUNTING_COMPLETE: u64 = 1 << 0;
/// `OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE`: user and group objects are accounted.
pub const OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE: u64 = 1 << 1;
/// `OBJSET_FLAG_PROJECTQUOTA_COMPLETE`: projects are accounted.
pub const OBJSET_FLAG_PROJECTQUOTA_COMPLETE: u64 = 1 << 2;

/// Kind of an object set, `dmu_objset_type_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjsetType {
    /// `DMU_OST_NONE`.
    None,
    /// MOS, `DMU_OST_META`.
    Meta,
    /// File system, `DMU_OST_ZFS`.
    Zfs,
    /// Volume, `DMU_OST_ZVOL`.
    Zvol,
    /// Unknown.
    Other(u64),
}

impl From<u64> for ObjsetType {
    fn from(value: u64) -> Self {
        match value {
            0 => ObjsetType::None,
            1 => ObjsetType::Meta,
            2 => ObjsetType::Zfs,
            3 => ObjsetType::Zvol,
            other => ObjsetType::Other(other),
        }
    }
}

impl From<ObjsetType> for u64 {
    fn from(value: ObjsetType) -> Self {
        match value {
            ObjsetType::None => 0,
            ObjsetType::Meta => 1,
            ObjsetType::Zfs => 2,
            ObjsetType::Zvol => 3,
            ObjsetType::Other(other) => other,
        }
    }
}

/// Intent-log header, `zil_header_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZilHeader {
    /// Txg that claimed the log; 0 if unclaimed.
    pub claim_txg: Txg,
    /// Last replayed sequence number.
    pub replay_seq: u64,
    /// First log block.
    pub log: Blkptr,
    /// Highest claimed block sequence number.
    pub claim_blk_seq: u64,
    /// `ZIL_REPLAY_NEEDED` (1), `ZIL_CLAIM_LR_SEQ_VALID` (2).
    pub flags: u64,
    /// Highest claimed record sequence number.
    pub claim_lr_seq: u64,
}

/// `sizeof (zil_header_t)`.
pub const ZIL_HEADER_BYTES: usize = 192;
/// `ZIL_CLAIM_LR_SEQ_VALID`: `claim_lr_seq` is valid.
pub const ZIL_CLAIM_LR_SEQ_VALID: u64 = 2;
/// `ZIL_REPLAY_NEEDED`: records await replay.
pub const ZIL_REPLAY_NEEDED: u64 = 1;

impl ZilHeader {
    /// Header without an intent log.
    pub const EMPTY: ZilHeader = ZilHeader {
        claim_txg: Txg(0),
        replay_seq: 0,
        log: Blkptr::HOLE,
        claim_blk_seq: 0,
        flags: 0,
        claim_lr_seq: 0,
    };

    /// Whether an import for writing has claimed the log. Its blocks are then allocated, and the header
    /// records its end.
    pub fn is_claimed(&self) -> bool {
        self.claim_txg != Txg(0)
    }

    /// Whether a claimed log has unreplayed records. Otherwise its blocks only need freeing.
    pub fn needs_replay(&self) -> bool {
        self.is_claimed() && self.flags & ZIL_REPLAY_NEEDED != 0
    }

    /// Sequence number of the last possible block.
    pub fn last_block(&self) -> u64 {
        if self.is_claimed() { self.claim_blk_seq } else { u64::MAX }
    }

    /// Sequence number of the last possible record.
    pub fn last_record(&self) -> u64 {
        let is_known = self.is_claimed() && self.flags & ZIL_CLAIM_LR_SEQ_VALID != 0;
        if is_known { self.claim_lr_seq } else { u64::MAX }
    }

    /// Whether a claimed log may end before `block`, after `record`: everything claimed has been read. (The
    /// last claimed block is always unreadable.)
    pub fn may_end_before(&self, block: u64, record: u64) -> bool {
        let last_record = self.last_record();
        block == self.last_block() && (record == last_record || last_record == u64::MAX)
    }

    /// Reads the 192 bytes.
    pub fn read(r: &mut Reader<'_>) -> Result<Self> {
        let header = ZilHeader {
            claim_txg: Txg(r.u64()?),
            replay_seq: r.u64()?,
            log: Blkptr::read(r)?,
            claim_blk_seq: r.u64()?,
            flags: r.u64()?,
            claim_lr_seq: r.u64()?,
        };
        r.skip(24)?;
        Ok(header)
    }

    /// Appends the 192 bytes.
    pub fn write(&self, w: &mut Writer) {
        w.u64(self.claim_txg.0).u64(self.replay_seq);
        self.log.write(w);
        w.words(&[self.claim_blk_seq, self.flags, self.claim_lr_seq, 0, 0, 0]);
    }
}

/// Object set head, `objset_phys_t`.
#[derive(Debug, Clone)]
pub struct ObjsetPhys {
    /// Dnode of all dnodes; `None` only in a damaged or empty set.
    pub meta_dnode: Option<Dnode>,
    /// Intent-log header.
    pub zil_header: ZilHeader,
    /// Kind of the set.
    pub objset_type: ObjsetType,
    /// `OBJSET_FLAG_*`.
    pub flags: u64,
    /// MAC that survives send and receive.
    pub portable_mac: [u8; 32],
    /// MAC of the pool-local accounting.
    pub local_mac: [u8; 32],
    /// Bytes by user.
    pub userused_dnode: Option<Dnode>,
    /// Bytes by group.
    pub groupused_dnode: Option<Dnode>,
    /// Bytes by project.
    pub projectused_dnode: Option<Dnode>,
}

impl ObjsetPhys {
    /// Decodes 1024, 2048 or 4096 bytes.
    pub fn decode(block: &Bytes, endian: Endian) -> Result<Self> {
        if block.len() < OBJSET_PHYS_SIZE_V1 {
            return Err(FormatError::Truncated {
                what: "object set",
                need: OBJSET_PHYS_SIZE_V1,
                have: block.len(),
            });
        }
        let dnode_at = |at: usize, since: usize| {
            if block.len() < since {
                Ok(None)
            } else {
                Dnode::decode(block.slice(at..at + DNODE_MIN_BYTES), endian)
            }
        };
        let mut r = Reader::new("object set", &block[ZIL_HEADER_AT..], endian);
        let zil_header = ZilHeader::read(&mut r)?;
        debug_assert_eq!(r.position(), ZIL_HEADER_BYTES);
        let objset = ObjsetPhys {
            meta_dnode: dnode_at(0, OBJSET_PHYS_SIZE_V1)?,
            zil_header,
            objset_type: r.u64()?.into(),
            flags: r.u64()?,
            portable_mac: r.array()?,
            local_mac: r.array()?,
            userused_dnode: dnode_at(USERUSED_AT, OBJSET_PHYS_SIZE_V2)?,
            groupused_dnode: dnode_at(GROUPUSED_AT, OBJSET_PHYS_SIZE_V2)?,
            projectused_dnode: dnode_at(PROJECTUSED_AT, OBJSET_PHYS_SIZE_V3)?,
        };
        debug_assert_eq!(ZIL_HEADER_AT + r.position(), FIELDS_END);
        Ok(objset)
    }

    /// Set without objects.
    pub fn empty(objset_type: ObjsetType) -> Self {
        ObjsetPhys {
            meta_dnode: None,
            zil_header: ZilHeader::EMPTY,
            objset_type,
            flags: 0,
            portable_mac: [0; 32],
            local_mac: [0; 32],
            userused_dnode: None,
            groupused_dnode: None,
            projectused_dnode: None,
        }
    }

    /// Encodes `len` bytes (`OBJSET_PHYS_SIZE_*`) in native byte order; drops fields beyond.
    pub fn encode(&self, len: usize) -> Vec<u8> {
        let mut w = Writer::new(Endian::NATIVE);
        let dnode = |w: &mut Writer, dnode: &Option<Dnode>, at: usize| {
            w.pad_to(at);
            if let Some(dnode) = dnode {
                w.bytes(dnode.raw());
            }
        };
        dnode(&mut w, &self.meta_dnode, 0);
        w.pad_to(ZIL_HEADER_AT);
        self.zil_header.write(&mut w);
        w.words(&[self.objset_type.into(), self.flags]);
        w.bytes(&self.portable_mac).bytes(&self.local_mac);
        assert_eq!(w.position(), FIELDS_END);
        dnode(&mut w, &self.userused_dnode, USERUSED_AT);
        dnode(&mut w, &self.groupused_dnode, GROUPUSED_AT);
        dnode(&mut w, &self.projectused_dnode, PROJECTUSED_AT);
        w.pad_to(OBJSET_PHYS_SIZE_V3);
        let mut block = w.finish();
        block.truncate(len);
        block
    }
}
