//! A line of a manifest, and its notation.
//!
//! Columns are separated by tabs: path type mode uid gid size nlink mtime rdev sha256 target xattrs ino ctime
//! btime flags projid. A column that does not apply is `-`. Bytes outside printable ASCII, and the backslash,
//! are written as `\xNN`; in names of extended attributes also space, comma and equals sign. Source: the
//! golden pools' README and `generators/gp.c`.

use std::fmt::Write as _;

use cenote_format::units::ObjectId;

use crate::attr::{Attr, FileKind};
use crate::manifest::ContentHash;

/// The header line, with its line feed.
pub const MANIFEST_HEADER: &str = "path\ttype\tmode\tuid\tgid\tsize\tnlink\tmtime\trdev\tsha256\t\
    target\txattrs\tino\tctime\tbtime\tflags\tprojid\n";

/// An extended attribute: its name, and size and hash of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrHash {
    /// The name as Linux shows it.
    pub name: bytes::Bytes,
    /// Bytes of the value.
    pub len: u64,
    /// SHA-256 of the value.
    pub sha256: [u8; 32],
}

/// The manifest's description of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestRow {
    /// Relative to the root, which is `.`.
    pub path: Vec<u8>,
    /// The object number, or the number that Linux shows instead.
    pub ino: ObjectId,
    /// The attributes.
    pub attr: Attr,
    /// For regular files, if requested.
    pub content: Option<ContentHash>,
    /// For symbolic links.
    pub target: Option<Vec<u8>>,
    /// Sorted by name.
    pub xattrs: Vec<XattrHash>,
}

impl ManifestRow {
    /// Appends the line, with its line feed.
    pub fn append_to(&self, out: &mut String) {
        let (attr, kind) = (&self.attr, self.attr.kind());
        escape_path(&self.path, out);
        let (uid, gid) = attr.owner();
        // Writing to a String can't fail.
        let _ = write!(
            out,
            "\t{}\t{:04o}\t{uid}\t{gid}\t{}\t{}\t{}\t",
            kind.letter(),
            attr.permissions(),
            attr.size,
            attr.links as u32,
            attr.mtime
        );
        match kind {
            FileKind::BlockDevice | FileKind::CharDevice => {
                let (major, minor) = attr.device();
                let _ = write!(out, "{major}:{minor}\t");
            }
            _ => out.push_str("-\t"),
        }
        match &self.content {
            Some(content) => content.append_to(out),
            None => out.push('-'),
        }
        out.push('\t');
        match &self.target {
            Some(target) => escape_path(target, out),
            None => out.push('-'),
        }
        out.push('\t');
        self.append_xattrs(out);
        let _ = write!(out, "\t{}\t{}\t{}\t", self.ino, attr.ctime, attr.crtime);
        let _ = match kind {
            FileKind::Regular | FileKind::Directory => {
                writeln!(out, "{:#x}\t{}", attr.linux_flags(), attr.project as u32)
            }
            _ => writeln!(out, "-\t-"),
        };
    }

    fn append_xattrs(&self, out: &mut String) {
        if self.xattrs.is_empty() {
            out.push('-');
        }
        for (index, xattr) in self.xattrs.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            escape(&xattr.name, |c| c == b' ' || c == b',' || c == b'=', out);
            let _ = write!(out, "={}:", xattr.len);
            append_hex(&xattr.sha256, out);
        }
    }
}

/// Appends a path or target with bytes outside printable ASCII, and backslashes, as `\xNN`.
pub fn escape_path(bytes: &[u8], out: &mut String) {
    escape(bytes, |_| false, out);
}

fn escape(bytes: &[u8], also: impl Fn(u8) -> bool, out: &mut String) {
    for &byte in bytes {
        if !(0x20..=0x7e).contains(&byte) || byte == b'\\' || also(byte) {
            let _ = write!(out, "\\x{byte:02x}");
        } else {
            out.push(char::from(byte));
        }
    }
}

pub(super) fn append_hex(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_bytes_are_escaped_and_spaces_in_paths_are_not() {
        let mut out = String::new();
        escape_path(b" a\\\t\x7f\xc3~", &mut out);
        assert_eq!(out, " a\\x5c\\x09\\x7f\\xc3~");
    }
}
