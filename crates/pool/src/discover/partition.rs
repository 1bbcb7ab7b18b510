//! Partition tables, just enough to find partitions inside a disk image.
//!
//! ```text
//!   MBR, sector 0:   446 four entries of 16 bytes (type at 4, first sector u32 at 8, sectors u32 at 12)
//!                    510 0x55aa
//!   GPT, sector 1:   "EFI PART", entry array at 72 (u64), entries at 80 (u32), bytes per entry at 84 (u32)
//!       entry:       type GUID 0..16 (zero: unused), first sector u64 at 32, last sector u64 at 40
//!   GPT, last sector: a copy, in case the front was overwritten; an MBR entry of type 0xee announces a GPT
//! ```
//!
//! The kernel does this for block devices; image files need it here. Logical (extended) MBR partitions are
//! not followed: ZFS tools never create them. The table is only a hint: labels have checksums.

use super::window::WindowDevice;
use bytes::Bytes;
use cenote_device::Device;
use cenote_format::bytes::is_zero;
use std::sync::Arc;

/// GPT has 128 by default.
const MAX_ENTRIES: u32 = 256;
const GPT_SIGNATURE: &[u8] = b"EFI PART";
/// The MBR entry that covers a GPT disk.
const PROTECTIVE: u8 = 0xee;

#[derive(Debug, PartialEq, Eq)]
struct Extent {
    number: usize,
    start_bytes: u64,
    size_bytes: u64,
}

/// Partitions with their offsets.
pub(super) async fn partitions(device: &Arc<dyn Device>) -> Vec<(u64, Arc<dyn Device>)> {
    let mut found: Vec<(u64, Arc<dyn Device>)> = Vec::new();
    // Sectors have 512 bytes, or 4096 on native 4K disks, where the GPT header is then at 4096.
    for sector_bytes in [512, 4096] {
        for Extent { number, start_bytes, size_bytes } in table(device, sector_bytes).await {
            if let Some(window) = WindowDevice::new(device.clone(), number, start_bytes, size_bytes) {
                found.push((start_bytes, Arc::new(window)));
            }
        }
        if !found.is_empty() {
            break;
        }
    }
    found
}

async fn table(device: &Arc<dyn Device>, sector_bytes: u64) -> Vec<Extent> {
    let Ok(head) = device.read_at(0, 2 * sector_bytes as usize).await else { return Vec::new() };
    let (mbr, header) = head.split_at(sector_bytes as usize);
    let mut header = Bytes::copy_from_slice(header);
    if !header.starts_with(GPT_SIGNATURE) && announces_gpt(mbr) {
        let last = device.size_bytes().saturating_sub(sector_bytes);
        header = device.read_at(last, sector_bytes as usize).await.unwrap_or_default();
    }
    if !header.starts_with(GPT_SIGNATURE) {
        return mbr_entries(mbr, sector_bytes);
    }
    let header = &header[..];
    let fields = (u64_at(header, 72), u32_at(header, 80), u32_at(header, 84));
    let (Some(lba), Some(count), Some(entry_bytes @ 128..=4096)) = fields else { return Vec::new() };
    let len = count.min(MAX_ENTRIES) as usize * entry_bytes as usize;
    let Some(at) = lba.checked_mul(sector_bytes) else { return Vec::new() };
    let Ok(entries) = device.read_at(at, len).await else { return Vec::new() };
    gpt_entries(&entries, entry_bytes as usize, sector_bytes)
}

fn gpt_entries(entries: &[u8], entry_bytes: usize, sector_bytes: u64) -> Vec<Extent> {
    let entry = |(index, entry): (usize, &[u8])| {
        if is_zero(entry.get(..16)?) {
            return None;
        }
        let (first, last) = (u64_at(entry, 32)?, u64_at(entry, 40)?);
        let sectors = last.checked_sub(first)?.checked_add(1)?;
        extent(index + 1, first, sectors, sector_bytes)
    };
    entries.chunks_exact(entry_bytes).enumerate().filter_map(entry).collect()
}

/// A protective MBR.
fn announces_gpt(mbr: &[u8]) -> bool {
    mbr.get(510..512) == Some(&[0x55, 0xaa]) && mbr[446..510].chunks_exact(16).any(|e| e[4] == PROTECTIVE)
}

fn mbr_entries(mbr: &[u8], sector_bytes: u64) -> Vec<Extent> {
    if mbr.get(510..512) != Some(&[0x55, 0xaa]) {
        return Vec::new();
    }
    let entry = |(index, entry): (usize, &[u8])| {
        let used = !matches!(*entry.get(4)?, 0 | PROTECTIVE);
        let (first, sectors) = (u32_at(entry, 8)?, u32_at(entry, 12)?);
        extent(index + 1, first.into(), sectors.into(), sector_bytes).filter(|e| used && e.size_bytes > 0)
    };
    mbr[446..510].chunks_exact(16).enumerate().filter_map(entry).collect()
}

fn extent(number: usize, first: u64, sectors: u64, sector_bytes: u64) -> Option<Extent> {
    let (start_bytes, size_bytes) = (first.checked_mul(sector_bytes)?, sectors.checked_mul(sector_bytes)?);
    Some(Extent { number, start_bytes, size_bytes })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_device::MemoryDevice;
    use cenote_runtime::Runtime;

    #[test]
    fn a_gpt_entry_gives_its_extent_and_unused_ones_none() {
        let mut entries = vec![0; 4 * 128];
        entries[128..144].fill(7);
        entries[128 + 32..128 + 40].copy_from_slice(&2048u64.to_le_bytes());
        entries[128 + 40..128 + 48].copy_from_slice(&4095u64.to_le_bytes());
        // Third entry: ends before it begins, so it is not a partition.
        entries[256..272].fill(7);
        entries[256 + 32..256 + 40].copy_from_slice(&9u64.to_le_bytes());
        let expected = Extent { number: 2, start_bytes: 1 << 20, size_bytes: 1 << 20 };
        assert_eq!(gpt_entries(&entries, 128, 512), [expected]);
    }

    #[test]
    fn an_mbr_entry_gives_its_extent() {
        let mut mbr = vec![0; 512];
        assert_eq!(mbr_entries(&mbr, 512), []);
        mbr[510..].copy_from_slice(&[0x55, 0xaa]);
        mbr[450] = 0xbf;
        mbr[454..458].copy_from_slice(&8u32.to_le_bytes());
        mbr[458..462].copy_from_slice(&16u32.to_le_bytes());
        assert_eq!(mbr_entries(&mbr, 512), [Extent { number: 1, start_bytes: 4096, size_bytes: 8192 }]);
        mbr[450] = PROTECTIVE;
        assert!(mbr_entries(&mbr, 512).is_empty() && announces_gpt(&mbr));
    }

    /// A 1 MiB disk with one partition, from sector 8 to 15.
    fn disk_with_gpt(sector_bytes: usize, header_at: u64) -> Vec<u8> {
        let mut disk = vec![0; 1 << 20];
        disk[450] = PROTECTIVE;
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        let (header, entries) = (header_at as usize * sector_bytes, 4 * sector_bytes);
        disk[header..header + 8].copy_from_slice(GPT_SIGNATURE);
        disk[header + 72..header + 80].copy_from_slice(&4u64.to_le_bytes());
        disk[header + 80..header + 84].copy_from_slice(&1u32.to_le_bytes());
        disk[header + 84..header + 88].copy_from_slice(&128u32.to_le_bytes());
        disk[entries] = 7;
        disk[entries + 32..entries + 40].copy_from_slice(&8u64.to_le_bytes());
        disk[entries + 40..entries + 48].copy_from_slice(&15u64.to_le_bytes());
        disk
    }

    #[test]
    fn tables_of_native_4k_disks_and_those_whose_front_is_gone_are_found() {
        let runtime = Runtime::real(Some(1));
        for (sector_bytes, header_at) in [(512, 1), (4096, 1), (512, (1 << 11) - 1), (4096, (1 << 8) - 1)] {
            let content = disk_with_gpt(sector_bytes, header_at);
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_content("disk", content));
            let found = runtime.block_on(partitions(&device));
            let sizes: Vec<u64> = found.iter().map(|(_, partition)| partition.size_bytes()).collect();
            assert_eq!(
                sizes,
                [8 * sector_bytes as u64],
                "sectors of {sector_bytes}, header in sector {header_at}"
            );
        }
    }
}
