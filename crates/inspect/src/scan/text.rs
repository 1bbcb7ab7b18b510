//! Rows as text: tab-separated values and JSON lines.
//!
//! Rendering is most of a scan's work, so it runs on the workers, a batch at a time, and formats numbers
//! itself.

use std::io::Write as _;

use cenote_format::unseen::visible_json;
use cenote_fs::{Attr, FileKind, Timestamp};
use cenote_pool::VdevClass;

use super::columns::{Column, Columns};
use super::row::{Row, RowBatch};

/// Tab-separated values.
#[derive(Debug, Clone)]
pub struct Tsv {
    columns: Columns,
    end: u8,
}

impl Tsv {
    /// Rows end in `end`. If that is a line feed, bytes of names outside printable ASCII, tab and backslash
    /// are written as `\xNN`; otherwise names are written literally.
    pub fn new(columns: Columns, end: u8) -> Tsv {
        Tsv { columns, end }
    }

    /// The header row.
    pub fn header(&self) -> Vec<u8> {
        let names: Vec<&str> = self.columns.0.iter().map(|column| column.name()).collect();
        let mut out = names.join("\t").into_bytes();
        out.push(self.end);
        out
    }

    /// One row per file.
    pub fn render(&self, batch: &RowBatch) -> Vec<u8> {
        let mut out = Vec::with_capacity(batch.rows.len() * 32 + batch.paths.len());
        for row in &batch.rows {
            for (index, &column) in self.columns.0.iter().enumerate() {
                if index > 0 {
                    out.push(b'\t');
                }
                self.cell(&mut out, batch, row, column);
            }
            out.push(self.end);
        }
        out
    }

    fn cell(&self, out: &mut Vec<u8>, batch: &RowBatch, row: &Row, column: Column) {
        let extra = row.extra.as_deref();
        match column {
            Column::Dataset => self.name(out, batch.target.dataset.as_bytes()),
            Column::Snapshot => match &batch.target.snapshot {
                Some(name) => self.name(out, name.as_bytes()),
                None => out.push(b'-'),
            },
            Column::Path => self.name(out, batch.path(row)),
            Column::Target => match extra.and_then(|extra| extra.target.as_deref()) {
                Some(target) => self.name(out, target),
                None => out.push(b'-'),
            },
            Column::Xattrs => {
                let start = out.len();
                for xattr in extra.iter().flat_map(|extra| &extra.xattrs) {
                    if out.len() > start {
                        out.push(b',');
                    }
                    escape(out, &xattr.name, b" ,=\t");
                    out.push(b'=');
                    number(out, xattr.len);
                    out.push(b':');
                    hex(out, &xattr.sha256);
                }
                if out.len() == start {
                    out.push(b'-');
                }
            }
            Column::Sha256 => match extra.and_then(|extra| extra.content.as_ref()) {
                Some(content) => {
                    let mut text = String::new();
                    content.append_to(&mut text);
                    out.extend_from_slice(text.as_bytes());
                }
                None => out.push(b'-'),
            },
            _ => plain(out, row, column),
        }
    }

    fn name(&self, out: &mut Vec<u8>, name: &[u8]) {
        if self.end == b'\n' { escape(out, name, b"\t") } else { out.extend_from_slice(name) }
    }
}

/// Columns that are numbers or words.
fn plain(out: &mut Vec<u8>, row: &Row, column: Column) {
    let attr = &row.attr;
    match column {
        Column::Type => out.push(attr.kind().letter() as u8),
        Column::Mode => mode(out, attr),
        Column::Uid => number(out, attr.owner().0.into()),
        Column::Gid => number(out, attr.owner().1.into()),
        Column::Size => number(out, attr.size),
        Column::Allocated => number(out, attr.allocated_bytes()),
        Column::Nlink => number(out, attr.links),
        Column::Atime => time(out, attr.atime),
        Column::Mtime => time(out, attr.mtime),
        Column::Ctime => time(out, attr.ctime),
        Column::Btime => time(out, attr.crtime),
        Column::Rdev => match attr.kind() {
            FileKind::BlockDevice | FileKind::CharDevice => {
                let (major, minor) = attr.device();
                number(out, major.into());
                out.push(b':');
                number(out, minor.into());
            }
            _ => out.push(b'-'),
        },
        Column::Flags => {
            // Writing to a Vec can't fail.
            let _ = write!(out, "{:#x}", attr.linux_flags());
        }
        Column::Projid => number(out, attr.project),
        Column::Ino => number(out, row.object.0),
        Column::BirthTxg => number(out, row.birth_txg.0),
        Column::CreatedTxg => number(out, attr.generation),
        Column::Class => out.extend_from_slice(class_name(row.class).as_bytes()),
        Column::Dataset
        | Column::Snapshot
        | Column::Path
        | Column::Target
        | Column::Xattrs
        | Column::Sha256 => {}
    }
}

/// JSON objects, one per line. Non-UTF-8 names are given as `{"bytes": "…hex…"}`.
#[derive(Debug, Clone)]
pub struct Jsonl {
    columns: Columns,
}

impl Jsonl {
    /// Objects with these members.
    pub fn new(columns: Columns) -> Jsonl {
        Jsonl { columns }
    }

    /// One line per file.
    pub fn render(&self, batch: &RowBatch) -> Vec<u8> {
        let mut out = Vec::with_capacity(batch.rows.len() * 96 + batch.paths.len());
        for row in &batch.rows {
            for (index, &column) in self.columns.0.iter().enumerate() {
                out.push(if index == 0 { b'{' } else { b',' });
                out.push(b'"');
                out.extend_from_slice(column.name().as_bytes());
                out.extend_from_slice(b"\":");
                self.value(&mut out, batch, row, column);
            }
            out.extend_from_slice(b"}\n");
        }
        out
    }

    fn value(&self, out: &mut Vec<u8>, batch: &RowBatch, row: &Row, column: Column) {
        let extra = row.extra.as_deref();
        match column {
            Column::Dataset => json_name(out, batch.target.dataset.as_bytes()),
            Column::Snapshot => json_option(out, batch.target.snapshot.as_deref().map(str::as_bytes)),
            Column::Path => json_name(out, batch.path(row)),
            Column::Target => json_option(out, extra.and_then(|extra| extra.target.as_deref())),
            Column::Xattrs => {
                out.push(b'[');
                for (index, xattr) in extra.iter().flat_map(|extra| &extra.xattrs).enumerate() {
                    out.extend_from_slice(if index > 0 { b",{\"name\":" } else { b"{\"name\":" });
                    json_name(out, &xattr.name);
                    out.extend_from_slice(b",\"size\":");
                    number(out, xattr.len);
                    out.extend_from_slice(b",\"sha256\":\"");
                    hex(out, &xattr.sha256);
                    out.extend_from_slice(b"\"}");
                }
                out.push(b']');
            }
            Column::Sha256 => {
                let mut text = String::new();
                if let Some(content) = extra.and_then(|extra| extra.content.as_ref()) {
                    content.append_to(&mut text);
                }
                json_option(out, Some(text.as_bytes()).filter(|text| !text.is_empty()));
            }
            Column::Rdev if !matches!(row.attr.kind(), FileKind::BlockDevice | FileKind::CharDevice) => {
                out.extend_from_slice(b"null");
            }
            Column::Type | Column::Mode | Column::Rdev | Column::Class => {
                out.push(b'"');
                plain(out, row, column);
                out.push(b'"');
            }
            Column::Flags => number(out, row.attr.linux_flags().into()),
            _ => plain(out, row, column),
        }
    }
}

/// The class in one word, or `-`.
pub(super) fn class_name(class: Option<VdevClass>) -> &'static str {
    class.map_or("-", VdevClass::name)
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn mode(out: &mut Vec<u8>, attr: &Attr) {
    let mode = attr.permissions();
    out.extend((0..4).rev().map(|digit| b'0' + (mode >> (3 * digit) & 7) as u8));
}

/// Seconds, a decimal point and nine digits.
fn time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(itoa::Buffer::new().format(time.seconds).as_bytes());
    out.push(b'.');
    let start = out.len();
    out.extend_from_slice(b"000000000");
    let mut rest = time.nanoseconds;
    for digit in out[start..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Writes bytes outside printable ASCII, the backslash and those in `also` as `\xNN`.
fn escape(out: &mut Vec<u8>, bytes: &[u8], also: &[u8]) {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) & (byte != b'\\');
    // Nearly all names are plain. Checking all bytes without stopping early lets the compiler vectorise the
    // loop.
    if bytes.iter().fold(true, |plain, &byte| plain & is_plain(byte))
        && !also.iter().any(|byte| is_plain(*byte))
    {
        return out.extend_from_slice(bytes);
    }
    for &byte in bytes {
        if !is_plain(byte) || also.contains(&byte) {
            out.extend_from_slice(b"\\x");
            hex(out, &[byte]);
        } else {
            out.push(byte);
        }
    }
}

fn json_option(out: &mut Vec<u8>, name: Option<&[u8]>) {
    match name {
        Some(name) => json_name(out, name),
        None => out.extend_from_slice(b"null"),
    }
}

fn json_name(out: &mut Vec<u8>, name: &[u8]) {
    match std::str::from_utf8(name) {
        // Writing to a Vec can't fail, and every string has a JSON form. Nearly all names need no escapes.
        Ok(text) if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
            drop(serde_json::to_writer(&mut *out, text));
        }
        Ok(text) => {
            let json = serde_json::Value::from(text).to_string();
            out.extend_from_slice(visible_json(json).as_bytes());
        }
        Err(_) => {
            out.extend_from_slice(b"{\"bytes\":\"");
            hex(out, name);
            out.extend_from_slice(b"\"}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_nine_digits_and_names_are_escaped() {
        let mut out = Vec::new();
        time(&mut out, Timestamp { seconds: -1, nanoseconds: 83_333_333 });
        out.push(b' ');
        escape(&mut out, b"a\tb\\\xff", b"\t");
        assert_eq!(out, b"-1.083333333 a\\x09b\\x5c\\xff");
    }

    #[test]
    fn names_that_are_no_text_are_still_json() {
        let mut out = Vec::new();
        json_name(&mut out, b"say \"hi\"\n\xe2\x80\xae");
        json_name(&mut out, b"\xff\x00");
        assert_eq!(out, b"\"say \\\"hi\\\"\\n\\u202e\"{\"bytes\":\"ff00\"}");
    }
}
