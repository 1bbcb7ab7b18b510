//! Places to search for disks: from the options, otherwise from the environment.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cenote_device::Place;

use crate::error::ControlError;

/// The environment variable with the values of `--disks`, separated by ':'.
const VARIABLE: &str = "CENOTE_DISKS";

/// The places to search: typed ones, otherwise those in the environment. Empty means this machine's block
/// devices.
///
/// # Errors
/// A path does not exist: its disks would be missed silently. An address is malformed.
pub fn named(typed: &[PathBuf]) -> Result<Vec<Place>, ControlError> {
    let (by, places) = match std::env::var_os(VARIABLE) {
        Some(list) if typed.is_empty() => (VARIABLE, split(&list)),
        _ => ("--disks", typed.to_vec()),
    };
    let mut named = Vec::with_capacity(places.len());
    for place in places.iter().filter(|place| !place.as_os_str().is_empty()) {
        let place = Place::typed(place).map_err(|error| ControlError::Usage(format!("{by}: {error}")))?;
        if let Some(path) = place.path() {
            std::fs::metadata(path).map_err(ControlError::io(format!("{by} {}", path.display())))?;
        }
        named.push(place);
    }
    Ok(named)
}

/// The entries of a list. An address has its own colons: one ends it if a path or an address follows.
fn split(list: &OsStr) -> Vec<PathBuf> {
    let (mut entries, mut rest) = (Vec::new(), list.as_bytes());
    loop {
        let is_image = rest.starts_with(b"rbd:") && !rest.starts_with(b"rbd:/");
        let begins_one = |text: &[u8]| {
            ["nbd", "s3://", "iscsi://", "rbd:"].iter().any(|one| text.starts_with(one.as_bytes()))
        };
        let is_address = is_image || begins_one(rest) && rest.windows(3).any(|part| part == b"://");
        let ends = |at: usize| {
            let after = &rest[at + 1..];
            let begins = after.starts_with(b"/") && !after.starts_with(b"//") || after.starts_with(b".");
            !is_address || begins || after.is_empty() || begins_one(after)
        };
        let begun = match is_image {
            true => b"rbd:".len(),
            false => after_target(rest),
        };
        let end = (begun..rest.len()).find(|&at| rest[at] == b':' && ends(at));
        let entry = &rest[..end.unwrap_or(rest.len())];
        entries.push(Path::new(OsStr::from_bytes(entry)).to_owned());
        match end {
            Some(end) => rest = &rest[end + 1..],
            None => return entries,
        }
    }
}

/// Where the address of a target has ended its name, which may contain `:/` or `:.`; 0 for another address.
fn after_target(text: &[u8]) -> usize {
    let Some(rest) = text.strip_prefix(b"iscsi://") else { return 0 };
    let slashes = rest.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let second = { slashes }.nth(1).map_or(0, |(at, _)| at);
    text.len() - rest.len() + second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_paths_and_addresses() {
        for (list, entries) in [
            ("/a:b:./c", &["/a", "b", "./c"][..]),
            (
                "nbd://h:7/x:/a:nbds://[::1]:7/y:nbd+unix:///z?socket=/s",
                &["nbd://h:7/x", "/a", "nbds://[::1]:7/y", "nbd+unix:///z?socket=/s"],
            ),
            (
                "rbd:p/x?conf=/c:rbd:nbd/y:/a:nbd://h/z:rbd:p/q",
                &["rbd:p/x?conf=/c", "rbd:nbd/y", "/a", "nbd://h/z", "rbd:p/q"],
            ),
            ("rbd:/a", &["rbd", "/a"]),
            (
                "iscsi://h:7/iqn.a:b:.4fc/0:/a:iscsi://h/iqn.a/1?chap=/c:nbd://h/x:iscsi://h/iqn.a/2",
                &[
                    "iscsi://h:7/iqn.a:b:.4fc/0",
                    "/a",
                    "iscsi://h/iqn.a/1?chap=/c",
                    "nbd://h/x",
                    "iscsi://h/iqn.a/2",
                ],
            ),
            ("s3://b/p?endpoint=http://h:7:s3://c/p:/a", &["s3://b/p?endpoint=http://h:7", "s3://c/p", "/a"]),
            ("nbd:/a", &["nbd", "/a"]),
            ("", &[""]),
            ("/a:", &["/a", ""]),
        ] {
            let found = split(OsStr::new(list));
            assert_eq!(found, entries.iter().map(PathBuf::from).collect::<Vec<_>>(), "{list}");
        }
    }

    #[test]
    fn a_wrong_address_is_named_without_its_secrets() {
        let error = named(&["nbd://user:secret@h/x".into()]).unwrap_err().to_string();
        assert!(error.starts_with("--disks: nbd://:") && !error.contains("secret"), "{error}");
    }
}
