//! The groups of a socket's peer at the time of its connection (`SO_PEERGROUPS`).
#![allow(unsafe_code)] // getsockopt has no safe wrapper for this option; it fills an array of numbers

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// `NGROUPS_MAX` on Linux.
const MAX_GROUPS: usize = 65536;
/// More groups than this are rare.
const USUAL_GROUPS: usize = 64;

/// The supplementary groups of the peer.
pub(super) fn of_peer(stream: &UnixStream) -> io::Result<Vec<u32>> {
    match get(stream, USUAL_GROUPS) {
        Err(error) if error.raw_os_error() == Some(libc::ERANGE) => get(stream, MAX_GROUPS),
        got => got,
    }
}

fn get(stream: &UnixStream, count: usize) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; count];
    let mut bytes = (count * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into `groups`, which has that room, and their number
    // into `bytes`; every bit pattern is a valid number.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    #[test]
    fn ones_own_groups_are_those_of_the_process() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let mut own: Vec<u32> = own.split_whitespace().map(|gid| gid.parse().unwrap()).collect();
        let mut told = super::of_peer(&one).unwrap();
        own.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, own);
        assert!(super::get(&one, own.len().saturating_sub(1)).is_err() || own.is_empty());
    }
}
