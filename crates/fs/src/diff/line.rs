//! A line of a diff, as printed by `zfs diff`.
//!
//! Bytes outside printable ASCII, spaces and backslashes are printed as a backslash and four octal digits.
//! Source: OpenZFS `libzfs_diff.c`.

use std::fmt::Write as _;

use cenote_format::text_or_bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attr::{FileKind, Timestamp};

/// A change of a file. Paths begin with a slash, at the file system's root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It was added.
    Added(
        #[serde(with = "text_or_bytes")]
        #[schemars(with = "text_or_bytes::TextOrBytes")]
        Vec<u8>,
    ),
    /// It was removed.
    Removed(
        #[serde(with = "text_or_bytes")]
        #[schemars(with = "text_or_bytes::TextOrBytes")]
        Vec<u8>,
    ),
    /// Content or attributes changed.
    Modified(
        #[serde(with = "text_or_bytes")]
        #[schemars(with = "text_or_bytes::TextOrBytes")]
        Vec<u8>,
    ),
    /// Its number of hard links changed.
    Links(
        #[serde(with = "text_or_bytes")]
        #[schemars(with = "text_or_bytes::TextOrBytes")]
        Vec<u8>,
        i64,
    ),
    /// It moved from the first path to the second.
    Renamed(
        #[serde(with = "text_or_bytes")]
        #[schemars(with = "text_or_bytes::TextOrBytes")]
        Vec<u8>,
        #[serde(with = "text_or_bytes")]
        #[schemars(with = "text_or_bytes::TextOrBytes")]
        Vec<u8>,
    ),
}

impl Change {
    /// The same with other paths.
    pub fn map(self, path: impl Fn(Vec<u8>) -> Vec<u8>) -> Change {
        match self {
            Change::Added(at) => Change::Added(path(at)),
            Change::Removed(at) => Change::Removed(path(at)),
            Change::Modified(at) => Change::Modified(path(at)),
            Change::Links(at, more) => Change::Links(path(at), more),
            Change::Renamed(from, to) => Change::Renamed(path(from), path(to)),
        }
    }
}

/// A change and the file's type and time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffLine {
    /// The change.
    pub change: Change,
    /// The file's type.
    pub kind: FileKind,
    /// When its inode last changed (in the state that the line describes).
    pub ctime: Timestamp,
}

/// Print options: those of `zfs diff`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiffStyle {
    /// `-H`: old and new path separated by a tab rather than an arrow.
    pub scripted: bool,
    /// `-F`: add a letter for the file type.
    pub classify: bool,
    /// `-t`: print the change time first.
    pub timestamps: bool,
    /// `-h`: print paths without escapes.
    pub verbatim: bool,
}

impl DiffLine {
    /// The line without a line feed; `mount_point` (without a trailing slash) is prepended to paths.
    pub fn format(&self, mount_point: &[u8], style: DiffStyle) -> Vec<u8> {
        let mut head = String::new();
        if style.timestamps {
            let _ = write!(head, "{:10}.{:09}\t", self.ctime.seconds, self.ctime.nanoseconds);
        }
        let (letter, path) = match &self.change {
            Change::Added(path) => ('+', path),
            Change::Removed(path) => ('-', path),
            Change::Modified(path) | Change::Links(path, _) => ('M', path),
            Change::Renamed(from, _) => ('R', from),
        };
        head.push(letter);
        head.push('\t');
        if style.classify {
            head.push(class(self.kind));
            head.push('\t');
        }
        let mut out = head.into_bytes();
        let append = |path: &[u8], out: &mut Vec<u8>| {
            for part in [mount_point, path] {
                if style.verbatim { out.extend_from_slice(part) } else { escape(part, out) }
            }
        };
        append(path, &mut out);
        match &self.change {
            Change::Links(_, delta) => out.extend_from_slice(format!("\t({delta:+})").as_bytes()),
            Change::Renamed(_, to) => {
                out.extend_from_slice(if style.scripted { b"\t" } else { b" -> " });
                append(to, &mut out);
            }
            _ => {}
        }
        out
    }
}

fn escape(path: &[u8], out: &mut Vec<u8>) {
    for &byte in path {
        if byte > b' ' && byte < 0x7f && byte != b'\\' {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("\\{byte:04o}").as_bytes());
        }
    }
}

fn class(kind: FileKind) -> char {
    match kind {
        FileKind::BlockDevice => 'B',
        FileKind::CharDevice => 'C',
        FileKind::Directory => '/',
        FileKind::Fifo => '|',
        FileKind::Symlink => '@',
        FileKind::Socket => '=',
        FileKind::Regular => 'F',
        FileKind::Other(_) => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_like_those_of_zfs() {
        let style = DiffStyle { scripted: true, classify: true, ..Default::default() };
        let line = |change, kind| {
            let line = DiffLine { change, kind, ctime: Timestamp { seconds: 5, nanoseconds: 7 } };
            String::from_utf8(line.format(b"/p/a", style)).unwrap()
        };
        assert_eq!(
            line(Change::Added(b"/f\xc3\xa9 \t".to_vec()), FileKind::Regular),
            "+\tF\t/p/a/f\\0303\\0251\\0040\\0011"
        );
        assert_eq!(line(Change::Links(b"/log".to_vec(), 1), FileKind::Regular), "M\tF\t/p/a/log\t(+1)");
        assert_eq!(
            line(Change::Renamed(b"/a".to_vec(), b"/b".to_vec()), FileKind::Directory),
            "R\t/\t/p/a/a\t/p/a/b"
        );
        let plain = DiffLine {
            change: Change::Removed(b"/x y".to_vec()),
            kind: FileKind::Fifo,
            ctime: Timestamp::default(),
        };
        let style = DiffStyle { timestamps: true, verbatim: true, ..Default::default() };
        assert_eq!(plain.format(b"", style), b"         0.000000000\t-\t/x y");
    }
}
