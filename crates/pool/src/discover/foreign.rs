//! Detects foreign content of a device: file systems, swap space, members of volume managers.
//!
//! Idea: magic bytes at a fixed place mark such content. A table has the marks likely on a Linux machine,
//! with `blkid`'s names. A missing entry costs no more than a warning. Partitions are examined as well, since
//! `zpool create` on the whole disk overwrites them.
//!
//! A mark of two bytes matches one in 65,536 disks of noise, so ext and HFS+ get further checks.
//!
//! Source: util-linux, `libblkid/src/superblocks/`: the places and magic numbers in its `BLKID_IDINFO`
//! tables; `md.rst` and `ext4/super.rst` of the kernel's documentation.

use super::partition::partitions;
use cenote_device::Device;
use std::sync::Arc;

/// Foreign content on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// Its name in `blkid`: `ext4`, `swap`, `LVM2_member`.
    pub kind: &'static str,
    /// The device, or the partition on it.
    pub path: String,
}

/// The start of a device, with all marks.
const HEAD_BYTES: usize = 128 << 10;
/// The end: older RAID superblocks are at most 128 KiB from it.
const TAIL_BYTES: usize = 128 << 10;

/// (name, place in bytes, mark)
type Mark = (&'static str, usize, &'static [u8]);

/// The first match counts, so containers come before their possible content.
const MARKS: &[Mark] = &[
    ("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    ("BitLocker", 3, b"-FVE-FS-"),
    ("LVM2_member", 0x018, b"LVM2 001"),
    ("LVM2_member", 0x218, b"LVM2 001"),
    ("LVM2_member", 0x418, b"LVM2 001"),
    ("LVM2_member", 0x618, b"LVM2 001"),
    ("stratis", 0x204, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("linux_raid_member", 0, b"\xfc\x4e\x2b\xa9"),
    ("linux_raid_member", 4096, b"\xfc\x4e\x2b\xa9"),
    ("bcache", 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("bcachefs", 0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    ("ceph_bluestore", 0, b"bluestore block device"),
    ("vdo", 0, b"dmvdo001"),
    ("DM_integrity", 0, b"integrity\0"),
    ("DM_verity_hash", 0, b"verity\0\0"),
    ("xfs", 0, b"XFSB"),
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    ("apfs", 32, b"NXSB"),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("vfat", 0x52, b"FAT32   "),
    ("vfat", 0x36, b"FAT16   "),
    ("vfat", 0x36, b"FAT12   "),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    ("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    ("squashfs", 0, b"hsqs"),
    ("reiserfs", 0x1_0034, b"ReIsErFs"),
    ("reiserfs", 0x1_0034, b"ReIsEr2Fs"),
    ("reiserfs", 0x1_0034, b"ReIsEr3Fs"),
    ("jfs", 0x8000, b"JFS1"),
    ("gfs2", 0x1_0000, b"\x01\x16\x19\x70"),
    ("ocfs2", 0x400, b"OCFSV2"),
    ("ocfs2", 0x800, b"OCFSV2"),
    ("ocfs2", 0x1000, b"OCFSV2"),
    ("ocfs2", 0x2000, b"OCFSV2"),
    ("udf", 0x8001, b"BEA01"),
    ("udf", 0x8001, b"NSR0"),
    ("iso9660", 0x8001, b"CD001"),
];

/// At the end of the first page: swap space and hibernated systems.
const SWAP_MARKS: [(&str, &[u8]); 5] = [
    ("swap", b"SWAPSPACE2"),
    ("swap", b"SWAP-SPACE"),
    ("swsuspend", b"S1SUSPEND"),
    ("swsuspend", b"S2SUSPEND"),
    ("swsuspend", b"ULSUSPEND"),
];
const PAGES: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The content of a device, or of its first non-empty partition. `None` if unknown or unreadable.
pub async fn foreign(device: &Arc<dyn Device>) -> Option<Foreign> {
    let found = |device: &Arc<dyn Device>, kind| Foreign { kind, path: device.describe().to_owned() };
    if let Some(kind) = kind(device).await {
        return Some(found(device, kind));
    }
    for (_, partition) in partitions(device).await {
        if let Some(kind) = kind(&partition).await {
            return Some(found(&partition, kind));
        }
    }
    None
}

async fn kind(device: &Arc<dyn Device>) -> Option<&'static str> {
    let size_bytes = device.size_bytes();
    let head = device.read_at(0, size_bytes.min(HEAD_BYTES as u64) as usize).await.ok()?;
    let tail_bytes = size_bytes.min(TAIL_BYTES as u64);
    let tail = device.read_at(size_bytes - tail_bytes, tail_bytes as usize).await.unwrap_or_default();
    at_start(&head).or_else(|| is_raid_member(&tail, size_bytes).then_some("linux_raid_member"))
}

fn at_start(head: &[u8]) -> Option<&'static str> {
    let has = |at: usize, mark: &[u8]| head.get(at..).is_some_and(|bytes| bytes.starts_with(mark));
    let marked = MARKS.iter().find(|(_, at, mark)| has(*at, mark)).map(|(kind, ..)| *kind);
    let swap = || {
        let marks = SWAP_MARKS.iter().flat_map(|(kind, mark)| PAGES.map(|page| (*kind, page - 10, *mark)));
        marks.into_iter().find(|(_, at, mark)| has(*at, mark)).map(|(kind, ..)| kind)
    };
    marked.or_else(swap).or_else(|| ext(head)).or_else(|| hfsplus(head))
}

/// ext2, ext3 and ext4 share a superblock at byte 1024; features tell them apart.
fn ext(head: &[u8]) -> Option<&'static str> {
    /// `s_inodes_count`, `s_blocks_count_lo`, `s_log_block_size`, `s_magic`, `s_rev_level`; and
    /// `s_feature_compat`, `s_feature_incompat`, `s_feature_ro_compat`.
    const INODES: usize = 0x00;
    const BLOCKS: usize = 0x04;
    const LOG_BLOCK: usize = 0x18;
    const MAGIC: usize = 0x38;
    const REVISION: usize = 0x4c;
    const COMPAT: usize = 0x5c;
    const INCOMPAT: usize = 0x60;
    const RO_COMPAT: usize = 0x64;
    const HAS_JOURNAL: u32 = 0x4;
    /// `filetype`, `recover`, `meta_bg`; and `sparse_super`, `large_file`, `btree_dir`.
    const INCOMPAT_OF_EXT3: u32 = 0x2 | 0x4 | 0x10;
    const RO_COMPAT_OF_EXT3: u32 = 0x1 | 0x2 | 0x4;
    let superblock = head.get(1024..2048)?;
    let word = |at| u32_at(superblock, at);
    let is_sound = word(INODES)? > 0 && word(BLOCKS)? > 0 && word(LOG_BLOCK)? <= 6 && word(REVISION)? <= 1;
    if superblock[MAGIC..MAGIC + 2] != [0x53, 0xef] || !is_sound {
        return None;
    }
    let newer = word(INCOMPAT)? & !INCOMPAT_OF_EXT3 | word(RO_COMPAT)? & !RO_COMPAT_OF_EXT3;
    Some(match word(COMPAT)? & HAS_JOURNAL {
        _ if newer != 0 => "ext4",
        0 => "ext2",
        _ => "ext3",
    })
}

fn hfsplus(head: &[u8]) -> Option<&'static str> {
    let signature_and_version = head.get(1024..1028)?;
    matches!(signature_and_version, b"H+\0\x04" | b"HX\0\x05").then_some("hfsplus")
}

/// Linux RAID, version 1.0 or 0.90.
fn is_raid_member(tail: &[u8], size_bytes: u64) -> bool {
    const MAGIC: u32 = 0xa92b_4efc;
    let start = size_bytes - tail.len() as u64;
    let magic_at = |place: Option<u64>| u32_at(tail, place?.checked_sub(start)? as usize);
    // 1.0: at least 8 KiB from the end, at a multiple of 4 KiB. 0.90: the last whole 64 KiB but one.
    let places = [
        (size_bytes / 512).checked_sub(16).map(|sector| (sector & !7) * 512),
        (size_bytes & !0xffff).checked_sub(0x1_0000),
    ];
    places.into_iter().filter_map(magic_at).any(|magic| magic == MAGIC || magic.swap_bytes() == MAGIC)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_device::MemoryDevice;
    use cenote_runtime::Runtime;

    const SIZE_BYTES: usize = 1 << 20;

    fn found(marks: &[(usize, &[u8])]) -> Option<Foreign> {
        let mut content = vec![0; SIZE_BYTES];
        marks.iter().for_each(|(at, mark)| content[*at..at + mark.len()].copy_from_slice(mark));
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_content("disk", content));
        Runtime::real(Some(1)).block_on(foreign(&device))
    }

    #[test]
    fn each_mark_is_found_and_zeros_are_nothing() {
        assert_eq!(found(&[]), None);
        for &(kind, at, mark) in MARKS {
            assert_eq!(found(&[(at, mark)]), Some(Foreign { kind, path: "disk".into() }), "{kind} at {at}");
        }
        for page in PAGES {
            assert_eq!(found(&[(page - 10, b"SWAPSPACE2")]).unwrap().kind, "swap");
        }
        let (old, new) = (SIZE_BYTES - 0x1_0000, SIZE_BYTES - 8192);
        for (at, magic) in
            [(new, b"\xfc\x4e\x2b\xa9"), (old, b"\xfc\x4e\x2b\xa9"), (old, b"\xa9\x2b\x4e\xfc")]
        {
            assert_eq!(found(&[(at, magic)]).unwrap().kind, "linux_raid_member", "{at}");
        }
    }

    #[test]
    fn ext_is_told_by_its_features_and_needs_more_than_its_magic() {
        let magic: (usize, &[u8]) = (1080, b"\x53\xef");
        let counts: (usize, &[u8]) = (1024, b"\x10\0\0\0\x10\0\0\0");
        let journal: (usize, &[u8]) = (1024 + 0x5c, b"\x04");
        let extents: (usize, &[u8]) = (1024 + 0x60, b"\x40");
        assert_eq!(found(&[magic]), None);
        assert_eq!(found(&[magic, counts]).unwrap().kind, "ext2");
        assert_eq!(found(&[magic, counts, journal]).unwrap().kind, "ext3");
        assert_eq!(found(&[magic, counts, journal, extents]).unwrap().kind, "ext4");
    }
}
