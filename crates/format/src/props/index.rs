//! Names and on-disk numbers of index properties.
//!
//! If several names share a number, the first is shown.

use super::IndexValue;

/// Algorithm bits of a compression property, `SPA_COMPRESSBITS`; the level is above.
pub const SPA_COMPRESSBITS: u32 = 7;
/// `SPA_COMPRESSMASK`.
pub const SPA_COMPRESSMASK: u64 = (1 << SPA_COMPRESSBITS) - 1;
/// `ZIO_CHECKSUM_VERIFY`: dedup with byte comparison.
pub const ZIO_CHECKSUM_VERIFY: u64 = 1 << 8;

/// `ZIO_COMPLEVEL_ZSTD`.
const fn zstd(level: u64) -> u64 {
    16 | level << SPA_COMPRESSBITS
}

pub(super) static BOOLEAN: &[IndexValue] = &[("on", 1), ("off", 0)];

pub(super) static CHECKSUM: &[IndexValue] = &[
    ("on", 1),
    ("off", 2),
    ("fletcher2", 6),
    ("fletcher4", 7),
    ("sha256", 8),
    ("noparity", 10),
    ("sha512", 11),
    ("skein", 12),
    ("edonr", 13),
    ("blake3", 14),
];

pub(super) static DEDUP: &[IndexValue] = &[
    ("on", 1),
    ("off", 2),
    ("verify", 1 | ZIO_CHECKSUM_VERIFY),
    ("sha256", 8),
    ("sha256,verify", 8 | ZIO_CHECKSUM_VERIFY),
    ("sha512", 11),
    ("sha512,verify", 11 | ZIO_CHECKSUM_VERIFY),
    ("skein", 12),
    ("skein,verify", 12 | ZIO_CHECKSUM_VERIFY),
    ("edonr,verify", 13 | ZIO_CHECKSUM_VERIFY),
    ("blake3", 14),
    ("blake3,verify", 14 | ZIO_CHECKSUM_VERIFY),
];

#[rustfmt::skip]
pub(super) static COMPRESS: &[IndexValue] = &[
    ("on", 1), ("off", 2), ("lzjb", 3),
    ("gzip", 10), ("gzip-1", 5), ("gzip-2", 6), ("gzip-3", 7), ("gzip-4", 8), ("gzip-5", 9), ("gzip-6", 10),
    ("gzip-7", 11), ("gzip-8", 12), ("gzip-9", 13),
    ("zle", 14), ("lz4", 15), ("zstd", 16), ("zstd-fast", zstd(103)),
    ("zstd-1", zstd(1)), ("zstd-2", zstd(2)), ("zstd-3", zstd(3)), ("zstd-4", zstd(4)), ("zstd-5", zstd(5)),
    ("zstd-6", zstd(6)), ("zstd-7", zstd(7)), ("zstd-8", zstd(8)), ("zstd-9", zstd(9)), ("zstd-10", zstd(10)),
    ("zstd-11", zstd(11)), ("zstd-12", zstd(12)), ("zstd-13", zstd(13)), ("zstd-14", zstd(14)),
    ("zstd-15", zstd(15)), ("zstd-16", zstd(16)), ("zstd-17", zstd(17)), ("zstd-18", zstd(18)),
    ("zstd-19", zstd(19)),
    ("zstd-fast-1", zstd(103)), ("zstd-fast-2", zstd(104)), ("zstd-fast-3", zstd(105)),
    ("zstd-fast-4", zstd(106)), ("zstd-fast-5", zstd(107)), ("zstd-fast-6", zstd(108)),
    ("zstd-fast-7", zstd(109)), ("zstd-fast-8", zstd(110)), ("zstd-fast-9", zstd(111)),
    ("zstd-fast-10", zstd(112)), ("zstd-fast-20", zstd(113)), ("zstd-fast-30", zstd(114)),
    ("zstd-fast-40", zstd(115)), ("zstd-fast-50", zstd(116)), ("zstd-fast-60", zstd(117)),
    ("zstd-fast-70", zstd(118)), ("zstd-fast-80", zstd(119)), ("zstd-fast-90", zstd(120)),
    ("zstd-fast-100", zstd(121)), ("zstd-fast-500", zstd(122)), ("zstd-fast-1000", zstd(123)),
];

pub(super) static ENCRYPTION: &[IndexValue] = &[
    ("on", 1),
    ("off", 2),
    ("aes-128-ccm", 3),
    ("aes-192-ccm", 4),
    ("aes-256-ccm", 5),
    ("aes-128-gcm", 6),
    ("aes-192-gcm", 7),
    ("aes-256-gcm", 8),
];

pub(super) static KEYFORMAT: &[IndexValue] = &[("none", 0), ("raw", 1), ("hex", 2), ("passphrase", 3)];
pub(super) static KEYSTATUS: &[IndexValue] = &[("none", 0), ("unavailable", 1), ("available", 2)];
pub(super) static SNAPDIR: &[IndexValue] = &[("hidden", 0), ("visible", 1), ("disabled", 2)];
pub(super) static SNAPDEV: &[IndexValue] = &[("hidden", 0), ("visible", 1)];
pub(super) static ACL_MODE: &[IndexValue] =
    &[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)];
pub(super) static ACLTYPE: &[IndexValue] =
    &[("off", 0), ("posix", 1), ("nfsv4", 2), ("disabled", 0), ("noacl", 0), ("posixacl", 1)];
pub(super) static ACL_INHERIT: &[IndexValue] = &[
    ("discard", 0),
    ("noallow", 1),
    ("restricted", 4),
    ("passthrough", 3),
    ("secure", 4),
    ("passthrough-x", 5),
];
pub(super) static CASE: &[IndexValue] = &[("sensitive", 0), ("insensitive", 1), ("mixed", 2)];
pub(super) static COPIES: &[IndexValue] = &[("1", 1), ("2", 2), ("3", 3)];
pub(super) static NORMALIZE: &[IndexValue] =
    &[("none", 0), ("formD", 0x10), ("formKC", 0x60), ("formC", 0x50), ("formKD", 0x20)];
pub(super) static VERSION: &[IndexValue] =
    &[("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5), ("current", 5)];
pub(super) static LOGBIAS: &[IndexValue] = &[("latency", 0), ("throughput", 1)];
pub(super) static CANMOUNT: &[IndexValue] = &[("off", 0), ("on", 1), ("noauto", 2)];
pub(super) static CACHE: &[IndexValue] = &[("none", 0), ("metadata", 1), ("all", 2)];
pub(super) static PREFETCH: &[IndexValue] = &[("none", 0), ("metadata", 1), ("all", 2)];
pub(super) static SYNC: &[IndexValue] = &[("standard", 0), ("always", 1), ("disabled", 2)];
pub(super) static XATTR: &[IndexValue] = &[("off", 0), ("on", 2), ("sa", 2), ("dir", 1)];
pub(super) static DNSIZE: &[IndexValue] =
    &[("legacy", 0), ("auto", 1), ("1k", 1024), ("2k", 2048), ("4k", 4096), ("8k", 8192), ("16k", 16384)];
pub(super) static REDUNDANT_METADATA: &[IndexValue] = &[("all", 0), ("most", 1), ("some", 2), ("none", 3)];
pub(super) static VOLMODE: &[IndexValue] =
    &[("default", 0), ("full", 1), ("geom", 1), ("dev", 2), ("none", 3)];
pub(super) static DIRECT: &[IndexValue] = &[("disabled", 0), ("standard", 1), ("always", 2)];
pub(super) static FAILUREMODE: &[IndexValue] = &[("wait", 0), ("continue", 1), ("panic", 2)];
