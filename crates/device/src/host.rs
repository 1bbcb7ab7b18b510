//! The number by which OpenZFS tells machines apart.

/// The hostid: as OpenZFS's programs take it, from `ZFS_HOSTID` (for tests), the kernel's module, or the file
/// that `zgenhostid` makes; 0 if none is set.
///
/// Source: OpenZFS `gethostid.c` (`get_system_hostid`).
pub fn hostid() -> u32 {
    if let Some(given) = std::env::var_os("ZFS_HOSTID") {
        return given.to_str().and_then(number).unwrap_or(0);
    }
    let of_module = std::fs::read_to_string("/proc/sys/kernel/spl/hostid").ok();
    let of_module = of_module.and_then(|text| u32::from_str_radix(text.trim(), 16).ok());
    let of_file = || {
        let bytes = std::fs::read("/etc/hostid").ok()?;
        bytes.first_chunk::<4>().copied().map(u32::from_ne_bytes)
    };
    of_module.filter(|id| *id != 0).or_else(of_file).unwrap_or(0)
}

fn number(text: &str) -> Option<u32> {
    match text.trim().strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    }
}
