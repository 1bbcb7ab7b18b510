//! One daemon per state folder: a lock, and cleanup of mounts left by a dead predecessor.
//!
//! ```text
//!   take: flock daemon.lock ──ok──> the predecessor's mounts are detached; the folder is ours
//!              │ held
//!              ├─ holder runs ──> refused, before anything in the folder is touched
//!              └─ holder was killed, or is ending ──> abort its connections; wait until it is gone
//! ```
//!
//! Idea: the kernel releases a lock with the last thread of its process. A killed daemon may have a thread
//! waiting for its own mounts: aborting its connections ends that. Usually its guard (`cenote_fuse::guard`)
//! does so, but a service manager may have killed both.
//!
//! Layout of `daemon.lock`: the holder's process id, followed by ` ending` once asked to end.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cenote_fuse::guard;
use rustix::fs::{FlockOperation, flock};

use crate::own;

const LOCK: &str = "daemon.lock";
const CONNECTIONS: &str = "connections";
/// How long to wait for an ending predecessor.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long the lock of a process that cannot be seen may last.
const UNSEEN_PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

/// Why the folder is unavailable.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum LockError {
    #[error(
        "{}: a daemon is serving there already (process {pid}); stop it, or give this one a --socket and a \
         --state in another folder", folder.display()
    )]
    Taken { folder: PathBuf, pid: i32 },
    #[error(
        "{}: the daemon that was there (process {pid}) has been ending for {} seconds and is not gone",
        folder.display(), PATIENCE.as_secs()
    )]
    Undead { folder: PathBuf, pid: i32 },
    #[error("{}: {source}", folder.display())]
    Io { folder: PathBuf, source: io::Error },
}

/// A state folder, exclusively ours while this lives.
#[derive(Debug)]
pub struct StateLock {
    file: File,
}

impl StateLock {
    /// Takes a folder, creating it if necessary.
    ///
    /// # Errors
    /// A daemon holds it, it can't be written, or other users can write it.
    pub fn take(folder: &Path) -> Result<StateLock, LockError> {
        let io = |source| LockError::Io { folder: folder.to_owned(), source };
        own::folder(folder).map_err(io)?;
        let path = folder.join(LOCK);
        let file = own::open(&path).map_err(|source| LockError::Io { folder: path.clone(), source })?;
        let begun = Instant::now();
        while let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if errno != rustix::io::Errno::WOULDBLOCK {
                return Err(io(errno.into()));
            }
            let (pid, is_ending) = read_holder(&text_of(&path).map_err(io)?);
            let refused = || Err(LockError::Taken { folder: folder.to_owned(), pid });
            match holder(pid) {
                Holder::Killed => guard::abort_left(&text_of(&folder.join(CONNECTIONS)).map_err(io)?),
                Holder::Runs if !is_ending && pid != 0 => return refused(),
                Holder::Unseen if !is_ending && pid != 0 && begun.elapsed() > UNSEEN_PATIENCE => {
                    return refused();
                }
                Holder::Runs | Holder::Unseen => {}
            }
            if begun.elapsed() > PATIENCE {
                return Err(LockError::Undead { folder: folder.to_owned(), pid });
            }
            sleep(LOOK);
        }
        let lock = StateLock { file };
        lock.write("").map_err(io)?;
        guard::take_down_left(&text_of(&folder.join(CONNECTIONS)).map_err(io)?);
        Ok(lock)
    }

    /// Takes the files' folders, each once. The first one gets the list of connections.
    ///
    /// # Errors
    /// As [`StateLock::take`].
    pub fn take_all(files: &[&Path]) -> Result<Vec<StateLock>, LockError> {
        let (mut locks, mut taken) = (Vec::new(), Vec::new());
        for file in files {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            // A folder may have two names.
            let identity = std::fs::metadata(folder).ok().map(|found| (found.dev(), found.ino()));
            if identity.is_some() && taken.contains(&identity) {
                continue;
            }
            locks.push(StateLock::take(folder)?);
            if taken.is_empty() {
                let path = folder.join(CONNECTIONS);
                let file = own::open(&path).map_err(|source| LockError::Io { folder: path, source })?;
                guard::list_in(file);
            }
            taken.push(std::fs::metadata(folder).ok().map(|found| (found.dev(), found.ino())));
        }
        Ok(locks)
    }

    /// Marks the daemon as ending, so that a new one waits for it.
    pub fn is_ending(&self) {
        // On failure a new daemon is refused until this one has ended.
        self.write(" ending").ok();
    }

    fn write(&self, more: &str) -> io::Result<()> {
        let text = format!("{}{more}", std::process::id());
        // One write of fixed length, for concurrent readers.
        self.file.write_all_at(format!("{text:<20}\n").as_bytes(), 0)
    }
}

fn text_of(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&own::read(path)?.unwrap_or_default()).into_owned())
}

/// The holder's process id (0: none), and whether it is ending.
fn read_holder(text: &str) -> (i32, bool) {
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|pid| pid.parse().ok()).unwrap_or(0);
    (pid, words.next() == Some("ending"))
}

/// The process that has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Runs,
    /// It is dead except for stuck threads.
    Killed,
    /// It may be alive in another container. Or it has ended since the lock was tried, or a child just forked
    /// still has the lock, which is free in a moment.
    Unseen,
}

fn holder(pid: i32) -> Holder {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return Holder::Unseen };
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_start_matches(':').trim()).unwrap_or_default()
    };
    let is_dead = field("State").starts_with(['Z', 'X']);
    const KILL_BIT: u64 = 1 << 8;
    let pending = |name| u64::from_str_radix(field(name), 16).unwrap_or(0) & KILL_BIT != 0;
    match is_dead || pending("SigPnd") || pending("ShdPnd") {
        true => Holder::Killed,
        false => Holder::Runs,
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// One test at a time: a child that one forks has the locks of the others until it runs its program.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn a_folder_has_one_daemon() {
        let _turn = TURN.lock();
        let folder = tempfile::tempdir().unwrap();
        let lock = StateLock::take(folder.path()).unwrap();
        let refused = StateLock::take(folder.path()).unwrap_err().to_string();
        let me = format!("(process {})", std::process::id());
        assert!(refused.contains(&me) && refused.contains("already"), "{refused}");
        drop(lock);
        StateLock::take(folder.path()).unwrap();
    }

    #[test]
    fn files_of_one_folder_take_it_once() {
        let _turn = TURN.lock();
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("sock"), folder.path().join("pools.json"));
        assert_eq!(StateLock::take_all(&[&one, &other]).unwrap().len(), 1);
    }

    #[test]
    fn one_that_is_ending_is_waited_for() {
        let _turn = TURN.lock();
        let folder = tempfile::tempdir().unwrap();
        let lock = StateLock::take(folder.path()).unwrap();
        lock.is_ending();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(300));
                drop(lock);
            });
            StateLock::take(folder.path()).unwrap();
        });
    }

    #[test]
    fn the_lock_of_a_process_that_has_just_ended_is_waited_for() {
        let _turn = TURN.lock();
        let folder = tempfile::tempdir().unwrap();
        let lock = StateLock::take(folder.path()).unwrap();
        std::fs::write(folder.path().join(LOCK), format!("{:<20}\n", i32::MAX)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(300));
                drop(lock);
            });
            let taken = StateLock::take(folder.path()).unwrap();
            // One that stays is another container's.
            taken.file.write_all_at(format!("{:<20}\n", i32::MAX).as_bytes(), 0).unwrap();
            let refused = StateLock::take(folder.path()).unwrap_err();
            assert!(matches!(refused, LockError::Taken { pid: i32::MAX, .. }), "{refused}");
        });
    }

    #[test]
    fn who_has_it_is_read() {
        let _turn = TURN.lock();
        assert_eq!(read_holder("123\n"), (123, false));
        assert_eq!(read_holder("123 ending\n"), (123, true));
        assert_eq!(read_holder(""), (0, false));
        assert_eq!(holder(std::process::id() as i32), Holder::Runs);
        assert_eq!(holder(i32::MAX), Holder::Unseen);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let begun = Instant::now();
        while holder(pid) != Holder::Killed {
            assert!(begun.elapsed() < PATIENCE);
            sleep(LOOK);
        }
        child.wait().unwrap();
    }
}
