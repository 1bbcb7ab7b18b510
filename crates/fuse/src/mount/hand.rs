//! The hand: a process for all calls that take paths.
//!
//! Idea: a mount point may lie in a file system served by this process, or in one that hangs. A thread that
//! looks it up sleeps until the server answers; if the process is killed meanwhile, the thread keeps its
//! mounts alive, and they the thread. So another process, which holds no descriptor of `/dev/fuse`, makes
//! every call with a path, and attaches finished mounts.
//!
//! ```text
//!   daemon: fsopen, fsmount --(mount)--> hand: mkdir, move_mount    umount, remount, rmdir
//!             '------ waits at a socket, with a deadline
//! ```
//!
//! A hand also opens files with the rights of the daemon's users, since it has no other threads to share
//! them. The user's own program could send descriptors, but does not know the files: most key locations are
//! in the pool.
//!
//! Each hand makes one call at a time. One that misses the deadline is killed and replaced. A program without
//! hands makes the calls itself.
//!
//! Layout of a message: a word, then its arguments, each after a zero byte. The answer is `ok`, or an error
//! number and the processes in the way. A mount or an opened file comes as a descriptor beside it.
//!
//! Shared state: [`HANDS`], locked to take a hand or to return it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, UnmountFlags, move_mount};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::{clear_dead, mount_id, users};

const DEADLINE: Duration = Duration::from_secs(30);
const IDLE_MAX: usize = 4;
const MESSAGE_BYTES: usize = 160 << 10;
/// In one message.
const DIRS_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask<'a> {
    /// Makes an empty directory (`overlay`: a directory) to mount on. Removes a dead program's mount of this
    /// subtype.
    Prepare { dir: &'a Path, subtype: &'a str, overlay: bool },
    /// Attaches a mount.
    Attach { dir: &'a Path },
    /// Unmounts, if the path leads to the mount of this id (0: any).
    Unmount { dir: &'a Path, id: u64, lazy: bool },
    /// Changes a mount's options.
    Remount { dir: &'a Path, flags: u32 },
    /// Removes a directory.
    Clear { dir: &'a Path },
    /// Opens a file for reading, with the rights of a user.
    Open { file: &'a Path, uid: u32, gids: Vec<u32> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// `TIMEDOUT`: no answer. `STALE`: the path leads to another mount.
    pub(super) errno: Errno,
    pub(super) users: Vec<String>,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure { errno, users: Vec::new() }
    }
}

type Answer = Result<(), Failure>;
/// With the opened file.
type Given = Result<Option<OwnedFd>, Failure>;
type Start = Box<dyn Fn() -> Command + Send>;

static HANDS: Mutex<Hands> = Mutex::new(Hands { start: None, idle: Vec::new() });

struct Hands {
    start: Option<Start>,
    idle: Vec<Hand>,
}

struct Hand {
    child: Child,
    socket: OwnedFd,
}

/// From now on, makes calls in hands: `command` makes a process that runs [`serve`].
pub fn start(command: impl Fn() -> Command + Send + 'static) {
    HANDS.lock().start = Some(Box::new(command));
}

/// Removes directories if empty.
pub fn clear(dirs: &[PathBuf]) {
    for dir in dirs {
        call(&Ask::Clear { dir }, None).ok();
    }
}

/// Opens a file for reading with a user's rights; the first group is the primary one. Does not wait for the
/// other end of a pipe.
///
/// # Errors
/// The user may not, or there is no such file; this program is not root, or has no hands.
pub fn open_as(file: &Path, uid: u32, gids: &[u32]) -> io::Result<File> {
    let opened = exchange(&Ask::Open { file, uid, gids: gids.to_vec() }, None);
    let opened = opened.map_err(|failure| io::Error::from(failure.errno))?;
    Ok(opened.ok_or(Errno::BADF)?.into())
}

/// Makes a call, in a hand if possible.
pub(super) fn call(ask: &Ask<'_>, mount: Option<BorrowedFd<'_>>) -> Answer {
    exchange(ask, mount).map(drop)
}

fn exchange(ask: &Ask<'_>, mount: Option<BorrowedFd<'_>>) -> Given {
    let hand = {
        let mut hands = HANDS.lock();
        match (hands.idle.pop(), &hands.start) {
            // Other threads would share these rights.
            (None, None) if matches!(ask, Ask::Open { .. }) => return Err(Errno::PERM.into()),
            (None, None) => return perform(ask, mount),
            (Some(hand), _) => hand,
            (None, Some(start)) => Hand::start(start())?,
        }
    };
    let answer = hand.ask(ask, mount);
    let is_lost = |failure: &Failure| matches!(failure.errno, Errno::TIMEDOUT | Errno::PIPE);
    let is_lost = answer.as_ref().err().is_some_and(is_lost);
    let mut hands = HANDS.lock();
    if !is_lost && hands.idle.len() < IDLE_MAX {
        hands.idle.push(hand);
        return answer;
    }
    drop(hands);
    hand.end();
    answer
}

impl Hand {
    fn start(mut command: Command) -> Result<Hand, Errno> {
        let socket = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = socket()?;
        set_socket_timeout(&ours, Timeout::Recv, Some(DEADLINE))?;
        // Its own process group: a terminal's signals must not reach it.
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Ok(Hand { child: command.spawn().map_err(failed)?, socket: ours })
    }

    fn ask(&self, ask: &Ask<'_>, mount: Option<BorrowedFd<'_>>) -> Given {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = mount.into_iter().collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let message = ask.message()?;
        sendmsg(&self.socket, &[IoSlice::new(&message)], &mut ancillary, SendFlags::NOSIGNAL)?;
        let mut answer = vec![0; MESSAGE_BYTES];
        let (received, opened) = loop {
            match recv(&self.socket, &mut answer) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT.into()),
                received => break received?,
            }
        };
        // An empty message: the hand has ended.
        let mut words = answer[..received].split(|&byte| byte == 0);
        match words.next() {
            Some(b"ok") => Ok(opened),
            Some(number) if !number.is_empty() => {
                let number = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
                let errno = number.map_or(Errno::IO, Errno::from_raw_os_error);
                let users = words.map(|user| String::from_utf8_lossy(user).into_owned()).collect();
                Err(Failure { errno, users })
            }
            _ => Err(Errno::PIPE.into()),
        }
    }

    /// Does not wait: the hand may be asleep in the kernel.
    fn end(mut self) {
        let end = move || {
            self.child.kill().ok();
            self.child.wait().ok();
        };
        std::thread::Builder::new().name("cenote-hand".into()).spawn(end).ok();
    }
}

/// Serves calls from this socket until its end.
pub fn serve(socket: &OwnedFd) {
    let mut message = vec![0; MESSAGE_BYTES];
    loop {
        let (length, mount) = match recv(socket, &mut message) {
            Ok((0, _)) => return,
            Ok(received) => received,
            Err(Errno::INTR) => continue,
            Err(_) => return,
        };
        let done = match Ask::parse(&message[..length]) {
            Some(ask) => perform(&ask, mount.as_ref().map(AsFd::as_fd)),
            None => Err(Errno::INVAL.into()),
        };
        drop(mount);
        let (mut opened, mut space) = (None, [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let answer = match done {
            Ok(file) => {
                opened = file;
                b"ok".to_vec()
            }
            Err(Failure { errno, users }) => {
                let number = errno.raw_os_error().to_string();
                let words = std::iter::once(&number).chain(users.iter().take(DIRS_MAX));
                words.map(String::as_bytes).collect::<Vec<_>>().join(&0)
            }
        };
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let opened: Vec<BorrowedFd<'_>> = opened.iter().map(AsFd::as_fd).collect();
        if !opened.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&opened));
        }
        if sendmsg(socket, &[IoSlice::new(&answer)], &mut ancillary, SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}

pub(super) fn recv(socket: &OwnedFd, message: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(message)], &mut ancillary, flags)?;
    let mut mount = None;
    for more in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = more {
            mount = descriptors.next();
        }
    }
    Ok((received.bytes, mount))
}

impl<'a> Ask<'a> {
    /// # Errors
    /// A zero byte in an argument, which would begin another one; or the message is too long.
    fn message(&self) -> Result<Vec<u8>, Errno> {
        let number = |number: u64| number.to_string().into_bytes();
        let (word, dir, more): (&str, &Path, Vec<Vec<u8>>) = match *self {
            Ask::Prepare { dir, subtype, overlay } => {
                ("prepare", dir, vec![subtype.as_bytes().to_vec(), number(overlay.into())])
            }
            Ask::Attach { dir } => ("attach", dir, Vec::new()),
            Ask::Unmount { dir, id, lazy } => ("unmount", dir, vec![number(id), number(lazy.into())]),
            Ask::Remount { dir, flags } => ("remount", dir, vec![number(flags.into())]),
            Ask::Clear { dir } => ("clear", dir, Vec::new()),
            Ask::Open { file, uid, ref gids } => {
                let ids = std::iter::once(&uid).chain(gids);
                ("open", file, ids.map(|&id| number(id.into())).collect())
            }
        };
        let words = [word.as_bytes().to_vec(), dir.as_os_str().as_bytes().to_vec()].into_iter().chain(more);
        let words: Vec<Vec<u8>> = words.collect();
        if words.iter().any(|word| word.contains(&0)) {
            return Err(Errno::INVAL);
        }
        let message = words.join(&0);
        if message.len() <= MESSAGE_BYTES { Ok(message) } else { Err(Errno::MSGSIZE) }
    }

    fn parse(message: &'a [u8]) -> Option<Ask<'a>> {
        let mut words = message.split(|&byte| byte == 0);
        let (word, dir) = (words.next()?, Path::new(OsStr::from_bytes(words.next()?)));
        let mut text = || std::str::from_utf8(words.next()?).ok();
        Some(match word {
            b"prepare" => Ask::Prepare { dir, subtype: text()?, overlay: text()? == "1" },
            b"attach" => Ask::Attach { dir },
            b"unmount" => Ask::Unmount { dir, id: text()?.parse().ok()?, lazy: text()? == "1" },
            b"remount" => Ask::Remount { dir, flags: text()?.parse().ok()? },
            b"clear" => Ask::Clear { dir },
            b"open" => {
                let uid = text()?.parse().ok()?;
                let gids = words.map(|word| std::str::from_utf8(word).ok()?.parse().ok());
                Ask::Open { file: dir, uid, gids: gids.collect::<Option<_>>()? }
            }
            _ => return None,
        })
    }
}

fn perform(ask: &Ask<'_>, mount: Option<BorrowedFd<'_>>) -> Given {
    match ask {
        Ask::Open { file, uid, gids } => Ok(Some(open_here(file, *uid, gids)?)),
        ask => perform_on_mount(ask, mount).map(|()| None),
    }
}

/// Opens a file as another user, with the rights of this thread, which must be the only one.
fn open_here(file: &Path, uid: u32, gids: &[u32]) -> Result<OwnedFd, Errno> {
    let (own_uid, own_gid, own_groups) = (geteuid(), getegid(), getgroups()?);
    let groups: Vec<Gid> = gids.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(uid), *groups.first().ok_or(Errno::INVAL)?);
    // Only root may.
    set_thread_groups(&groups)?;
    let open = || {
        set_thread_res_gid(None, gid, None)?;
        // This drops the capabilities.
        set_thread_res_uid(None, uid, None)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        rustix::fs::open(file, flags, Mode::empty())
    };
    let opened = open();
    let back = || {
        set_thread_res_uid(None, own_uid, None)?;
        set_thread_res_gid(None, own_gid, None)?;
        set_thread_groups(&own_groups)
    };
    // Otherwise later calls would run as that user.
    back().map_or_else(|_| std::process::abort(), |()| opened)
}

fn perform_on_mount(ask: &Ask<'_>, mount: Option<BorrowedFd<'_>>) -> Answer {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    match *ask {
        Ask::Prepare { dir, subtype, overlay } => {
            clear_dead(dir, subtype)?;
            std::fs::create_dir_all(dir).map_err(failed)?;
            let is_empty = std::fs::read_dir(dir).map_err(failed)?.next().is_none();
            if is_empty || overlay { Ok(()) } else { Err(Errno::NOTEMPTY.into()) }
        }
        Ask::Attach { dir } => {
            let mount = mount.ok_or(Errno::BADF)?;
            Ok(move_mount(mount, "", CWD, dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
        }
        Ask::Unmount { dir, id, lazy } => {
            if id != 0 && mount_id(CWD, dir).is_some_and(|there| there != id) {
                return Err(Errno::STALE.into());
            }
            let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
            rustix::mount::unmount(dir, flags).map_err(|errno| in_the_way(errno, dir))
        }
        Ask::Remount { dir, flags } => {
            let flags = MountFlags::from_bits_retain(flags);
            rustix::mount::mount_remount(dir, flags, c"").map_err(|errno| in_the_way(errno, dir))
        }
        Ask::Clear { dir } => Ok(std::fs::remove_dir(dir).map_err(failed)?),
        Ask::Open { .. } => Err(Errno::INVAL.into()),
    }
}

fn in_the_way(errno: Errno, dir: &Path) -> Failure {
    Failure { errno, users: if errno == Errno::BUSY { users::of(dir) } else { Vec::new() } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_arrives() {
        let dir = Path::new("/mnt/with blank\n");
        for ask in [
            Ask::Prepare { dir, subtype: "cenote", overlay: true },
            Ask::Attach { dir },
            Ask::Unmount { dir, id: u64::MAX, lazy: false },
            Ask::Remount { dir, flags: 7 },
            Ask::Clear { dir },
            Ask::Open { file: dir, uid: 1000, gids: vec![100, 27] },
        ] {
            assert_eq!(Ask::parse(&ask.message().unwrap()), Some(ask.clone()));
        }
        assert_eq!(Ask::parse(b"unlink\0/"), None);
        assert_eq!(Ask::parse(b"open\0/\x001000\x00100\0x"), None);
        // One argument can't become several: here, another user.
        let file = Path::new("/etc/shadow\x000\x000");
        assert_eq!(Ask::Open { file, uid: 1000, gids: vec![100] }.message(), Err(Errno::INVAL));
    }

    #[test]
    fn a_hand_answers_until_its_other_side_is_gone() {
        let socket = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = socket().unwrap();
        let child = Command::new("true").spawn().unwrap();
        let served = std::thread::spawn(move || serve(&theirs));
        let hand = Hand { child, socket: ours };
        let folder = std::env::temp_dir().join(format!("cenote-hand-{}", std::process::id()));
        let prepare = Ask::Prepare { dir: &folder, subtype: "none", overlay: false };
        hand.ask(&prepare, None).unwrap();
        std::fs::write(folder.join("file"), "").unwrap();
        assert_eq!(hand.ask(&prepare, None).map(drop), Err(Errno::NOTEMPTY.into()));
        let clear = Ask::Clear { dir: &folder };
        assert_eq!(hand.ask(&clear, None).map(drop), Err(Errno::NOTEMPTY.into()));
        std::fs::remove_file(folder.join("file")).unwrap();
        hand.ask(&clear, None).unwrap();
        hand.end();
        served.join().unwrap();
    }
}
