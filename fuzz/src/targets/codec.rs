//! Decompressors, embedded checksums, encrypted block layouts.

use cenote_codec::Endian;
use cenote_codec::checksum::{Checksum, Stored};
use cenote_codec::compress::Compression;
use cenote_codec::crypto::mac::{ObjsetMacs, indirect_mac};
use cenote_codec::crypto::{KeyVersion, layout};

use super::consume;

/// Decompresses into several block sizes.
fn unpack(compression: Compression, data: &[u8]) {
    for len in [0, 1, 512, 4096, 16 << 10, 128 << 10] {
        if let Ok(block) = compression.decompress(data, len) {
            assert_eq!(block.len(), len, "the block is full");
        }
    }
}

/// lzjb.
pub fn lzjb(data: &[u8]) {
    unpack(Compression::Lzjb, data);
}

/// zle.
pub fn zle(data: &[u8]) {
    unpack(Compression::Zle, data);
}

/// lz4, preceded by OpenZFS's length.
pub fn lz4(data: &[u8]) {
    unpack(Compression::Lz4, data);
}

/// gzip: a zlib stream.
pub fn gzip(data: &[u8]) {
    unpack(Compression::Gzip6, data);
}

/// zstd, preceded by OpenZFS's header.
pub fn zstd(data: &[u8]) {
    unpack(Compression::Zstd, data);
}

/// Embedded checksums: a sealed block verifies, with any content.
pub fn embedded_checksum(data: &[u8]) {
    for checksum in [Checksum::Label, Checksum::GangHeader, Checksum::Zilog, Checksum::Zilog2] {
        for holds in [Stored::Checksum, Stored::ChecksumAndMac] {
            consume(checksum.verify_embedded(data, [1, 2, 3, 4], holds));
        }
        let mut block = data.to_vec();
        if checksum.seal(&mut block, [1, 2, 3, 4], Endian::Little).is_ok() {
            let verified = checksum.verify_embedded(&block, [1, 2, 3, 4], Stored::Checksum);
            assert!(verified.is_ok(), "{checksum:?}: what was sealed verifies");
        }
    }
}

/// Encrypted and authenticated ranges of a block.
pub fn crypt_layout(data: &[u8]) {
    let check = |found: layout::Layout| {
        let mut end = 0;
        for range in found.secret() {
            assert!(range.start >= end && range.end <= data.len(), "ranges lie in the block, in order");
            end = range.end;
        }
    };
    for endian in [Endian::Little, Endian::Big] {
        for version in [KeyVersion::V0, KeyVersion::V1] {
            layout::dnodes(data, endian, version).into_iter().for_each(check);
            consume(indirect_mac(data, endian, version));
        }
        layout::log(data, endian).into_iter().for_each(check);
    }
    consume((layout::log_mac(data), ObjsetMacs::stored(data)));
}
