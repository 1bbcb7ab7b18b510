//! The kernel's version, for behaviour that the protocol does not announce.

use std::sync::OnceLock;

/// The first kernel that does (`vfs_fileattr_set`).
const CHECKS_FLAGS: (u32, u32) = (5, 13);

/// Whether the kernel checks permission to change a file's flags and project by `ioctl`. If not, any process
/// with the file open may ask for it.
pub fn checks_flags() -> bool {
    is_at_least(CHECKS_FLAGS)
}

/// False if the version is unknown.
pub(crate) fn is_at_least(wanted: (u32, u32)) -> bool {
    static RUNNING: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    let running = RUNNING.get_or_init(|| version(&rustix::system::uname().release().to_string_lossy()));
    running.is_some_and(|running| running >= wanted)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_releases() {
        assert_eq!(version("6.18.44-fc-v782\n"), Some((6, 18)));
        assert_eq!(version("6.6.0"), Some((6, 6)));
        assert!(version("10.0-rc1").unwrap() > (6, 18));
        assert_eq!(version("none"), None);
    }
}
