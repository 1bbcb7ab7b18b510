//! Shared parts of log records: names, attributes, ACLs, FUIDs.
//!
//! Layout:
//!
//! ```text
//!   lr_attr   masksize (4) | bitmap (4 each, masksize of them) | attrs (8) | crtime (16) | scanstamp (32)
//!   ACL       entries (acl_bytes, padded to 8) | log FUIDs (8 each) | domain names (NUL-terminated)
//! ```
//!
//! Source: OpenZFS `zil.h` (`lr_attr_t`, `lr_acl_t`), `xvattr.h`, `zfs_log.c`.

use bytes::Bytes;

use crate::bytes::{Reader, Writer};
use crate::error::{FormatError, Result, at_most};

/// Bitmap words of every known writer, `XVA_MAPSIZE`.
const XVA_MAPSIZE: u64 = 3;
/// Bound on domain names per record.
const MAX_DOMAINS: u64 = 1 << 16;

/// Attributes beyond POSIX: `lr_attr_t` and `lr_attr_end_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogAttrs {
    /// Attributes that the record sets, `XAT_*`; one to three words.
    pub requested: Vec<u32>,
    /// Values, `XAT0_*` bits.
    pub attrs: u64,
    /// Creation time: seconds, nanoseconds.
    pub crtime: [u64; 2],
    /// Virus scanner's stamp; or the project id in the first 8 bytes, in the writer's byte order.
    pub scanstamp: [u8; 32],
}

impl LogAttrs {
    /// Decodes an `lr_attr_t` and its variable part.
    pub fn read(r: &mut Reader<'_>) -> Result<Self> {
        let masksize = at_most("log attribute mask", r.u32()?.into(), XVA_MAPSIZE)?;
        let requested = (0..masksize.max(1)).map(|_| r.u32()).collect::<Result<_>>()?;
        Ok(LogAttrs { requested, attrs: r.u64()?, crtime: r.words()?, scanstamp: r.array()? })
    }

    /// Encodes it.
    pub fn write(&self, w: &mut Writer) {
        w.u32(self.requested.len() as u32);
        for &word in &self.requested {
            w.u32(word);
        }
        w.u64(self.attrs).words(&self.crtime).bytes(&self.scanstamp);
    }
}

/// Logged ACL with its identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogAcl {
    /// Entries.
    pub entry_count: u64,
    /// ACL-wide flags.
    pub flags: u64,
    /// `ace_t` entries of varying size, in the writer's byte order.
    pub entries: Bytes,
    /// Identities that replace other domains' in the entries.
    pub fuids: Vec<u64>,
    /// Domain names; the identities' upper halves count from 1.
    pub domains: Vec<Bytes>,
}

/// Counts before an ACL: `lr_aclcnt`, `lr_domcnt`, `lr_fuidcnt`, `lr_acl_bytes`, `lr_acl_flags`.
pub(super) type AclCounts = [u64; 5];

impl LogAcl {
    pub(super) fn counts(&self) -> AclCounts {
        let (domains, fuids) = (self.domains.len() as u64, self.fuids.len() as u64);
        [self.entry_count, domains, fuids, self.entries.len() as u64, self.flags]
    }

    /// Reads the announced items, checking each count against the remaining bytes.
    pub(super) fn read(p: &mut Payload<'_>, counts: AclCounts) -> Result<Self> {
        let [entry_count, domain_count, fuid_count, acl_bytes, flags] = counts;
        let entries = p.take(acl_bytes)?;
        p.skip_padding(acl_bytes)?;
        at_most("log ACL's FUIDs", fuid_count, (p.reader.remaining() / 8) as u64)?;
        let fuids = (0..fuid_count).map(|_| p.reader.u64()).collect::<Result<_>>()?;
        Ok(LogAcl { entry_count, flags, entries, fuids, domains: p.names(domain_count)? })
    }

    pub(super) fn write(&self, w: &mut Writer) {
        w.bytes(&self.entries);
        w.bytes(&[0; 8][..self.entries.len().next_multiple_of(8) - self.entries.len()]);
        w.words(&self.fuids);
        for domain in &self.domains {
            write_name(w, domain);
        }
    }
}

/// Domain names of a record without ACL: one for each FUID among owner and group, but one if both share a
/// domain.
pub(super) fn owner_domains(uid: u64, gid: u64) -> u64 {
    let (uid_domain, gid_domain) = (uid >> 32, gid >> 32);
    u64::from(uid_domain != 0) + u64::from(gid_domain != 0 && gid_domain != uid_domain)
}

/// Variable part of a record: a bounded reader of shared slices.
pub(super) struct Payload<'a> {
    pub(super) reader: Reader<'a>,
    bytes: &'a Bytes,
}

impl<'a> Payload<'a> {
    pub(super) fn new(bytes: &'a Bytes, endian: crate::bytes::Endian) -> Self {
        Payload { reader: Reader::new("log record", bytes, endian), bytes }
    }

    /// Next `len` bytes, shared.
    pub(super) fn take(&mut self, len: u64) -> Result<Bytes> {
        let len = at_most("log record's data", len, self.reader.remaining() as u64)? as usize;
        let start = self.reader.position();
        self.reader.skip(len)?;
        Ok(self.bytes.slice(start..start + len))
    }

    pub(super) fn rest(&mut self) -> Result<Bytes> {
        self.take(self.reader.remaining() as u64)
    }

    fn skip_padding(&mut self, len: u64) -> Result<()> {
        self.reader.skip((len.wrapping_neg() % 8) as usize)
    }

    /// Next NUL-terminated name, without NUL.
    pub(super) fn name(&mut self) -> Result<Bytes> {
        let start = self.reader.position();
        let len = self.bytes[start..]
            .iter()
            .position(|&b| b == 0)
            .ok_or(FormatError::Corrupt { what: "log record", why: "a name has no end" })?;
        let name = self.take(len as u64)?;
        self.reader.skip(1)?;
        Ok(name)
    }

    pub(super) fn names(&mut self, count: u64) -> Result<Vec<Bytes>> {
        at_most("log record's domains", count, (self.reader.remaining() as u64).min(MAX_DOMAINS))?;
        (0..count).map(|_| self.name()).collect()
    }
}

pub(super) fn write_name(w: &mut Writer, name: &[u8]) {
    w.bytes(name).u8(0);
}
