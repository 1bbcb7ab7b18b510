//! `zfs rewrite`: stores files of mounted file systems again, as their properties and vdevs demand now.
//!
//! It runs in the client's process with the user's rights, on mounts of Cenote and of OpenZFS 2.4. A file is
//! rewritten in parts, so an interrupt ends the command soon. Holes, links and other types of files are
//! skipped.
//!
//! Source: OpenZFS 2.4 `zfs_main.c` (`zfs_do_rewrite`), zfs-rewrite(8).

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, read_dir, symlink_metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_control::files::rewriting::Asked;
use cenote_control::text::{escape_terminal, nice_bytes, parse_bytes};
use cenote_shown::json::document;
use clap::Args;
use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;
use serde_json::{Map, json};

use crate::outcome::{CliError, Outcome, Say};
use crate::session::{Progress, Session, print, print_json, text_line, unless_interrupted, watch};

/// Rewritten before an interrupt is looked at.
const PART_BYTES: u64 = 64 << 20;

/// `zfs rewrite`
#[derive(Debug, Args)]
#[command(
    after_help = "Applies changes of compression, checksum, copies and dedup to existing files, and moves \
        them to vdevs added since. Content, times and block sizes stay. Snapshots and clones keep the old \
        blocks, which then take up space twice; -S and -C skip these.\n\n\
        Example: cenote zfs rewrite -rx /tank/home"
)]
pub struct Rewrite {
    /// Skip blocks shared by block cloning
    #[arg(short = 'C')]
    pub skip_clones: bool,
    /// Keep logical births: incremental streams omit the rewritten blocks. Needs feature physical_rewrite
    #[arg(short = 'P')]
    pub physical: bool,
    /// Skip blocks shared with snapshots
    #[arg(short = 'S')]
    pub skip_snapshots: bool,
    /// Rewrite at most this many bytes of each file
    #[arg(short = 'l', value_name = "LENGTH", value_parser = bytes)]
    pub length: Option<u64>,
    /// Start at this offset of each file
    #[arg(short = 'o', value_name = "OFFSET", value_parser = bytes, default_value = "0")]
    pub offset: u64,
    /// Include the files in folders, at any depth
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Print the names of rewritten files
    #[arg(short = 'v')]
    pub verbose: bool,
    /// With -r, stay in the file system of each folder
    #[arg(short = 'x')]
    pub one_filesystem: bool,
    /// Files, and with -r folders
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// A number as C writes it, or with a unit: 1M.
fn bytes(typed: &str) -> Result<u64, String> {
    let hex = typed.strip_prefix("0x").or_else(|| typed.strip_prefix("0X"));
    let number = hex.map_or_else(|| parse_bytes(typed), |hex| u64::from_str_radix(hex, 16).ok());
    number
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| "give bytes, such as 1048576 or 1M".into())
}

impl Rewrite {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let progress = text_line();
        let mut all =
            Rewriting { asked: &self, session, progress, done: Arc::default(), rewritten: Map::new() };
        let mut outcome = Outcome::Done;
        let mut folders = VecDeque::new();
        for path in &self.files {
            outcome = outcome.and(all.visit(path, None, &mut folders).await?);
        }
        while let Some((folder, device)) = folders.pop_front() {
            outcome = outcome.and(all.list(&folder, device, &mut folders).await?);
        }
        all.progress.finish();
        if session.json() {
            print_json(&document("zfs rewrite", "files", all.rewritten))?;
        }
        Ok(outcome)
    }
}

/// Folders to be listed, and the file systems they are in.
type Folders = VecDeque<(PathBuf, u64)>;

struct Rewriting<'a> {
    asked: &'a Rewrite,
    session: &'a Session,
    progress: Progress,
    /// Bytes of all files.
    done: Arc<AtomicU64>,
    rewritten: Map<String, serde_json::Value>,
}

impl Rewriting<'_> {
    /// Rewrites what a folder contains. A folder that is gone by now is no failure.
    async fn list(&mut self, folder: &Path, device: u64, folders: &mut Folders) -> Result<Outcome, CliError> {
        let entries = match read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Outcome::Done),
            Err(error) => return Ok(self.fails(folder, error)),
        };
        let mut outcome = Outcome::Done;
        for entry in entries {
            outcome = outcome.and(match entry {
                Ok(entry) => self.visit(&entry.path(), Some(device), folders).await?,
                Err(error) => self.fails(folder, error),
            });
        }
        Ok(outcome)
    }

    /// Rewrites a file, or puts off a folder. `device` is that of the folder it was found in.
    async fn visit(
        &mut self,
        path: &Path,
        device: Option<u64>,
        folders: &mut Folders,
    ) -> Result<Outcome, CliError> {
        let found = match symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound && device.is_some() => {
                return Ok(Outcome::Done);
            }
            Err(error) => return Ok(self.fails(path, error)),
        };
        if self.asked.one_filesystem && device.is_some_and(|device| device != found.dev()) {
            return Ok(Outcome::Done);
        }
        if found.is_dir() && self.asked.recursive {
            folders.push_back((path.to_owned(), found.dev()));
        }
        if !found.is_file() {
            return Ok(Outcome::Done);
        }
        match self.rewrite(path).await? {
            Ok(()) => {
                let shown = escape_terminal(path.as_os_str().as_encoded_bytes());
                if self.session.json() {
                    self.rewritten.insert(shown, json!({}));
                } else if self.asked.verbose {
                    print(format!("{shown}\n"))?;
                }
                Ok(Outcome::Done)
            }
            Err(error) => Ok(self.fails(path, error)),
        }
    }

    fn fails(&self, path: &Path, error: io::Error) -> Outcome {
        let error = match error.raw_os_error() {
            Some(code) if code == Errno::NOTTY.raw_os_error() => {
                io::Error::other("is not in a file system of Cenote or of OpenZFS 2.4")
            }
            Some(code) if code == Errno::OPNOTSUPP.raw_os_error() => {
                io::Error::other("the pool lacks feature physical_rewrite; see `zpool upgrade`")
            }
            _ => error,
        };
        let mut outcome = Outcome::Done;
        self.progress.hide(|| outcome = CliError::io(path.display().to_string())(error).say());
        outcome
    }

    /// Rewrites a file; only an interrupt ends the command.
    async fn rewrite(&self, path: &Path) -> Result<io::Result<()>, CliError> {
        let flags = OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let opened = OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path);
        let file = match opened {
            Ok(file) => Arc::new(file),
            Err(error) => return Ok(Err(error)),
        };
        let Rewrite { physical, skip_snapshots, skip_clones, offset, length, .. } = *self.asked;
        let asked = Asked::new(physical, skip_snapshots, skip_clones);
        let end =
            length.filter(|length| *length > 0).map_or(u64::MAX, |length| offset.saturating_add(length));
        let mut at = offset;
        while at < end {
            let part = file.clone();
            let work = self.session.runtime().blocking(move || rewrite_part(&part, asked, at, end));
            let work = unless_interrupted(
                watch(self.session.runtime(), async { Ok(work.await) }, |_| self.show(path)),
                || format!("{} is rewritten up to byte {at}; its content is complete", path.display()),
            );
            match work.await? {
                Ok(Some(next)) => {
                    self.done.fetch_add(next - at, Ordering::Relaxed);
                    at = next;
                }
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    fn show(&self, path: &Path) {
        let done = nice_bytes(self.done.load(Ordering::Relaxed));
        self.progress.message(format!("{done} rewritten, now {}", path.display()));
    }
}

/// Rewrites the next part with data; returns its end, or nothing at the end of the file or range.
fn rewrite_part(file: &File, asked: Asked, from: u64, end: u64) -> io::Result<Option<u64>> {
    let start = match seek(file, SeekFrom::Data(from)) {
        Ok(start) if start < end => start,
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let len = PART_BYTES.min(end - start);
    asked.rewrite(file, start, len)?;
    Ok(Some(start + len))
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn lengths_are_numbers_as_c_writes_them_or_have_units() {
        for (typed, number) in [("0", 0), ("4096", 4096), ("0x1000", 4096), ("1M", 1 << 20)] {
            assert_eq!(bytes(typed), Ok(number), "{typed}");
        }
        for typed in ["", "-1", "x", "0xffffffffffffffff"] {
            assert!(bytes(typed).is_err(), "{typed}");
        }
    }
}
