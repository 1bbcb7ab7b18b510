//! Encrypted blocks written by the OpenZFS kernel module (2.3.2), from object set to directory.
//!
//! `golden/CIPHER.chain` holds one path down a dataset of a test pool. Blocks are as stored; each block's
//! first pointer leads to the next:
//!
//! ```text
//! object set | metadnode's indirect blocks, level 5 to 1 | 32 dnodes | a directory (micro ZAP)
//! ```

#![allow(clippy::unwrap_used, reason = "a test that meets what it did not expect must stop")]

use cenote_codec::Endian;
use cenote_codec::checksum::{Checksum, Stored};
use cenote_codec::compress::Compression;
use cenote_codec::crypto::{
    Cipher, CryptoError, KeyVersion, MasterKey, WrappedKey, WrappingKey, layout, mac,
};

struct Golden {
    cipher: Cipher,
    guid: u64,
    iv: &'static str,
    mac: &'static str,
    master: &'static str,
    hmac: &'static str,
    user_key: &'static str,
}

const GOLDEN: [Golden; 2] = [
    Golden {
        cipher: Cipher::Aes128Ccm,
        guid: 11201688201897943870,
        iv: "c6cc47f44ae64c7b521ceb4a",
        mac: "466e4ed0391e88daeb712f6694eb2da1",
        master: "7c611cad66d35b4054bbacb3cc0ffe8800000000000000000000000000000000",
        hmac: "436d893c754fd8cdee05bb81260c55972a48813b37e5868194adbb1334a3bef1\
               9e5049adda63a5753fdf74ed23fcc3b9c5cadb98bdc8d94e736ee93eaa7261cd",
        user_key: "00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f",
    },
    Golden {
        cipher: Cipher::Aes192Gcm,
        guid: 13554615901385284282,
        iv: "557136869ca4dafe76c3b3e2",
        mac: "d361aecfa783bca6024d284232d0fe25",
        master: "c71e6eee702f461046c3ffa5617d520f8ca7bf1c45e2c5bc0000000000000000",
        hmac: "7099acef8e7500d933cb8ce6fc2fa3535bcc3c9b6e1b65d7f733cc16928e0638\
               1db65435c71a7115db8502ce7fbee62883f4d726239342b43bf6a34b3e2d3224",
        user_key: "f0e1d2c3b4a5968778695a4b3c2d1e0f0123456789abcdeffedcba9876543210",
    },
];

const DIRECTORY: u8 = 20;

fn hex<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

impl Golden {
    fn master_key(&self) -> MasterKey {
        let wrapped = WrappedKey {
            cipher: self.cipher,
            version: KeyVersion::V1,
            guid: self.guid,
            iv: hex(self.iv),
            mac: hex(self.mac),
            master: hex(self.master),
            hmac: hex(self.hmac),
        };
        wrapped.unwrap(&WrappingKey::from_hex(self.user_key).unwrap()).unwrap()
    }

    fn chain(&self) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        std::fs::read(format!("{folder}/{}.chain", self.cipher.name())).unwrap()
    }
}

struct Pointer<'a>(&'a [u8]);

impl Pointer<'_> {
    fn word(&self, i: usize) -> u64 {
        u64::from_le_bytes(self.0[8 * i..8 * i + 8].try_into().unwrap())
    }
    fn field(&self, shift: u32, bits: u32) -> u64 {
        (self.word(6) >> shift) & ((1 << bits) - 1)
    }
    fn logical_bytes(&self) -> usize {
        (self.field(0, 16) as usize + 1) * 512
    }
    fn stored_bytes(&self) -> usize {
        (self.field(16, 16) as usize + 1) * 512
    }
    fn level(&self) -> u64 {
        self.field(56, 5)
    }
    fn mac(&self) -> [u8; 16] {
        self.0[112..128].try_into().unwrap()
    }
    fn salt(&self) -> [u8; 8] {
        self.0[32..40].try_into().unwrap()
    }
    fn iv(&self) -> [u8; 12] {
        [&self.0[40..48], &self.0[92..96]].concat().try_into().unwrap()
    }

    /// Verifies the block's truncated checksum.
    fn take<'c>(&self, chain: &mut &'c [u8]) -> &'c [u8] {
        let (stored, rest) = chain.split_at(self.stored_bytes());
        *chain = rest;
        let checksum = Checksum::try_from(self.field(40, 8) as u8).unwrap();
        let words = std::array::from_fn(|i| self.word(12 + i));
        checksum.verify(stored, Endian::Little, None, words, Stored::ChecksumAndMac).unwrap();
        stored
    }
}

fn read(golden: &Golden) -> (Vec<u8>, Vec<u8>) {
    let (chain, key) = (golden.chain(), golden.master_key());
    let (objset, mut rest) = chain.split_at(4096);
    let expected = mac::ObjsetMacs::stored(objset).unwrap();
    assert_eq!(mac::objset_macs(objset, Endian::Little, &key).unwrap(), expected);
    assert_ne!(expected.local, [0; 32]);

    let mut pointer = objset[64..192].to_vec();
    while Pointer(&pointer).level() > 0 {
        let at = Pointer(&pointer);
        let stored = at.take(&mut rest);
        let compression = Compression::try_from(at.field(32, 7) as u8).unwrap();
        let indirect = compression.decompress(stored, at.logical_bytes()).unwrap();
        assert!(mac::indirect_matches(&indirect, Endian::Little, &at.mac()));
        let mut damaged = indirect.clone();
        damaged[112] ^= 1;
        assert!(!mac::indirect_matches(&damaged, Endian::Little, &at.mac()), "another MAC below");
        pointer = indirect[..128].to_vec();
    }

    let at = Pointer(&pointer);
    let mut dnodes = at.take(&mut rest).to_vec();
    let parts = layout::dnodes(&dnodes, Endian::Little, key.version()).unwrap();
    key.block_key(&at.salt()).open_parts(&at.iv(), &at.mac(), &parts, &mut dnodes).unwrap();
    for bonus in parts.secret() {
        assert_eq!(dnodes[bonus.start..][..4], 0x2f_505a_u32.to_le_bytes(), "a bonus of system attributes");
    }

    let directory = dnodes.chunks(512).find(|dnode| dnode[0] == DIRECTORY).unwrap();
    let at = Pointer(&directory[64..192]);
    let mut names = at.take(&mut rest).to_vec();
    key.block_key(&at.salt()).open(&at.iv(), &at.mac(), b"", &mut names).unwrap();
    assert!(rest.is_empty());
    (dnodes, names)
}

#[test]
fn what_the_kernel_encrypted_is_decrypted() {
    for golden in &GOLDEN {
        let (_, names) = read(golden);
        assert_eq!(names[..8], 0x8000_0000_0000_0003_u64.to_le_bytes(), "ZBT_MICRO");
        let names: Vec<&[u8]> =
            names[64..].chunks(64).map(|entry| entry[14..].split(|c| *c == 0).next().unwrap()).collect();
        assert_eq!(names[..4], [&b"sizes-rand"[..], b"sizes-text", b"sizes-half", b"big"]);
    }
}

/// Every byte of a dnode block is encrypted or authenticated, except non-portable ones.
#[test]
fn no_change_to_a_dnode_block_goes_unnoticed() {
    for golden in &GOLDEN {
        let (chain, key) = (golden.chain(), golden.master_key());
        let (dnodes_at, directory_bytes) = (chain.len() - 16384 - 1024, 1024);
        let dnodes = &chain[dnodes_at..chain.len() - directory_bytes];
        let pointer = level_1_pointer(&chain);
        let at = Pointer(&pointer);
        let block_key = key.block_key(&at.salt());
        for byte in (0..2048).chain(dnodes.len() - 700..dnodes.len()) {
            let mut damaged = dnodes.to_vec();
            damaged[byte] ^= 4;
            let opened = layout::dnodes(&damaged, Endian::Little, key.version())
                .and_then(|parts| block_key.open_parts(&at.iv(), &at.mac(), &parts, &mut damaged));
            let free = matches!(byte % 512, 24..32) || is_free_pointer_byte(dnodes, byte);
            assert_eq!(opened.is_ok(), free, "byte {byte} of {}", golden.cipher.name());
        }
    }
}

/// In a pointer only properties (word 6) and MAC (words 14, 15) are portable, without the checksum algorithm;
/// in a hole nothing is.
fn is_free_pointer_byte(dnodes: &[u8], byte: usize) -> bool {
    let dnode = &dnodes[byte / 512 * 512..][..512];
    let in_pointers = (byte % 512).checked_sub(64).filter(|at| at / 128 < usize::from(dnode[3]));
    let Some(at) = in_pointers else { return false };
    let pointer = Pointer(&dnode[64 + at / 128 * 128..][..128]);
    let is_hole = pointer.word(0) == 0 && pointer.word(1) == 0;
    match at % 128 {
        // This turns a hole into a block, whose zero properties then count.
        0..16 if is_hole => true,
        48..56 => is_hole || at % 128 == 53,
        112..128 => false,
        _ => true,
    }
}

/// Pointer to the dnodes: the first of the last indirect block.
fn level_1_pointer(chain: &[u8]) -> Vec<u8> {
    let mut rest = &chain[4096..];
    let mut pointer = chain[64..192].to_vec();
    while Pointer(&pointer).level() > 0 {
        let at = Pointer(&pointer);
        let compression = Compression::try_from(at.field(32, 7) as u8).unwrap();
        let indirect = compression.decompress(at.take(&mut rest), at.logical_bytes()).unwrap();
        pointer = indirect[..128].to_vec();
    }
    pointer
}

#[test]
fn damage_to_a_block_is_a_mac_error() {
    for golden in &GOLDEN {
        let (chain, key) = (golden.chain(), golden.master_key());
        let (dnodes, _) = read(golden);
        let directory = dnodes.chunks(512).find(|dnode| dnode[0] == DIRECTORY).unwrap();
        let at = Pointer(&directory[64..192]);
        let mut names = chain[chain.len() - at.stored_bytes()..].to_vec();
        names[100] ^= 1;
        let opened = key.block_key(&at.salt()).open(&at.iv(), &at.mac(), b"", &mut names);
        assert_eq!(opened, Err(CryptoError::Mac));
        assert!(names.iter().all(|byte| *byte == 0));
    }
}
