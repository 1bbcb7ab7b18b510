//! A file as one line, like `ls -l`, or as a JSON object; colours by type.

use cenote_dataset::ObjectId;
use cenote_fs::{Attr, FileKind};
use serde::Serialize;

use crate::render::{escape_terminal, iso_utc, nice_bytes};

/// What programs get to know of a file.
#[derive(Debug, Serialize)]
pub struct FileJson {
    /// Names are bytes: what is not printable UTF-8 is `\xNN`.
    pub path: String,
    #[serde(rename = "type")]
    kind: char,
    mode: String,
    uid: u64,
    gid: u64,
    size: u64,
    allocated: u64,
    nlink: u64,
    ino: u64,
    atime: String,
    mtime: String,
    ctime: String,
    btime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<(u32, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Of a symbolic link.
    pub target: Option<String>,
}

impl FileJson {
    /// Of a file shown as `path`.
    pub fn new(path: &[u8], object: ObjectId, attr: &Attr, target: Option<&[u8]>) -> FileJson {
        let is_device = matches!(attr.kind(), FileKind::BlockDevice | FileKind::CharDevice);
        FileJson {
            path: escape_terminal(path),
            kind: attr.kind().letter(),
            mode: format!("{:04o}", attr.permissions()),
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            allocated: attr.allocated_bytes(),
            nlink: attr.links,
            ino: object.0,
            atime: attr.atime.to_string(),
            mtime: attr.mtime.to_string(),
            ctime: attr.ctime.to_string(),
            btime: attr.crtime.to_string(),
            rdev: is_device.then(|| attr.device()),
            target: target.map(escape_terminal),
        }
    }
}

/// Type and permissions: `drwxr-xr-x`.
pub fn mode_text(attr: &Attr) -> String {
    let kind = match attr.kind() {
        FileKind::Regular => '-',
        FileKind::Other(_) => '?',
        kind => kind.letter(),
    };
    let mode = attr.permissions();
    let mut text = String::from(kind);
    // Set-id and sticky bits stand in the place of the x of user, group and others.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

/// Size, or the numbers of a device.
fn size_text(attr: &Attr, human: bool) -> String {
    match attr.kind() {
        FileKind::BlockDevice | FileKind::CharDevice => {
            let (major, minor) = attr.device();
            format!("{major}, {minor}")
        }
        _ if human => nice_bytes(attr.size),
        _ => attr.size.to_string(),
    }
}

/// Mode, links, owner, group, size, time of change and name of each file, in columns. Names are ready to be printed.
pub fn long_lines<'a>(files: impl Iterator<Item = (&'a Attr, String)>, human: bool) -> String {
    let rows: Vec<[String; 7]> = files
        .map(|(attr, name)| {
            let (uid, gid) = attr.owner();
            let cells = [attr.links.to_string(), uid.to_string(), gid.to_string(), size_text(attr, human)];
            let [links, uid, gid, size] = cells;
            [mode_text(attr), links, uid, gid, size, iso_utc(attr.mtime.seconds), name]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (links, uid, gid, size) = (width(1), width(2), width(3), width(4));
    rows.iter()
        .map(|[mode, l, u, g, s, time, name]| {
            format!("{mode} {l:>links$} {u:>uid$} {g:>gid$} {s:>size$} {time} {name}\n")
        })
        .collect()
}

/// A name in the colour of its type.
pub fn colored(name: String, attr: &Attr) -> String {
    let code = match attr.kind() {
        FileKind::Directory => "1;34",
        FileKind::Symlink => "1;36",
        FileKind::Fifo => "33",
        FileKind::Socket => "1;35",
        FileKind::BlockDevice | FileKind::CharDevice => "1;33",
        FileKind::Regular if attr.permissions() & 0o111 != 0 => "1;32",
        FileKind::Regular | FileKind::Other(_) => return name,
    };
    format!("\x1b[{code}m{name}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_look_as_ls_shows_them() {
        for (mode, text) in [
            (0o100644, "-rw-r--r--"),
            (0o104755, "-rwsr-xr-x"),
            (0o102640, "-rw-r-S---"),
            (0o041777, "drwxrwxrwt"),
            (0o120777, "lrwxrwxrwx"),
        ] {
            assert_eq!(mode_text(&Attr { mode, ..Attr::default() }), text);
        }
    }
}
