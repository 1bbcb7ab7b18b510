//! The mount table: identifies mounts, and finds those that cover others.
//!
//! Idea: a mount's id identifies it; a later mount on its directory, or above it, takes its path over.
//! Reading the table touches no directory, which may hang with its server.
//!
//! Layout (`/proc/self/mountinfo`): `id parent major:minor root directory options [tags] - type source
//! super`; blanks in names are written in octal.
//!
//! Source: proc(5), Linux `fs/proc_namespace.c`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its id, unique among current mounts.
    pub id: u64,
    /// The mount of its directory.
    pub parent: u64,
    /// Of its file system.
    pub device: (u32, u32),
    /// Its directory.
    pub dir: PathBuf,
    /// File-system type.
    pub kind: String,
    /// The source.
    pub source: String,
}

impl Line {
    /// The subtype of a FUSE file system: `fuse.SUBTYPE` or, on a block device, `fuseblk.SUBTYPE`.
    pub fn fuse_subtype(&self) -> Option<&str> {
        self.kind.strip_prefix("fuse.").or_else(|| self.kind.strip_prefix("fuseblk."))
    }
}

/// All mounts visible to this process.
#[derive(Debug)]
pub struct Table(Vec<Line>);

impl Table {
    /// The current table.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn read() -> io::Result<Table> {
        Ok(Table::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    fn parse(text: &[u8]) -> Table {
        Table(text.split(|&byte| byte == b'\n').filter_map(parse).collect())
    }

    /// All mounts; those on one directory in the order of mounting.
    pub fn lines(&self) -> &[Line] {
        &self.0
    }

    /// The mount of this id.
    pub fn get(&self, id: u64) -> Option<&Line> {
        self.0.iter().find(|line| line.id == id)
    }

    /// The mount that has taken over the path of another one.
    pub fn covering(&self, id: u64) -> Option<&Line> {
        let own = self.get(id)?;
        let mut above = vec![id];
        let mut line = own;
        while let Some(parent) = self.get(line.parent).filter(|parent| !above.contains(&parent.id)) {
            above.push(parent.id);
            line = parent;
        }
        self.0.iter().find(|other| {
            !above.contains(&other.id) && above.contains(&other.parent) && own.dir.starts_with(&other.dir)
        })
    }
}

fn parse(line: &[u8]) -> Option<Line> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut next = || fields.next();
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let (id, parent) = (number(next()?)?, number(next()?)?);
    let device = std::str::from_utf8(next()?).ok()?.split_once(':')?;
    let device = (device.0.parse().ok()?, device.1.parse().ok()?);
    let _root = next()?;
    let dir = PathBuf::from(OsString::from_vec(plain(next()?)));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |field: &[u8]| String::from_utf8_lossy(&plain(field)).into_owned();
    let (kind, source) = (text(rest.next()?), text(rest.next()?));
    Some(Line { id, parent, device, dir, kind, source })
}

/// A field without escapes: `\` and three octal digits.
fn plain(field: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(|_| byte == b'\\') {
            Some(value) => (out.push(value), rest = &after[3..]),
            None => (out.push(byte), rest = after),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &[&str]) -> Table {
        Table::parse(lines.join("\n").as_bytes())
    }

    const ROOT: &str = "1 0 8:1 / / rw - ext4 /dev/sda rw";
    const OURS: &str = "20 1 0:50 / /mnt/a rw - fuse.cenote st/a rw";

    #[test]
    fn names_are_read_without_escapes() {
        let table = table(&[r"20 1 0:50 / /mnt/a\040b rw shared:1 - fuse.cenote st/x\134y rw"]);
        let line = table.get(20).unwrap();
        assert_eq!((line.dir.to_str(), &*line.source), (Some("/mnt/a b"), r"st/x\y"));
        assert_eq!((line.device, &*line.kind), ((0, 50), "fuse.cenote"));
    }

    #[test]
    fn a_mount_on_top_covers_the_one_below() {
        let table = table(&[ROOT, OURS, "21 20 0:51 / /mnt/a rw - fuse.cenote st/b rw"]);
        assert_eq!(table.covering(20).map(|line| &*line.source), Some("st/b"));
        assert_eq!(table.covering(21), None);
    }

    #[test]
    fn a_mount_above_covers_all_below_it() {
        let table = table(&[ROOT, OURS, "22 1 0:52 / /mnt rw - tmpfs none rw"]);
        assert_eq!(table.covering(20).map(|line| &*line.kind), Some("tmpfs"));
    }

    #[test]
    fn what_it_lies_in_or_beside_covers_nothing() {
        let below = "9 1 0:40 / /mnt rw - tmpfs none rw";
        let ours = "20 9 0:50 / /mnt/a rw - fuse.cenote st/a rw";
        let (child, beside) =
            ("30 20 0:60 / /mnt/a/c rw - tmpfs none rw", "31 9 0:61 / /mnt/ab rw - tmpfs n rw");
        assert_eq!(table(&[ROOT, below, ours, child, beside]).covering(20), None);
    }

    #[test]
    fn the_table_of_this_machine_is_read() {
        assert!(Table::read().unwrap().lines().iter().any(|line| line.dir == std::path::Path::new("/")));
    }
}
