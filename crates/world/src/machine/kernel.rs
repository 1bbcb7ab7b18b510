//! A model of Linux between programs and the daemon: mounts, names, attributes, pages, descriptors.
//!
//! ```text
//!   client --> calls --> dentries, inodes, pages --> FUSE requests, in bytes --> the daemon
//!                                ^---------------------- notices ------------------'
//! ```
//!
//! Idea: the kernel answers from its caches while the daemon lets it, so an outdated answer shows as a
//! history without a linear order.
//!
//! Like Linux,
//! * it locks a directory for look-ups (shared) and changes of names (exclusively), and a file for writes;
//! * it caches names and their absence, attributes (also those of listings) and pages, and forgets nodes
//!   without names and users;
//! * an answer overtaken by a change or notice is used, but not cached (`attr_version`);
//! * a look-up that meets `ESTALE` is repeated without caches.
//!
//! A notice of Linux waits for look-ups and changes in its directory. This one can't wait, and marks them
//! instead ([`Ticket`]): their answers are cached as if the notice came after them.
//!
//! Source: Linux `fs/fuse/dir.c`, `file.c`, `inode.c`; `fs/namei.c`.

mod calls;
mod inode;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cenote_fuse::simulated::{self, Connection};
use cenote_fuse::{Errno, MountError, MountOptions, Result};
use cenote_runtime::{Instant, Runtime};
use parking_lot::Mutex;

pub use calls::{Descriptor, How};
use inode::Inode;
pub use wire::Attr;
use wire::{Body, INVAL_ENTRY, INVAL_INODE, Request};

/// The machine's kernel, for one life of the machine.
pub struct Kernel {
    runtime: Runtime,
    /// It loses notices.
    is_deaf: bool,
    numbers: AtomicU64,
    mounts: Mutex<BTreeMap<u64, Arc<Mount>>>,
}

/// A mounted file system.
pub struct Mount {
    runtime: Runtime,
    dir: PathBuf,
    source: String,
    uniques: AtomicU64,
    state: Mutex<State>,
}

struct State {
    /// `None`: unmounted without users, or aborted.
    connection: Option<Connection>,
    is_attached: bool,
    /// Open descriptors, and calls under way.
    users: usize,
    root: Option<Arc<Inode>>,
    /// Inodes in use, by node.
    inodes: BTreeMap<u64, Weak<Inode>>,
    dentries: BTreeMap<Name, Dentry>,
    /// Calls whose answers will be cached under a name.
    tickets: BTreeMap<u64, Ticket>,
    /// Number of changes and notices so far.
    version: u64,
}

/// A directory's node, and a name in it.
type Name = (u64, Vec<u8>);

/// A cached name.
#[derive(Clone)]
struct Dentry {
    /// `None`: there is no such name.
    inode: Option<Arc<Inode>>,
    valid_until: Instant,
}

/// A call whose answer is on its way.
struct Ticket {
    dir: u64,
    /// Names about which a notice came.
    overtaken: BTreeSet<Vec<u8>>,
    /// A notice about its directory came, which would have waited for the answer.
    is_waited_for: bool,
    /// Nodes that notices named thereafter.
    changed: BTreeSet<u64>,
}

impl Ticket {
    fn of(dir: u64) -> Ticket {
        Ticket { dir, overtaken: BTreeSet::new(), is_waited_for: false, changed: BTreeSet::new() }
    }
}

impl Kernel {
    /// A kernel without mounts. `is_deaf`: it loses notices.
    pub fn new(runtime: &Runtime, is_deaf: bool) -> Kernel {
        Kernel { runtime: runtime.clone(), is_deaf, numbers: AtomicU64::new(1), mounts: Mutex::default() }
    }

    /// The file system mounted on a directory.
    ///
    /// # Errors
    /// There is none.
    pub fn mounted_on(&self, dir: &str) -> Result<Arc<Mount>> {
        let mounts = self.mounts.lock();
        let mut found = mounts.values().rev().filter(|mount| mount.dir == Path::new(dir));
        found.find(|mount| mount.state.lock().is_attached).cloned().ok_or(Errno::NOENT)
    }

    /// Frees all mounts: the machine is off.
    pub(super) fn forget(&self) {
        let mounts = std::mem::take(&mut *self.mounts.lock());
        for mount in mounts.into_values() {
            let (connection, names) = {
                let state = &mut *mount.state.lock();
                let names = (state.root.take(), std::mem::take(&mut state.dentries));
                (state.connection.take(), names)
            };
            // First the connection, so that no FORGET follows.
            drop(connection);
            drop(names);
        }
    }

    fn mount(&self, number: u64) -> Option<Arc<Mount>> {
        self.mounts.lock().get(&number).cloned()
    }
}

/// A user of a mount, which keeps it busy.
struct User(Arc<Mount>);

impl Mount {
    /// The dataset's name when mounted.
    pub fn source(&self) -> &str {
        &self.source
    }

    fn enter(self: &Arc<Mount>) -> User {
        self.state.lock().users += 1;
        User(self.clone())
    }

    /// Sends a request; the bytes after the reply's header.
    async fn ask(&self, request: impl FnOnce(u64) -> Request) -> Result<Vec<u8>> {
        let connection = self.state.lock().connection.clone().ok_or(Errno::NOTCONN)?;
        let unique = self.uniques.fetch_add(2, Ordering::Relaxed);
        connection.send(request(unique).finish()).await.unwrap_or(Err(Errno::IO))
    }

    fn now_version(&self) -> u64 {
        self.state.lock().version
    }

    /// Something changed: answers on their way are out of date.
    fn next_version(&self) -> u64 {
        let mut state = self.state.lock();
        state.version += 1;
        state.version
    }

    fn inode(&self, node: u64) -> Option<Arc<Inode>> {
        self.state.lock().inodes.get(&node)?.upgrade()
    }

    fn inode_changed(&self, mut notice: Body<'_>) -> Result<()> {
        let (node, offset, len) = (notice.u64()?, notice.u64()? as i64, notice.u64()?);
        for ticket in self.state.lock().tickets.values_mut().filter(|ticket| ticket.is_waited_for) {
            ticket.changed.insert(node);
        }
        if let Some(inode) = self.inode(node) {
            inode.expire(self.next_version());
            if offset >= 0 {
                let end = if len == 0 { u64::MAX } else { (offset as u64).saturating_add(len) };
                inode.drop_pages(offset as u64..end);
            }
        }
        Ok(())
    }

    fn name_changed(&self, mut notice: Body<'_>) -> Result<()> {
        const EXPIRE_ONLY: u32 = 1;
        let (dir, len, flags) = (notice.u64()?, notice.u32()?, notice.u32()?);
        let name = (dir, notice.slice(len as usize)?.to_vec());
        let dropped = {
            let state = &mut *self.state.lock();
            for ticket in state.tickets.values_mut().filter(|ticket| ticket.dir == dir) {
                ticket.is_waited_for = true;
                ticket.overtaken.insert(name.1.clone());
            }
            match flags & EXPIRE_ONLY {
                0 => state.dentries.remove(&name),
                _ => {
                    let expired = state.dentries.get_mut(&name);
                    expired.into_iter().for_each(|dentry| dentry.valid_until = Instant::default());
                    None
                }
            }
        };
        // Sends FORGET, perhaps.
        drop(dropped);
        if let Some(inode) = self.inode(dir) {
            inode.expire(self.next_version());
        }
        Ok(())
    }

    /// Drops a cached name at random, as under memory pressure.
    pub fn shrink(&self) {
        let dropped = {
            let mut state = self.state.lock();
            let count = state.dentries.len() as u64;
            let at = self.runtime.random_u64().checked_rem(count).unwrap_or(0);
            let victim = state.dentries.keys().nth(at as usize).cloned();
            victim.and_then(|name| state.dentries.remove(&name))
        };
        drop(dropped);
    }

    fn detach(&self) {
        self.state.lock().is_attached = false;
        self.end_if_unused();
    }

    /// Ends the connection of a detached mount without users.
    fn end_if_unused(&self) {
        let dropped = {
            let state = &mut *self.state.lock();
            if state.is_attached || state.users > 0 {
                return;
            }
            // First the connection, so that no FORGET follows.
            let connection = state.connection.take();
            (connection, state.root.take(), std::mem::take(&mut state.dentries))
        };
        drop(dropped);
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.state.lock().users -= 1;
        self.0.end_if_unused();
    }
}

impl simulated::Kernel for Kernel {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn mount(
        &self,
        number: u64,
        dir: &Path,
        options: &MountOptions,
        connection: Connection,
    ) -> Result<(), MountError> {
        let mount = Arc::new_cyclic(|me| {
            let root = Inode::root(me.clone());
            let inodes = BTreeMap::from([(root.node(), Arc::downgrade(&root))]);
            let state = State {
                connection: Some(connection),
                is_attached: true,
                users: 0,
                root: Some(root),
                inodes,
                dentries: BTreeMap::new(),
                tickets: BTreeMap::new(),
                version: 1,
            };
            Mount {
                runtime: self.runtime.clone(),
                dir: dir.to_owned(),
                source: options.source.clone(),
                uniques: AtomicU64::new(2),
                state: state.into(),
            }
        });
        self.mounts.lock().insert(number, mount);
        Ok(())
    }

    fn remount(&self, _mount: u64, _options: &MountOptions) -> Result<(), MountError> {
        Ok(())
    }

    fn is_there(&self, mount: u64) -> bool {
        self.mount(mount).is_some_and(|mount| mount.state.lock().is_attached)
    }

    fn unmount(&self, mount: u64, lazy: bool) -> Result<(), MountError> {
        let Some(mount) = self.mount(mount) else { return Ok(()) };
        if mount.state.lock().users > 0 && !lazy {
            return Err(MountError::Busy { dir: mount.dir.display().to_string(), users: Vec::new() });
        }
        mount.detach();
        Ok(())
    }

    fn abort(&self, mount: u64) {
        let aborted = self.mount(mount).and_then(|mount| mount.state.lock().connection.take());
        drop(aborted);
    }

    fn notify(&self, mount: u64, code: i32, notice: &[u8]) {
        let Some(mount) = self.mount(mount).filter(|_| !self.is_deaf) else { return };
        let taken = match code {
            INVAL_INODE => mount.inode_changed(Body(notice)),
            INVAL_ENTRY => mount.name_changed(Body(notice)),
            _ => Err(Errno::INVAL),
        };
        assert!(taken.is_ok(), "the daemon sent a malformed notice {code}: {notice:?}");
    }
}
