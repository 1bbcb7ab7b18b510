//! The block devices of this machine, partitions included.
//!
//! Idea: the kernel lists the devices that have sectors in one file. A machine may have thousands of unused
//! loop devices; asking sysfs about each takes longer than most commands.
//!
//! Source: `proc(5)` (`partitions`), Linux `block/genhd.c` (`show_partition`).

/// A block device with at least one sector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its name in `/dev`.
    pub name: String,
    /// Its size, in units of 1,024 bytes.
    pub size_kib: u64,
}

/// All block devices with sectors; none if `/proc` is not mounted.
pub fn block_devices() -> Vec<BlockDevice> {
    parse(&std::fs::read_to_string("/proc/partitions").unwrap_or_default())
}

fn parse(partitions: &str) -> Vec<BlockDevice> {
    partitions.lines().filter_map(device).collect()
}

/// Major and minor number, KiB, name. The heading has no number in the third place.
fn device(line: &str) -> Option<BlockDevice> {
    let mut fields = line.split_whitespace().skip(2);
    let size_kib = fields.next()?.parse().ok()?;
    // Older kernels put '!' for the '/' in names such as cciss/c0d0.
    Some(BlockDevice { name: fields.next()?.replace('!', "/"), size_kib })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_partitions_are_listed_with_their_sizes() {
        let text = "major minor  #blocks  name\n\n   7        0      65536 loop0\n 259        1  268435456 \
                    nvme0n1p1\n 104        0       1024 cciss!c0d0\n";
        let device = |name: &str, size_kib| BlockDevice { name: name.into(), size_kib };
        let expected = [device("loop0", 65536), device("nvme0n1p1", 268_435_456), device("cciss/c0d0", 1024)];
        assert_eq!(parse(text), expected);
    }
}
