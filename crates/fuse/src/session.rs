//! A session: requests that threads bring, tasks that answer them.
//!
//! Idea: the thread that brings a request runs its operation up to its first wait. A request served from
//! memory is answered at once, without waking another thread; one that waits continues as a task of the
//! workers, or of its core's thread if it does little but wait (`ring/task`). So a few threads keep hundreds
//! of operations going.
//!
//! All sessions of the process share the threads; an idle session has none. Requests come through io_uring if
//! possible (`ring`), with a thread for each core; otherwise, and always if they have no reply, through
//! `/dev/fuse` (`readers`, `channel`). A session's operation must not block its thread: another session may
//! need it to go on.
//!
//! Limits: the number of operations is bounded (`traffic`, `ring`); beyond it, the kernel's queue fills. A
//! pause holds new requests until it ends; operations under way finish.

pub(crate) mod dispatch;

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::abi::{self, notify};
use crate::channel::Channel;
use crate::mount::{MountError, MountOptions, Mounted};
use crate::readers::{self, Serve, Served, Unread};
use crate::reply::Reply;
use crate::request::Request;
use crate::ring::{self, Core, Seat, Slots, Start};
use crate::simulated::{self, Connection, SimulatedKernel};
use crate::traffic::{Paused, Traffic, Underway};
use crate::vfs::{Errno, Node, Result, Vfs};
use crate::waiting::Waiting;
use bytes::Bytes;
use cenote_runtime::Runtime;
use futures::channel::oneshot;
use futures::future::select;

/// Most read-ahead, direct and background writes of the kernel at once.
const MAX_BACKGROUND: u16 = 64;

/// Options of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// Threads that read `/dev/fuse`, at least, for all sessions of the process.
    pub readers: usize,
    /// Use io_uring, if the kernel supports it.
    pub over_io_uring: bool,
    /// The kernel delays and joins writes; it then maintains `mtime`. It also trusts no other for a file's
    /// size and times as long as it holds the file (`fuse_get_cache_mask`), whatever notices say: off by
    /// default.
    pub writeback_cache: bool,
    /// The kernel enforces POSIX ACLs (`system.posix_acl_*`).
    pub posix_acl: bool,
    /// See [`crate::MountOptions::hears_sync`].
    pub hears_sync: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            readers: 4,
            over_io_uring: true,
            writeback_cache: false,
            posix_acl: false,
            hears_sync: true,
        }
    }
}

/// A file system being served, until unmounted.
#[derive(Debug)]
pub struct Session {
    /// Canceled when no thread serves it any more: the sender is held by each way that requests come.
    ended: oneshot::Receiver<()>,
    notifier: Notifier,
}

/// Answers one request without a kernel: the bytes after the reply's header. `None`: malformed, or without a
/// reply.
pub async fn answer<V: Vfs>(vfs: &V, request: Bytes) -> Option<Result<Vec<u8>>> {
    let request = Request::parse(request)?;
    let reply = dispatch::dispatch(vfs, &Waiting::default(), &request).await?;
    Some(reply.map(|reply| reply.parts().collect::<Vec<_>>().concat()))
}

/// Held by each way that requests come.
type Alive = Arc<oneshot::Sender<()>>;

struct Shared<V> {
    runtime: Runtime,
    channel: Channel,
    vfs: V,
    traffic: Arc<Traffic>,
    waiting: Arc<Waiting>,
}

impl Session {
    /// Serves `vfs` on a mounted `/dev/fuse`. Returns after the protocol handshake.
    ///
    /// # Errors
    /// The kernel is too old, unmounted already, or no thread can be started.
    pub fn start<V: Vfs>(
        runtime: &Runtime,
        device: OwnedFd,
        vfs: V,
        options: SessionOptions,
    ) -> io::Result<Session> {
        let cores = if options.over_io_uring { ring::cores() } else { None };
        let mut rings = cores.and_then(|cores| Some((Slots::new(&cores).ok()?, cores)));
        let channel = Channel::new(device);
        if !agree(&channel, options, vfs.reads_anew(), rings.is_some())? {
            rings = None;
        }
        channel.stop_blocking()?;
        let traffic = Arc::<Traffic>::default();
        let cores = rings.as_ref().map_or_else(|| Arc::from([]), |(_, cores)| cores.clone());
        let notifier = Notifier { to: To::Device(channel.clone()), traffic: traffic.clone(), cores };
        let waiting = Arc::default();
        let shared = Arc::new(Shared { runtime: runtime.clone(), channel, vfs, traffic, waiting });
        let (alive, ended) = oneshot::channel();
        let alive = Alive::new(alive);
        // With rings, only `FORGET` comes this way.
        let reading = Reading { shared: shared.clone(), _alive: alive.clone() };
        readers::serve(Arc::new(reading), if rings.is_some() { 1 } else { options.readers })?;
        if let Some((slots, cores)) = rings {
            let begin = || -> Start {
                let (shared, alive) = (shared.clone(), alive.clone());
                Box::new(move |seat, request| {
                    let _alive = &alive;
                    start(&shared, request, Way::Ring(seat));
                })
            };
            ring::serve(&cores, slots, &shared.channel, begin);
        }
        Ok(Session { ended, notifier })
    }

    /// Mounts `vfs` on a directory and serves it: the machine's kernel may be a simulated one.
    ///
    /// # Errors
    /// The directory can't be mounted on, or the kernel refuses.
    pub async fn mount<V: Vfs + Clone>(
        runtime: &Runtime,
        vfs: &V,
        dir: &Path,
        options: MountOptions,
        session: SessionOptions,
    ) -> Result<(Mounted, Session), MountError> {
        if let Some(made) = simulated::mounted(runtime, vfs, dir, &options) {
            return made;
        }
        let (device, mounted) = {
            let dir = dir.to_owned();
            runtime.blocking(move || crate::mount::mount(&dir, &options)).await?
        };
        let started = {
            let (runtime, vfs) = (runtime.clone(), vfs.clone());
            runtime.clone().blocking(move || Session::start(&runtime, device, vfs, session)).await
        };
        match started {
            Ok(session) => Ok((mounted, session)),
            Err(source) => {
                runtime.blocking(move || mounted.unmount(true)).await.ok();
                Err(MountError::Mount { dir: dir.display().to_string(), source })
            }
        }
    }

    /// Serves `vfs` to the kernel of a simulated machine, with a task per request.
    pub(crate) fn simulated<V: Vfs>(
        runtime: &Runtime,
        kernel: SimulatedKernel,
        mount: u64,
        vfs: V,
    ) -> (Session, Connection) {
        let (alive, ended) = oneshot::channel();
        let traffic = Arc::<Traffic>::default();
        let to = To::Simulated(kernel, mount);
        let notifier = Notifier { to, traffic: traffic.clone(), cores: Arc::new([]) };
        (Session { ended, notifier }, Connection::new(runtime, vfs, traffic, alive))
    }

    /// Tells the kernel of changes.
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Waits until no request can come after the unmount, without a thread: there may be thousands of
    /// sessions.
    pub async fn ended(self) {
        // The sender is only ever dropped.
        self.ended.await.ok();
    }
}

/// Notifies the kernel of changes made without it.
///
/// A notice is in force when the call returns: it waits for kernel locks that operations may hold. So no
/// operation may call this, nor any task that an operation waits for, unless a method allows it.
///
/// That includes answers not yet processed by the kernel: a look-up or listing holds its directory's lock
/// until then, and [`Notifier::name_changed`] waits for it. Attributes and content have their own versions
/// and locks. So notify of names first, then of nodes.
///
/// `FUSE_NOTIFY_INC_EPOCH` would invalidate all names at once, but then the kernel detaches all mounts below
/// them (`d_invalidate`), such as child datasets.
#[derive(Debug, Clone)]
pub struct Notifier {
    to: To,
    traffic: Arc<Traffic>,
    cores: Arc<[Arc<Core>]>,
}

#[derive(Debug, Clone)]
enum To {
    Device(Channel),
    /// The kernel, and its number of the mount.
    Simulated(SimulatedKernel, u64),
}

/// A name that practically no directory has.
const NO_NAME: &[u8] = b"\x01";

impl Notifier {
    /// Holds back new operations, and waits for those under way. One pause at a time.
    pub async fn pause(&self) -> Paused {
        self.traffic.pause(|| self.cores.iter().for_each(|core| core.wake())).await
    }

    fn notify(&self, code: i32, notice: &Reply) {
        match &self.to {
            To::Device(channel) => _ = channel.notify(code, notice),
            To::Simulated(kernel, mount) => kernel.notify(*mount, code, &notice.fields),
        }
    }

    /// A node's attributes and content are out of date. The kernel first writes back mapped pages.
    pub fn changed(&self, node: Node) {
        self.content_changed(node, 0..u64::MAX);
    }

    fn content_changed(&self, node: Node, range: Range<u64>) {
        // `fuse_notify_inval_inode_out`: ino, off, len (8 each); length 0: to the end.
        let len_bytes = if range.end > i64::MAX as u64 { 0 } else { range.end - range.start };
        let notice = Reply::empty().u64(node.0).u64(range.start).u64(len_bytes);
        self.notify(notify::INVAL_INODE, &notice);
    }

    /// Only a node's attributes are out of date. Operations may call this: the kernel does not wait.
    pub fn attributes_changed(&self, node: Node) {
        // A negative offset: no content.
        self.notify(notify::INVAL_INODE, &Reply::empty().u64(node.0).u64(u64::MAX).u64(0));
    }

    /// A name's node, or its absence, is out of date. Detaches all mounts there or below.
    pub fn name_changed(&self, dir: Node, name: &[u8]) {
        self.name_is(dir, name, 0);
    }

    /// A name must be looked up again; mounts on the same node stay.
    pub fn name_expired(&self, dir: Node, name: &[u8]) {
        self.name_is(dir, name, notify::EXPIRE_ONLY);
    }

    fn name_is(&self, dir: Node, name: &[u8], flags: u32) {
        // `fuse_notify_inval_entry_out`: parent (8), namelen (4), flags (4); then the name and a NUL.
        let mut notice = Reply::empty().u64(dir.0).u32(name.len() as u32).u32(flags);
        notice.fields.extend(name);
        notice.fields.push(0);
        self.notify(notify::INVAL_ENTRY, &notice);
    }

    /// Waits until the kernel has processed all answered look-ups and listings of a directory.
    pub fn names_taken_in(&self, dir: Node) {
        self.name_changed(dir, NO_NAME);
    }

    /// For an operation without locks: has the kernel write back mapped pages in a part of a file, and drop
    /// it. Returns `false` at once if too many operations are doing so.
    pub async fn write_back(&self, runtime: &Runtime, node: Node, range: Range<u64>) -> bool {
        let Some(aside) = self.traffic.step_aside() else { return false };
        let notifier = self.clone();
        runtime.blocking(move || notifier.content_changed(node, range)).await;
        aside.back().await;
        true
    }
}

/// Answers `INIT`, the first request. Returns whether the kernel accepts rings.
fn agree(channel: &Channel, options: SessionOptions, reads_anew: bool, has_rings: bool) -> io::Result<bool> {
    let mut buffer = Vec::new();
    loop {
        let gone = || io::Error::other("the file system was unmounted before it was served");
        let request = channel.read(&mut buffer)?.ok_or_else(gone)?;
        let mut body = request.body();
        // `fuse_init_in`: major, minor, max_readahead, flags, flags2 (4 each).
        let (major, minor) = (body.u32()?, body.u32()?);
        if major > abi::MAJOR {
            // The kernel retries with our major version.
            channel.reply(request.unique, Ok(Reply::empty().u32(abi::MAJOR).u32(abi::MINOR).zeros(56)));
            continue;
        }
        if major < abi::MAJOR || minor < abi::LEAST_MINOR {
            channel.reply(request.unique, Err(Errno::PROTO));
            let why = format!("the kernel speaks FUSE {major}.{minor}; Linux 4.20 or newer is needed");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let (read_ahead, low) = (body.u32()?, body.u32()?);
        let high = if u64::from(low) & abi::init::INIT_EXT != 0 { body.u32()? } else { 0 };
        let offered = u64::from(low) | u64::from(high) << 32;
        let rings = if has_rings { abi::init::OVER_IO_URING } else { 0 };
        let taken = offered & (wanted(options, reads_anew) | rings);
        let congested = MAX_BACKGROUND / 4 * 3;
        // `fuse_init_out`: major, minor, max_readahead, flags (4 each), max_background, congestion_threshold
        // (2 each), max_write, time_gran (4 each), max_pages, map_alignment (2 each), flags2 (4), unused
        // (28).
        let reply =
            Reply::empty().u32(abi::MAJOR).u32(minor.min(abi::MINOR)).u32(read_ahead).u32(taken as u32);
        let reply = reply.u32(u32::from(MAX_BACKGROUND) | u32::from(congested) << 16);
        let reply = reply.u32(abi::MAX_WRITE_BYTES as u32).u32(1);
        let reply = reply.u32(abi::MAX_PAGES.into()).u32((taken >> 32) as u32).zeros(28);
        channel.reply(request.unique, Ok(reply));
        return Ok(taken & abi::init::OVER_IO_URING != 0);
    }
}

/// Not `READDIRPLUS_AUTO`: with it, only the first part of a listing has attributes, unless the reader looks
/// at names before it has all (`ls`, not `find` or `rm`). Each other name is then a request of its own, for
/// five times the processor time of an entry with attributes.
///
/// Not `ASYNC_DIO`: with it, the end of an asynchronous direct write does not drop the kernel's cache
/// (`fuse_aio_complete`), and data fetched by a buffered read meanwhile stays there, out of date.
fn wanted(options: SessionOptions, reads_anew: bool) -> u64 {
    use abi::init::*;
    let always = ASYNC_READ
        | EXPORT_SUPPORT
        | BIG_WRITES
        | DONT_MASK
        | IOCTL_DIR
        | DO_READDIRPLUS
        | PARALLEL_DIROPS
        | MAX_PAGES
        | HANDLE_KILLPRIV_V2
        | SETXATTR_EXT
        | INIT_EXT
        | DIRECT_IO_ALLOW_MMAP;
    let writeback = if options.writeback_cache { WRITEBACK_CACHE } else { 0 };
    let posix_acl = if options.posix_acl { POSIX_ACL } else { 0 };
    let keeps_cache = if reads_anew { 0 } else { NO_OPEN_SUPPORT | NO_OPENDIR_SUPPORT | CACHE_SYMLINKS };
    always | writeback | posix_acl | keeps_cache
}

/// The way through `/dev/fuse`.
struct Reading<V> {
    shared: Arc<Shared<V>>,
    _alive: Alive,
}

impl<V: Vfs> Serve for Reading<V> {
    fn device(&self) -> BorrowedFd<'_> {
        self.shared.channel.device()
    }

    fn serve(&self, buffer: &mut Vec<u8>, again: Unread) -> Served {
        if !self.shared.traffic.has_room(again) {
            return Served::Later;
        }
        match self.shared.channel.read(buffer) {
            Ok(Some(request)) => start(&self.shared, request, Way::Device),
            Err(Errno::INVAL) => {} // not a request: nothing to answer
            Err(Errno::AGAIN) => return Served::None,
            Ok(None) | Err(_) => return Served::Ended,
        }
        Served::One
    }
}

/// Runs an operation here up to its first wait, then as a task: at its core if it needs little more, else
/// where a core is free.
fn start<V: Vfs>(shared: &Arc<Shared<V>>, request: Request, way: Way) {
    let unique = request.unique;
    let core = match &way {
        Way::Ring(seat) if dispatch::is_short(&request) => Some(seat.core()),
        _ => None,
    };
    let answer = Answer { shared: shared.clone(), unique: Some(unique), way };
    let mut operation: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        let underway = answer.shared.traffic.begin().await;
        let reply = dispatch::dispatch(&answer.shared.vfs, &answer.shared.waiting, &request).await;
        answer.give(reply, underway);
    });
    // A wake-up before the task exists is not lost: a new task is polled at once.
    let mut context = Context::from_waker(Waker::noop());
    let polled =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| operation.as_mut().poll(&mut context)));
    if let Ok(std::task::Poll::Pending) = polled {
        let (mut waits, of) = (shared.waiting.enter(unique), shared.clone());
        let to_its_end = async move {
            let given_up = async {
                waits.interrupted().await;
                of.vfs.stuck().await;
            };
            select(&mut operation, pin!(given_up)).await;
            // Dropped before its entry in `waiting`, so that it answers as interrupted.
            drop(operation);
        };
        match core {
            Some(core) => core.go_on(to_its_end),
            None => shared.runtime.spawn(to_its_end).detach(),
        }
    }
}

enum Way {
    Device,
    Ring(Seat),
}

/// The duty to answer a request. Dropped, it answers `EIO` (after a panic) or `EINTR`: no process waits
/// forever.
struct Answer<V> {
    shared: Arc<Shared<V>>,
    unique: Option<u64>,
    way: Way,
}

impl<V> Answer<V> {
    /// `None`: an operation without a reply.
    fn give(mut self, reply: Option<Result<Reply>>, underway: Underway) {
        match (self.unique.take(), reply) {
            (Some(unique), Some(reply)) => self.send(unique, reply, Some(underway)),
            _ => drop(underway),
        }
    }

    fn send(&self, unique: u64, reply: Result<Reply>, underway: Option<Underway>) {
        match &self.way {
            Way::Device => self.shared.channel.reply(unique, reply),
            Way::Ring(seat) => seat.answer(unique, reply, underway),
        }
    }
}

impl<V> Drop for Answer<V> {
    fn drop(&mut self) {
        if let Some(unique) = self.unique.take() {
            let is_interrupted = self.shared.waiting.is_interrupted(unique);
            self.send(unique, Err(if is_interrupted { Errno::INTR } else { Errno::IO }), None);
        }
    }
}
