//! Copies a tree as rsync does.
//!
//! Folders are created when found. A file is written under a temporary name (`.name.RANDOM`), given its
//! owner, times and mode, and renamed: readers see the whole file or none. Folders get their attributes after
//! their content, since adding entries changes their times. Links are copied as links. As with `rsync -a`,
//! hard links become separate files, and ACLs and extended attributes are not copied.
//!
//! Memory: about 100 bytes per folder, until the end.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Statx, StatxTimestamp, Timespec, Timestamps, futimens, utimensat};

use super::room::Room;
use super::steps::{CHUNK_BYTES, Done, How};
use crate::load::measurement::Tally;
use crate::load::measurement::tally::nanoseconds;
use crate::load::walk::{Entry, EntryKind, Visitor, WalkOptions, walk};
use crate::{LabError, Result};

/// The actions; `copy` is everything done for an entry.
const KINDS: [&str; 6] = ["copy", "create", "read", "write", "attributes", "rename"];
const COPY: usize = 0;
const CREATE: usize = 1;
const READ: usize = 2;
const WRITE: usize = 3;
const ATTRIBUTES: usize = 4;
const RENAME: usize = 5;

/// Copies the content of `source` into `destination`, a new folder; repeatedly, with the extensions `.0`,
/// `.1` and so on, with a time limit.
///
/// # Errors
/// An entry cannot be read or created, or the work was stopped.
pub fn copy(source: &Path, destination: &Path, how: How<'_>) -> Result<Done> {
    let begun = Instant::now();
    let room = Room::half_of_free(source)?;
    let mut tallies: Vec<Tally> = KINDS.map(|_| Tally::new(begun)).into();
    let mut inodes = 0;
    for pass in 0.. {
        let into = destination.with_extension(pass.to_string());
        let (over, copiers) = copy_once(source, &into, how, begun, &room)?;
        for copier in copiers {
            inodes += copier.inodes;
            tallies.iter_mut().zip(&copier.tallies).for_each(|(tally, part)| tally.add(part));
        }
        if over || how.until.is_none_or(|until| Instant::now() >= until) {
            break;
        }
    }
    Ok(Done {
        tallies: KINDS.into_iter().zip(tallies).filter(|(_, tally)| tally.operations() > 0).collect(),
        inodes,
        elapsed_ns: nanoseconds(Instant::now(), begun),
        full: how.until.is_some() && !room.is_left(),
    })
}

/// One copy, and whether time or space ran out before its end.
fn copy_once<'a>(
    source: &'a Path,
    into: &'a Path,
    how: How<'a>,
    begun: Instant,
    room: &'a Room,
) -> Result<(bool, Vec<Copier<'a>>)> {
    let can_not = |path: &Path| LabError::io(format!("cannot copy {}", path.display()));
    let root = fs::metadata(source).map_err(can_not(source))?;
    fs::create_dir(into).map_err(can_not(into))?;
    let options = WalkOptions { threads: how.workers as usize, one_file_system: true };
    let copier = || Ok(Copier::new(source, into, how.until, begun, room));
    let (walked, mut copiers) = walk(source, options, how.control, copier)?;
    if let Some(first) = walked.first_error {
        return Err(LabError::Refused(format!("{}: cannot be copied completely: {first}", source.display())));
    }
    // Deepest first: a folder without write permission must not be finished before those in it.
    let mut folders: Vec<_> = copiers.iter_mut().flat_map(|copier| copier.folders.drain(..)).collect();
    folders.sort_unstable_by(|a, b| b.0.cmp(&a.0));
    folders.push((into.to_owned(), Attributes::of_metadata(&root)));
    for (path, attributes) in &folders {
        copiers[0].tallies[ATTRIBUTES].time(0, || attributes.set_folder(path)).map_err(can_not(path))?;
    }
    let over = copiers.iter().any(|copier| copier.over);
    Ok((over, copiers))
}

struct Copier<'a> {
    source: &'a Path,
    into: &'a Path,
    until: Option<Instant>,
    room: &'a Room,
    tallies: Vec<Tally>,
    inodes: u64,
    /// Created folders, to be finished at the end.
    folders: Vec<(PathBuf, Attributes)>,
    buffer: Vec<u8>,
    over: bool,
}

impl Visitor for Copier<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<ControlFlow<()>> {
        self.over |= self.until.is_some_and(|until| Instant::now() >= until || !self.room.is_left());
        if self.over {
            return Ok(ControlFlow::Break(()));
        }
        let relative = Path::new(OsStr::from_bytes(entry.folder)).join(OsStr::from_bytes(entry.name));
        let (from, to) = (self.source.join(&relative), self.into.join(&relative));
        let began = Instant::now();
        self.room.take(entry.stat.stx_size);
        let bytes = self.copy(entry, &from, &to).map_err(LabError::io(format!(
            "cannot copy {} to {}",
            from.display(),
            to.display()
        )))?;
        self.tallies[COPY].record(began, Instant::now(), bytes);
        self.inodes += 1;
        Ok(ControlFlow::Continue(()))
    }
}

impl<'a> Copier<'a> {
    fn new(
        source: &'a Path,
        into: &'a Path,
        until: Option<Instant>,
        begun: Instant,
        room: &'a Room,
    ) -> Copier<'a> {
        let tallies = KINDS.map(|_| Tally::new(begun)).into();
        let buffer = vec![0; CHUNK_BYTES];
        Copier { source, into, until, room, tallies, inodes: 0, folders: Vec::new(), buffer, over: false }
    }

    /// Returns the bytes copied.
    fn copy(&mut self, entry: &Entry<'_>, from: &Path, to: &Path) -> io::Result<u64> {
        let attributes = Attributes::of(entry.stat);
        match entry.kind {
            EntryKind::Folder => {
                // Keep it writable until its content is complete.
                let make = || DirBuilder::new().mode(attributes.mode | 0o700).create(to);
                self.tallies[CREATE].time(0, make)?;
                self.folders.push((to.to_owned(), attributes));
                Ok(0)
            }
            EntryKind::File => self.copy_file(entry, from, to, attributes),
            EntryKind::Link => {
                let target = fs::read_link(from)?;
                self.tallies[CREATE].time(0, || symlink(&target, to))?;
                self.tallies[ATTRIBUTES].time(0, || attributes.set_link(to))?;
                Ok(0)
            }
            EntryKind::Other => {
                Err(io::Error::other("neither a file, nor a folder, nor a link: cannot copy such a tree"))
            }
        }
    }

    fn copy_file(
        &mut self,
        entry: &Entry<'_>,
        from: &Path,
        to: &Path,
        attributes: Attributes,
    ) -> io::Result<u64> {
        let temporary = temporary_name(to, entry.name, entry.stat.stx_ino);
        let mut source = File::open(from)?;
        let make = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let mut file = self.tallies[CREATE].time(0, make)?;
        let mut copied = 0;
        while copied < entry.stat.stx_size {
            let began = Instant::now();
            let bytes = source.read(&mut self.buffer)?;
            if bytes == 0 {
                break;
            }
            self.tallies[READ].record(began, Instant::now(), bytes as u64);
            let part = &self.buffer[..bytes];
            self.tallies[WRITE].time(bytes as u64, || file.write_all(part))?;
            copied += bytes as u64;
        }
        self.tallies[ATTRIBUTES].time(0, || attributes.set_file(&file))?;
        drop(file);
        self.tallies[RENAME].time(0, || fs::rename(&temporary, to))?;
        Ok(copied)
    }
}

/// `.name.RANDOM` in the folder of `to`; the name is truncated to fit.
fn temporary_name(to: &Path, name: &[u8], number: u64) -> PathBuf {
    const LONGEST_NAME: usize = 255;
    const AROUND: usize = 8;
    let cut = &name[..name.len().min(LONGEST_NAME - AROUND)];
    let end = format!(".{:06x}", number & 0xff_ffff);
    to.with_file_name(OsStr::from_bytes(&[b".", cut, end.as_bytes()].concat()))
}

#[derive(Debug, Clone, Copy)]
struct Attributes {
    mode: u32,
    owner: (u32, u32),
    times: (Timespec, Timespec),
}

impl Attributes {
    fn of(stat: &Statx) -> Attributes {
        let time = |time: StatxTimestamp| Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec.into() };
        Attributes {
            mode: u32::from(stat.stx_mode) & 0o7777,
            owner: (stat.stx_uid, stat.stx_gid),
            times: (time(stat.stx_atime), time(stat.stx_mtime)),
        }
    }

    fn of_metadata(metadata: &fs::Metadata) -> Attributes {
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        Attributes {
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            times: (
                time(metadata.atime(), metadata.atime_nsec()),
                time(metadata.mtime(), metadata.mtime_nsec()),
            ),
        }
    }

    fn timestamps(&self) -> Timestamps {
        Timestamps { last_access: self.times.0, last_modification: self.times.1 }
    }

    /// Owner first, because changing it clears set-user-id bits; then times and mode.
    fn set_file(&self, file: &File) -> io::Result<()> {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != self.owner {
            may_be_refused(fchown(file, Some(self.owner.0), Some(self.owner.1)))?;
        }
        futimens(file, &self.timestamps())?;
        file.set_permissions(Permissions::from_mode(self.mode))
    }

    fn set_folder(&self, path: &Path) -> io::Result<()> {
        self.set_file(&File::open(path)?)
    }

    fn set_link(&self, path: &Path) -> io::Result<()> {
        let made = fs::symlink_metadata(path)?;
        if (made.uid(), made.gid()) != self.owner {
            may_be_refused(lchown(path, Some(self.owner.0), Some(self.owner.1)))?;
        }
        utimensat(CWD, path, &self.timestamps(), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }
}

/// Only root may give files away; otherwise they keep the current owner, as with rsync.
fn may_be_refused(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}
