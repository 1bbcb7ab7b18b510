//! Mounted file systems, from `/proc/self/mountinfo`.
//!
//! ```text
//! 31 1 0:28 /sub /m rw,noatime shared:1 - zfs healthy rw,xattr,noacl
//!        |   |   |  \ options      \ optional  | |       \ file system options
//!        |   |   \ mount point         fields  | \ source
//!        |   \ folder within the file system   \ type
//!        \ device
//! ```
//! Source: proc(5). In names, spaces, tabs, newlines and backslashes are written `\040` etc.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Root;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// `ext4`, `zfs`, `btrfs`...
    pub kind: String,
    /// Mounted object: a device, a dataset, a server's folder.
    pub source: String,
    /// Mount point.
    pub point: PathBuf,
    /// Options of the mount, then those of the file system.
    pub options: Vec<String>,
    /// Device numbers; (0, n) without its own device.
    pub device: (u32, u32),
}

/// All mounts, in mount order.
pub(super) fn all(root: &Root) -> io::Result<Vec<Mount>> {
    Ok(root.read("proc/self/mountinfo")?.lines().filter_map(parse).collect())
}

/// Mount of a path: the last of those with the longest mount point above the path.
pub(super) fn of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    // Among equals `max_by_key` takes the last, which hides the others.
    let under = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    under.max_by_key(|mount| mount.point.components().count())
}

fn parse(line: &str) -> Option<Mount> {
    let (of_mount, of_kind) = line.split_once(" - ")?;
    let before: Vec<&str> = of_mount.split(' ').collect();
    let mut after = of_kind.split(' ');
    let (major, minor) = before.get(2)?.split_once(':')?;
    let (kind, source) = (after.next()?, after.next()?);
    let mut options: Vec<String> = before.get(5)?.split(',').map(str::to_owned).collect();
    for option in after.next().unwrap_or_default().split(',') {
        if !options.iter().any(|o| o == option) && !option.is_empty() {
            options.push(option.to_owned());
        }
    }
    Some(Mount {
        kind: kind.to_owned(),
        source: unescape(source),
        point: unescape(before.get(4)?).into(),
        options,
        device: (major.parse().ok()?, minor.parse().ok()?),
    })
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;

    #[test]
    fn a_path_is_on_the_mount_that_hides_the_others() {
        let lines = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
                     31 27 0:28 / /m rw,noatime shared:1 master:2 - zfs tank rw,xattr\n\
                     32 31 0:29 / /m/my\\040data rw - zfs tank/my\\040data rw,xattr\n\
                     33 31 0:30 / /m/my\\040data rw - tmpfs none rw";
        let mounts: Vec<Mount> = lines.lines().filter_map(parse).collect();
        assert_eq!(mounts.len(), 4);
        assert_eq!(of(&mounts, Path::new("/m/a/b")).unwrap().source, "tank");
        assert_eq!(of(&mounts, Path::new("/mother")).unwrap().kind, "ext4");
        assert_eq!(
            of(&mounts, Path::new("/m/my data/x")).unwrap().kind,
            "tmpfs",
            "the last one hides the dataset"
        );
        assert_eq!(mounts[2].source, "tank/my data");
        assert_eq!(mounts[0].options, ["rw", "relatime", "discard"]);
    }
}
