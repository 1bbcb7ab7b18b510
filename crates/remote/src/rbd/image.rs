//! An open image: safe calls over the library's functions.
//!
//! ```text
//!   Image --> Pool --> Cluster        closed in this order; each image has a connection of its own
//! ```
//!
//! Idea: Ceph fences connections: a blocklisted one loses all its images. So each image has its own, lest
//! another pool's be fenced with it.
//!
//! An operation begins with a call that does not block. A thread of the library ends it: it calls
//! [`completed`], which wakes the operation's future. Memory of an operation belongs to the library from the
//! call to that moment, and is kept by a box whose address the library carries.
//!
//! Caches are off: an acknowledged write is on the disks of the OSDs.
#![allow(unsafe_code)] // calls of C, and memory that a library of C fills

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::path::Path;
use std::ptr::null_mut;

use bytes::Bytes;
use cenote_device::place::RbdPlace;
use futures::channel::oneshot;

use super::error::{RbdError, checked, done};
use super::library::{Completion, ImageHandle, IoContext, Watcher, calls, loaded};

/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_LOCK_MODE_EXCLUSIVE`.
const EXCLUSIVE: c_int = 0;
/// Owners of an exclusive lock: one.
const OWNERS_MAX: usize = 4;
/// Programs that may have the image open.
const WATCHERS_MAX: usize = 256;
/// Longest metadata read.
const METADATA_BYTES_MAX: usize = 1024;
/// Longest value of a setting read.
const SETTING_BYTES_MAX: usize = 128;
/// Length of a cluster's id, with its final zero.
const FSID_BYTES: usize = 37;

/// Settings of every connection.
const SETTINGS: [(&CStr, &CStr, &str); 2] = [
    // Else the library acknowledges writes that are only in memory.
    (c"rbd_cache", c"false", "rbd_cache"),
    // Seconds for the connection.
    (c"client_mount_timeout", c"10", "client_mount_timeout"),
];
/// The name of the setting that makes breaking a lock a fence, and its name before Ceph 16.
const BLOCKLIST: [&CStr; 2] = [c"rbd_blocklist_on_break_lock", c"rbd_blacklist_on_break_lock"];
/// How long a client stays fenced, in seconds: a stopped one may wake up much later than after Ceph's hour.
const FENCED_S: u32 = 365 * 24 * 3600;

struct Cluster(super::library::Cluster);

struct Pool {
    handle: IoContext,
    cluster: Cluster,
}

/// An open image.
pub(super) struct Image {
    handle: ImageHandle,
    pool: Pool,
}

// SAFETY: the library's handles may be used by several threads at once (`librados.h`, `librbd.h`).
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

/// An operation.
pub(super) enum Ask {
    Read { offset: u64, len: usize },
    Write { offset: u64, pieces: Vec<Bytes> },
    Discard { offset: u64, len: u64 },
    Flush,
}

/// An awaited answer: the data of a read, otherwise nothing.
pub(super) type Answer = oneshot::Receiver<io::Result<Bytes>>;

/// An operation under way.
struct Waiting {
    tell: oneshot::Sender<io::Result<Bytes>>,
    memory: Memory,
}

/// Memory that the library uses meanwhile.
enum Memory {
    /// Room for this many bytes, none of which count as filled yet.
    Read(Vec<u8>, usize),
    Write(#[allow(dead_code, reason = "kept until the end")] Vec<Bytes>),
    None,
}

fn c_string(text: &str) -> Result<CString, RbdError> {
    CString::new(text).map_err(|_| RbdError::Name)
}

impl Cluster {
    fn connect(place: &RbdPlace) -> Result<Cluster, RbdError> {
        let calls = calls()?;
        let user = place.user.as_deref().map(c_string).transpose()?;
        let conf =
            place.conf.as_deref().map(Path::to_string_lossy).map(|path| c_string(&path)).transpose()?;
        let of = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let mut handle = null_mut();
        // SAFETY: the texts end with a zero and outlive the calls; null stands for the default.
        let cluster = unsafe {
            done("cannot make a connection", (calls.rados_create)(&raw mut handle, of(&user)).into())?;
            let cluster = Cluster(handle);
            checked((calls.rados_conf_read_file)(handle, of(&conf)).into()).map_err(RbdError::Conf)?;
            cluster
        };
        for (name, value, shown) in SETTINGS {
            let set = cluster.set(name, value);
            set.map_err(|source| RbdError::Setting { name: shown, source })?;
        }
        let set = cluster.set(BLOCKLIST[0], c"true").or_else(|_| cluster.set(BLOCKLIST[1], c"true"));
        set.map_err(|source| RbdError::Setting { name: "rbd_blocklist_on_break_lock", source })?;
        // SAFETY: the handle is open.
        let connected = unsafe { (calls.rados_connect)(handle) };
        checked(connected.into()).map_err(RbdError::Connect)?;
        Ok(cluster)
    }

    fn set(&self, name: &CStr, value: &CStr) -> io::Result<u64> {
        // SAFETY: the handle is open; the texts end with a zero.
        checked(unsafe { (loaded().rados_conf_set)(self.0, name.as_ptr(), value.as_ptr()) }.into())
    }

    /// Gives the monitors a command, in JSON.
    fn command(&self, command: &str) -> io::Result<u64> {
        let command = CString::new(command)?;
        let mut commands = [command.as_ptr()];
        let (mut out, mut out_len, mut status, mut status_len) = (null_mut(), 0, null_mut(), 0);
        // SAFETY: the handle is connected; there is one command, which ends with a zero, and no input. The
        // library's buffers are given back, null or not.
        checked(unsafe {
            let done = (loaded().rados_mon_command)(
                self.0,
                commands.as_mut_ptr(),
                commands.len(),
                std::ptr::null(),
                0,
                &raw mut out,
                &raw mut out_len,
                &raw mut status,
                &raw mut status_len,
            );
            (loaded().rados_buffer_free)(out);
            (loaded().rados_buffer_free)(status);
            done.into()
        })
    }

    fn setting(&self, name: &CStr) -> Option<String> {
        let mut value = [0u8; SETTING_BYTES_MAX];
        // SAFETY: the handle is open, the name ends with a zero, and the length is the array's.
        let got = unsafe {
            (loaded().rados_conf_get)(self.0, name.as_ptr(), value.as_mut_ptr().cast(), value.len())
        };
        checked(got.into()).ok()?;
        text_of(&value)
    }
}

/// The text before the first zero.
fn text_of(bytes: &[u8]) -> Option<String> {
    let text = CStr::from_bytes_until_nul(bytes).ok()?;
    Some(text.to_string_lossy().into_owned())
}

impl Pool {
    fn open(cluster: Cluster, place: &RbdPlace) -> Result<Pool, RbdError> {
        let (name, mut handle) = (c_string(&place.pool)?, null_mut());
        let namespace = place.namespace.as_deref().map(c_string).transpose()?;
        // SAFETY: the cluster is connected; the names end with a zero.
        let opened = unsafe { (loaded().rados_ioctx_create)(cluster.0, name.as_ptr(), &raw mut handle) };
        checked(opened.into()).map_err(RbdError::Pool)?;
        let pool = Pool { handle, cluster };
        if let Some(namespace) = namespace {
            // SAFETY: the pool is open; the name ends with a zero.
            unsafe { (loaded().rados_ioctx_set_namespace)(pool.handle, namespace.as_ptr()) };
        }
        Ok(pool)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle is used no more: its pool is closed before.
        unsafe { (loaded().rados_shutdown)(self.0) };
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the handle is used no more: its image is closed before.
        unsafe { (loaded().rados_ioctx_destroy)(self.handle) };
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // The lock goes with it. An error changes nothing: the handle is gone.
        // SAFETY: the handle is used no more. The library waits for operations under way.
        unsafe { (loaded().rbd_close)(self.handle) };
    }
}

/// Calls that block.
impl Image {
    pub(super) fn open(place: &RbdPlace, read_only: bool) -> Result<Image, RbdError> {
        let pool = Pool::open(Cluster::connect(place)?, place)?;
        let (name, mut handle) = (c_string(&place.image)?, null_mut());
        let open = if read_only { loaded().rbd_open_read_only } else { loaded().rbd_open };
        // SAFETY: the pool is open, and the name ends with a zero; null means no snapshot.
        let opened = unsafe { open(pool.handle, name.as_ptr(), &raw mut handle, std::ptr::null()) };
        checked(opened.into()).map_err(RbdError::Image)?;
        Ok(Image { handle, pool })
    }

    /// The cluster's id.
    pub(super) fn fsid(&self) -> Option<String> {
        let mut fsid = [0u8; FSID_BYTES];
        // SAFETY: the cluster is connected; the length is the array's.
        let got = unsafe {
            (loaded().rados_cluster_fsid)(self.pool.cluster.0, fsid.as_mut_ptr().cast(), fsid.len())
        };
        checked(got.into()).ok()?;
        text_of(&fsid)
    }

    /// Whether the cluster surely knows its clients by keys.
    pub(super) fn demands_keys(&self) -> bool {
        self.pool.cluster.setting(c"auth_client_required").is_some_and(|by| by.trim() == "cephx")
    }

    pub(super) fn size_bytes(&self) -> io::Result<u64> {
        let mut size = 0;
        // SAFETY: the image is open.
        checked(unsafe { (loaded().rbd_get_size)(self.handle, &raw mut size) }.into())?;
        Ok(size)
    }

    pub(super) fn has_lock_feature(&self) -> io::Result<bool> {
        let mut features = 0;
        // SAFETY: the image is open.
        checked(unsafe { (loaded().rbd_get_features)(self.handle, &raw mut features) }.into())?;
        Ok(features & FEATURE_EXCLUSIVE_LOCK != 0)
    }

    /// Takes the lock, which is then kept until the image is closed, also if others ask for it.
    pub(super) fn acquire(&self) -> io::Result<u64> {
        // SAFETY: the image is open.
        checked(unsafe { (loaded().rbd_lock_acquire)(self.handle, EXCLUSIVE) }.into())
    }

    /// Whether the lock is ours. An error if the cluster refuses this client.
    pub(super) fn is_owner(&self) -> io::Result<bool> {
        let mut is_owner = 0;
        // SAFETY: the image is open.
        checked(unsafe { (loaded().rbd_is_exclusive_lock_owner)(self.handle, &raw mut is_owner) }.into())?;
        Ok(is_owner != 0)
    }

    /// The address of the client with the lock.
    pub(super) fn owner(&self) -> io::Result<Option<String>> {
        let (mut mode, mut count) = (0, OWNERS_MAX);
        let mut owners: [*mut c_char; OWNERS_MAX] = [null_mut(); OWNERS_MAX];
        // SAFETY: the image is open; `count` is the array's length. The texts are copied, then given back.
        let got = unsafe {
            (loaded().rbd_lock_get_owners)(self.handle, &raw mut mode, owners.as_mut_ptr(), &raw mut count)
        };
        match checked(got.into()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            got => got?,
        };
        let count = count.min(OWNERS_MAX);
        let first = owners[..count].first().filter(|owner| !owner.is_null());
        // SAFETY: the library has filled `count` pointers with texts that end with a zero.
        let first = first.map(|owner| unsafe { CStr::from_ptr(*owner) }.to_string_lossy().into_owned());
        // SAFETY: as above; they are used no more.
        unsafe { (loaded().rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count) };
        Ok(first)
    }

    /// Breaks that client's lock. The cluster then refuses all that it sends, for an hour; for longer if its
    /// monitors agree. The library's own setting for it is broken in Ceph 16 (`EINVAL`).
    pub(super) fn break_lock(&self, owner: &str) -> io::Result<()> {
        let address = CString::new(owner)?;
        // SAFETY: the image is open; the address ends with a zero.
        checked(unsafe { (loaded().rbd_lock_break)(self.handle, EXCLUSIVE, address.as_ptr()) }.into())?;
        let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b".:/[]-".contains(&byte);
        if owner.bytes().all(may_be) {
            // The name since Ceph 16, and the one before.
            let add = |list: &str| {
                self.pool.cluster.command(&format!(
                    r#"{{"prefix":"osd {list}","{list}op":"add","addr":"{owner}","expire":{FENCED_S}.0}}"#
                ))
            };
            // It is fenced anyway.
            add("blocklist").or_else(|_| add("blacklist")).ok();
        }
        Ok(())
    }

    /// Whether that client has the image open, as far as the cluster knows.
    pub(super) fn is_watched_by(&self, client: &str) -> io::Result<bool> {
        let mut watchers = vec![Watcher { addr: null_mut(), id: 0, cookie: 0 }; WATCHERS_MAX];
        let mut count = watchers.len();
        // SAFETY: the image is open; `count` is the list's length.
        let got = unsafe { (loaded().rbd_watchers_list)(self.handle, watchers.as_mut_ptr(), &raw mut count) };
        checked(got.into())?;
        let count = count.min(watchers.len());
        let is_meant = |watcher: &Watcher| {
            // SAFETY: the library has filled `count` entries with addresses that end with a zero.
            !watcher.addr.is_null() && unsafe { CStr::from_ptr(watcher.addr) }.to_bytes() == client.as_bytes()
        };
        let is_watched = watchers[..count].iter().any(is_meant);
        // SAFETY: as above; they are used no more.
        unsafe { (loaded().rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), count) };
        Ok(is_watched)
    }

    pub(super) fn metadata(&self, key: &CStr) -> Option<String> {
        let mut value = vec![0u8; METADATA_BYTES_MAX];
        let mut len = value.len();
        // SAFETY: the image is open, the key ends with a zero, and `len` is the buffer's length.
        let got = unsafe {
            (loaded().rbd_metadata_get)(self.handle, key.as_ptr(), value.as_mut_ptr().cast(), &raw mut len)
        };
        checked(got.into()).ok()?;
        text_of(&value)
    }

    pub(super) fn put_metadata(&self, key: &CStr, value: &str) -> io::Result<u64> {
        let value = CString::new(value)?;
        // SAFETY: the image is open; the texts end with a zero.
        checked(unsafe { (loaded().rbd_metadata_set)(self.handle, key.as_ptr(), value.as_ptr()) }.into())
    }
}

/// Calls that don't.
impl Image {
    /// Begins an operation. The image must stay open until it is over.
    pub(super) fn begin(&self, ask: Ask) -> Answer {
        let (tell, told) = oneshot::channel();
        match ask {
            Ask::Read { offset, len } => {
                let mut room: Vec<u8> = Vec::with_capacity(len);
                let to: *mut c_char = room.as_mut_ptr().cast();
                let waiting = Waiting { tell, memory: Memory::Read(room, len) };
                // SAFETY: the memory has room for `len` bytes, and stays where it is until the end.
                self.start(waiting, |end| unsafe {
                    (loaded().rbd_aio_read)(self.handle, offset, len, to, end)
                });
            }
            Ask::Write { offset, pieces } => {
                let part = |piece: &Bytes| libc::iovec {
                    iov_base: piece.as_ptr().cast_mut().cast(),
                    iov_len: piece.len(),
                };
                let parts: Vec<libc::iovec> = pieces.iter().map(part).collect();
                let count = c_int::try_from(parts.len()).unwrap_or(c_int::MAX);
                let waiting = Waiting { tell, memory: Memory::Write(pieces) };
                // SAFETY: the library only reads the pieces, which are kept until the end; the list of parts
                // is read before the call returns.
                self.start(waiting, |end| unsafe {
                    (loaded().rbd_aio_writev)(self.handle, parts.as_ptr(), count, offset, end)
                });
            }
            Ask::Discard { offset, len } => {
                let waiting = Waiting { tell, memory: Memory::None };
                // SAFETY: the image is open.
                self.start(waiting, |end| unsafe {
                    (loaded().rbd_aio_discard)(self.handle, offset, len, end)
                });
            }
            Ask::Flush => {
                let waiting = Waiting { tell, memory: Memory::None };
                // SAFETY: the image is open.
                self.start(waiting, |end| unsafe { (loaded().rbd_aio_flush)(self.handle, end) });
            }
        }
        told
    }

    fn start(&self, waiting: Waiting, begin: impl FnOnce(Completion) -> c_int) {
        let (argument, mut end) = (Box::into_raw(Box::new(waiting)), null_mut());
        // SAFETY: the callback takes the box back, once.
        let made = unsafe { (loaded().rbd_aio_create_completion)(argument.cast(), completed, &raw mut end) };
        let begun = if made < 0 { made } else { begin(end) };
        if begun >= 0 {
            return;
        }
        if made >= 0 {
            // SAFETY: the operation has not begun, so nobody else uses the completion.
            unsafe { (loaded().rbd_aio_release)(end) };
        }
        // SAFETY: the operation has not begun, so the callback is never called.
        let waiting = unsafe { Box::from_raw(argument) };
        waiting.end(begun as isize);
    }
}

/// Ends an operation, on a thread of the library.
unsafe extern "C" fn completed(end: Completion, argument: *mut c_void) {
    // SAFETY: the argument is the box of this operation, which ends once.
    let waiting: Box<Waiting> = unsafe { Box::from_raw(argument.cast()) };
    // SAFETY: the operation is over, and the completion is used no more.
    let result = unsafe {
        let result = (loaded().rbd_aio_get_return_value)(end);
        (loaded().rbd_aio_release)(end);
        result
    };
    waiting.end(result);
}

impl Waiting {
    fn end(self, result: isize) {
        let result = checked(result as i64).and_then(|count| match self.memory {
            Memory::Read(mut room, len) if count == len as u64 => {
                // SAFETY: the library has filled `len` bytes, for which there is room.
                unsafe { room.set_len(len) };
                Ok(Bytes::from(room))
            }
            Memory::Read(..) => Err(io::ErrorKind::UnexpectedEof.into()),
            Memory::Write(_) | Memory::None => Ok(Bytes::new()),
        });
        // The caller may be gone.
        drop(self.tell.send(result));
    }
}
