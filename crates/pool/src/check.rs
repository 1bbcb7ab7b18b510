//! The checksum that a block must match, and its verification.

use cenote_codec::Endian as CodecEndian;
use cenote_codec::checksum::embedded::gang_verifier;
use cenote_codec::checksum::{Checksum, ChecksumError, ChecksumSalt, Stored};
use cenote_codec::compress::Compression;
use cenote_codec::fletcher::fletcher4_of_parts;
use cenote_format::blkptr::Blkptr;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::gang::SPA_OLD_GANGBLOCKSIZE;
use cenote_runtime::WorkKind;

pub(crate) fn codec_endian(endian: Endian) -> CodecEndian {
    match endian {
        Endian::Little => CodecEndian::Little,
        Endian::Big => CodecEndian::Big,
    }
}

pub(crate) fn native_endian() -> CodecEndian {
    codec_endian(Endian::NATIVE)
}

#[derive(Clone, Copy)]
pub(crate) enum Check<'a> {
    /// Four words in the pointer.
    Pointer {
        checksum: Checksum,
        words: [u64; 4],
        endian: CodecEndian,
        holds: Stored,
        salt: Option<&'a ChecksumSalt>,
    },
    /// Inside the block, bound to `verifier`.
    Embedded { checksum: Checksum, verifier: [u64; 4], holds: Stored },
    /// At the end of a gang header, which may be an old, short one.
    GangHeader { verifier: [u64; 4], holds: Stored },
}

impl<'a> Check<'a> {
    /// Fails for an unknown algorithm.
    pub(crate) fn of(bp: &Blkptr, salt: Option<&'a ChecksumSalt>) -> Result<Check<'a>, ChecksumError> {
        let checksum = Checksum::try_from(bp.checksum_id())?;
        let words = bp.checksum();
        let holds = held(bp);
        if checksum.is_embedded() {
            return Ok(Check::Embedded { checksum, verifier: words, holds });
        }
        Ok(Check::Pointer { checksum, words, endian: codec_endian(bp.endian()), holds, salt })
    }

    /// Bound to its pointer's first address and birth.
    pub(crate) fn gang_header(bp: &Blkptr) -> Option<Check<'a>> {
        let first = bp.dvas().next()?;
        let verifier = gang_verifier(first.vdev.0, first.offset_bytes, bp.physical_birth().0);
        Some(Check::GangHeader { verifier, holds: held(bp) })
    }

    pub(crate) fn verify(&self, data: &[u8]) -> Result<(), ChecksumError> {
        match *self {
            Check::Pointer { checksum, words, endian, holds, salt } => {
                checksum.verify(data, endian, salt, words, holds)
            }
            Check::Embedded { checksum, verifier, holds } => {
                checksum.verify_embedded(data, verifier, holds).map(|_| ())
            }
            Check::GangHeader { .. } => self.gang_header_bytes(data).map(|_| ()),
        }
    }

    /// Length of the gang header in `data`.
    pub(crate) fn gang_header_bytes(&self, data: &[u8]) -> Result<usize, ChecksumError> {
        let Check::GangHeader { verifier, holds } = *self else { return Err(ChecksumError::NotEmbedded) };
        let verify = |bytes: &[u8]| Checksum::GangHeader.verify_embedded(bytes, verifier, holds);
        let old = data.get(..SPA_OLD_GANGBLOCKSIZE).ok_or(ChecksumError::NotEmbedded)?;
        match verify(data) {
            Ok(_) => Ok(data.len()),
            Err(error) => verify(old).map(|_| old.len()).map_err(|_| error),
        }
    }

    /// Verifies parts in order; `scratch` is used to join them.
    pub(crate) fn verify_parts(&self, parts: &[&[u8]], scratch: &mut Vec<u8>) -> bool {
        if let [whole] = parts {
            return self.verify(whole).is_ok();
        }
        if let Check::Pointer { checksum: checksum @ Checksum::Fletcher4, words, endian, holds, .. } = *self {
            let sum = fletcher4_of_parts(parts, endian == CodecEndian::Big);
            return match holds {
                Stored::Checksum => sum == words,
                Stored::ChecksumAndMac => checksum.beside_mac(sum) == [words[0], words[1]],
            };
        }
        scratch.clear();
        parts.iter().for_each(|part| scratch.extend_from_slice(part));
        self.verify(scratch).is_ok()
    }

    /// No checksum: any bytes pass.
    pub(crate) fn is_vacuous(&self) -> bool {
        matches!(self, Check::Pointer { checksum: Checksum::Off | Checksum::NoParity, .. })
    }

    pub(crate) fn is_of_log(&self) -> bool {
        matches!(self, Check::Embedded { checksum: Checksum::Zilog | Checksum::Zilog2, .. })
    }

    pub(crate) fn algorithm(&self) -> Checksum {
        match *self {
            Check::Pointer { checksum, .. } | Check::Embedded { checksum, .. } => checksum,
            Check::GangHeader { .. } => Checksum::GangHeader,
        }
    }

    pub(crate) fn work(&self) -> WorkKind {
        checksum_work(self.algorithm())
    }
}

pub(crate) fn checksum_work(checksum: Checksum) -> WorkKind {
    match checksum {
        Checksum::Fletcher2 | Checksum::Zilog => WorkKind::Fletcher2,
        Checksum::Sha256 | Checksum::Label | Checksum::GangHeader => WorkKind::Sha256,
        Checksum::Sha512 => WorkKind::Sha512,
        Checksum::Skein => WorkKind::Skein,
        Checksum::EdonR => WorkKind::EdonR,
        Checksum::Blake3 => WorkKind::Blake3,
        _ => WorkKind::Fletcher4,
    }
}

/// With the crypt bit set a checksum has two words, even in a gang header, which has no MAC beside it.
fn held(bp: &Blkptr) -> Stored {
    let with_mac = bp.uses_crypt() && bp.object_type() != ObjectType::OBJSET;
    if with_mac { Stored::ChecksumAndMac } else { Stored::Checksum }
}

pub(crate) fn decompression_work(compression: Compression) -> WorkKind {
    match compression {
        Compression::Lzjb => WorkKind::DecompressLzjb,
        Compression::Zle => WorkKind::DecompressZle,
        Compression::Lz4 => WorkKind::DecompressLz4,
        Compression::Zstd => WorkKind::DecompressZstd,
        Compression::Off => WorkKind::Copy,
        _ => WorkKind::DecompressGzip,
    }
}

pub(crate) fn compression_work(compression: Compression) -> WorkKind {
    match compression {
        Compression::Lzjb => WorkKind::CompressLzjb,
        Compression::Zle => WorkKind::CompressZle,
        Compression::Lz4 => WorkKind::CompressLz4,
        Compression::Zstd => WorkKind::CompressZstd,
        Compression::Off | Compression::Empty => WorkKind::Copy,
        _ => WorkKind::CompressGzip,
    }
}
