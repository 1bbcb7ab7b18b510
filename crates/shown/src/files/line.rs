//! A file as one line, like `ls -l`, or as a JSON object; names coloured by type.

use cenote_control::files::{Attr, File, FileKind, ObjectId};
use cenote_control::text::{hex, iso_utc, json_name, quoted};
use serde::Serialize;

use crate::numbers::Numbers;

/// A file in JSON output.
#[derive(Debug, Serialize)]
pub struct FileJson {
    /// The path as every command accepts it: quoted, `$'a\xff'`, if not UTF-8.
    path: String,
    /// The bytes of a non-UTF-8 path, in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
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
    /// The target of a symbolic link.
    target: Option<String>,
}

impl FileJson {
    /// A file shown under `path`.
    pub fn new(path: &[u8], file: &File) -> FileJson {
        let attr = file.attr.unwrap_or_default();
        let is_device = matches!(attr.kind(), FileKind::BlockDevice | FileKind::CharDevice);
        FileJson {
            path: json_name(path),
            path_bytes: std::str::from_utf8(path).is_err().then(|| hex(path)),
            kind: attr.kind().letter(),
            mode: format!("{:04o}", attr.permissions()),
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            allocated: attr.allocated_bytes(),
            nlink: attr.links,
            ino: file.object.0,
            atime: attr.atime.to_string(),
            mtime: attr.mtime.to_string(),
            ctime: attr.ctime.to_string(),
            btime: attr.crtime.to_string(),
            rdev: is_device.then(|| attr.device()),
            target: file.link.as_deref().map(json_name),
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
    // Set-id and sticky bits replace the x of user, group and others.
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

fn size_text(attr: &Attr, numbers: Numbers) -> String {
    match attr.kind() {
        FileKind::BlockDevice | FileKind::CharDevice => {
            let (major, minor) = attr.device();
            format!("{major}, {minor}")
        }
        _ => numbers.bytes(attr.size),
    }
}

/// The cells of a file's line: its name, last; before it, in long format, mode, links, owner, group, size and
/// time of change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLine {
    inode: u64,
    cells: Vec<String>,
}

/// Separates cells in a record; escaped names contain no NUL.
const CELL_END: &str = "\0";

impl FileLine {
    /// Only the name, which is escaped already.
    fn short(object: ObjectId, name: String) -> FileLine {
        FileLine { inode: object.0, cells: vec![name] }
    }

    fn long(object: ObjectId, attr: &Attr, name: String, numbers: Numbers) -> FileLine {
        let (uid, gid) = attr.owner();
        let cells = [
            mode_text(attr),
            attr.links.to_string(),
            uid.to_string(),
            gid.to_string(),
            size_text(attr, numbers),
            iso_utc(attr.mtime.seconds),
            name,
        ];
        FileLine { inode: object.0, cells: cells.into() }
    }

    /// One string, which [`FileLine::from_record`] parses.
    pub fn to_record(&self) -> String {
        format!("{}{CELL_END}{}", self.inode, self.cells.join(CELL_END))
    }

    /// Parses a record made by [`FileLine::to_record`].
    pub fn from_record(record: &str) -> FileLine {
        let (inode, cells) = record.split_once(CELL_END).unwrap_or_default();
        let cells = cells.split(CELL_END).map(str::to_owned).collect();
        FileLine { inode: inode.parse().unwrap_or(0), cells }
    }
}

/// How the lines of files look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// Mode, links, owner, group, size and time of change before the name.
    pub long: bool,
    /// How sizes are printed.
    pub numbers: Numbers,
    /// Object numbers first.
    pub inodes: bool,
    /// Names in the colours of their types.
    pub colors: bool,
}

impl Shape {
    /// A file's line, under its name or path.
    pub(crate) fn line(self, name: &[u8], file: &File) -> FileLine {
        let attr = &file.attr.unwrap_or_default();
        let mut shown = quoted(name);
        if self.colors {
            shown = colored(shown, attr);
        }
        if !self.long {
            return FileLine::short(file.object, shown);
        }
        if let Some(link) = &file.link {
            shown = format!("{shown} -> {}", quoted(link));
        }
        FileLine::long(file.object, attr, shown, self.numbers)
    }

    /// Lines in columns. Names are escaped already; the colours are ours.
    pub(crate) fn columns(self, lines: &[FileLine]) -> String {
        in_columns(lines, self.inodes)
    }
}

/// Lays out lines in columns; with `inodes`, object numbers first.
fn in_columns(lines: &[FileLine], inodes: bool) -> String {
    let width = |column: usize| lines.iter().filter_map(|l| l.cells.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    let inode_width = lines.iter().map(|line| line.inode.to_string().len()).max().unwrap_or(0);
    let mut text = String::new();
    for FileLine { inode, cells } in lines {
        if inodes {
            text += &format!("{inode:>inode_width$} ");
        }
        let Some((name, before)) = cells.split_last() else { continue };
        for (cell, width) in before.iter().zip(&widths) {
            text += &format!("{cell:>width$} ");
        }
        text += name;
        text.push('\n');
    }
    text
}

/// A name in the colour of its file type.
fn colored(name: String, attr: &Attr) -> String {
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
    fn columns_are_as_wide_as_their_widest_cell() {
        let exact = Numbers { exact: true, ..Numbers::default() };
        let attr = |size| Attr { size, links: 1, mode: 0o100644, ..Attr::default() };
        let lines = [
            FileLine::long(ObjectId(7), &attr(5), "a b".into(), exact),
            FileLine::long(ObjectId(12), &attr(12345), "c".into(), exact),
        ];
        let back: Vec<_> = lines.iter().map(|line| FileLine::from_record(&line.to_record())).collect();
        assert_eq!(back, lines);
        let shown = in_columns(&back, true);
        assert_eq!(
            shown,
            " 7 -rw-r--r-- 1 0 0     5 1970-01-01 00:00:00Z a b\n\
             12 -rw-r--r-- 1 0 0 12345 1970-01-01 00:00:00Z c\n"
        );
        let short = [FileLine::short(ObjectId(3), "x".into())];
        assert_eq!(in_columns(&short, false), "x\n");
    }

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
