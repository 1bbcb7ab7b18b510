//! Serves volumes to virtual machines by vhost-user-blk, with one socket each: `DIR/POOL/VOLUME`; visible
//! snapshots at `DIR/POOL/VOLUME@SNAPSHOT`.
//!
//! ```text
//!   volumes, listed periodically --> a socket each --> one machine at a time: ServedDisk
//! ```
//!
//! Only the daemon's user and root can use the sockets and the rest of the folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cenote_disk::{Disk, Limits};
use cenote_iscsi::{Identity, Unit};
use cenote_runtime::{AbortOnDrop, Runtime};
use cenote_vhost::{Connection, Disconnect};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use crate::disk::ServedDisk;
use crate::listen::{Place, SocketFile, private_socket, remove_dead};
use cenote_host::cancel::Cancel;
use cenote_host::pools::Pools;
use cenote_host::volumes::{LOOK, Unserved, Watch, path_below};

/// Wait after a machine that could not be served: this process may have too many files open.
const BREATHER: Duration = Duration::from_millis(100);

/// Serves volumes to virtual machines.
pub struct VhostServer {
    /// Pools.
    pub pools: Arc<Pools>,
    /// Folder of sockets.
    pub dir: PathBuf,
    /// Limits per machine.
    pub limits: Limits,
    /// Reports problems to the administrator.
    pub tell: Box<dyn Fn(String) + Send + Sync>,
}

struct Ends(Disconnect);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.disconnect();
    }
}

impl VhostServer {
    /// Keeps a socket for each volume until dropped.
    pub async fn keep(self: Arc<VhostServer>, runtime: Runtime) {
        let mut sockets: BTreeMap<String, Option<AbortOnDrop<()>>> = BTreeMap::new();
        let mut watch = Watch::new(&self.pools);
        loop {
            if let Some(all) = watch.look(false).await {
                let names: BTreeSet<String> = all.into_iter().map(|volume| volume.name).collect();
                sockets.retain(|name, _| names.contains(name));
                for name in names {
                    sockets.entry(name).or_insert_with_key(|name| self.open(&runtime, name));
                }
            }
            runtime.sleep(LOOK).await;
        }
    }

    /// Serves a volume; none if its socket can't be made.
    fn open(self: &Arc<VhostServer>, runtime: &Runtime, name: &str) -> Option<AbortOnDrop<()>> {
        match self.listen(name) {
            Ok((listener, file)) => {
                let (server, serving, name) = (self.clone(), runtime.clone(), name.to_owned());
                let serve = async move { server.serve(&serving, &name, listener, file).await };
                Some(runtime.spawn(serve).abort_on_drop())
            }
            Err(error) => {
                (self.tell)(format!("no socket for {name}: {error}"));
                None
            }
        }
    }

    fn listen(&self, name: &str) -> io::Result<(Bell, SocketFile)> {
        let path = path_below(&self.dir, name).ok_or(io::ErrorKind::InvalidInput)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        remove_dead(&path);
        let listener = private_socket(&path)?;
        let file = SocketFile::of(Place::Unix(path));
        Ok((Bell::of(listener)?, file))
    }

    async fn serve(&self, runtime: &Runtime, name: &str, bell: Bell, _file: SocketFile) {
        while bell.rings().await.is_ok() {
            if let Err(why) = self.serve_one(runtime, name, &bell.listener).await {
                (self.tell)(format!("vhost-user {name}: {why}"));
                // Disconnect instead of letting it wait. Without descriptors that fails: try again later.
                drop(bell.listener.accept());
                runtime.sleep(BREATHER).await;
            }
        }
    }

    /// The disk of a machine, and its serial number. `cancel` tells that the machine must go.
    ///
    /// # Errors
    /// No such volume, or it is not served.
    pub async fn disk(&self, name: &str, cancel: &Cancel) -> Result<(Arc<dyn Disk>, String), Unserved> {
        let disk = ServedDisk::open(&self.pools, name, "a virtual machine (vhost-user)", cancel).await?;
        let Identity { serial, .. } = disk.identity();
        Ok((disk, serial))
    }

    async fn serve_one(&self, runtime: &Runtime, name: &str, listener: &UnixListener) -> Result<(), String> {
        let cancel = Cancel::default();
        let (volume, serial) = self.disk(name, &cancel).await.map_err(|error| error.to_string())?;
        let listener = listener.try_clone().map_err(|error| error.to_string())?;
        let connection = Connection::accept(listener, volume, &serial, runtime, &self.limits);
        let connection = connection.map_err(|error| error.to_string())?;
        let ends = Ends(connection.disconnect());
        let (ended, mut end) = oneshot::channel::<()>();
        let waiting = std::thread::Builder::new().name("vhost-user".into()).spawn(move || {
            connection.wait();
            drop(ended);
        });
        waiting.map_err(|error| error.to_string())?;
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                drop(ends);
                (&mut end).await.ok();
            }
            _ = &mut end => {}
        }
        Ok(())
    }
}

/// A socket that reports a pending client; the library accepts it.
struct Bell {
    listener: UnixListener,
    /// The same socket, for polling only: as a stream the runtime can wait for it without accepting. It is
    /// never read.
    watched: UnixStream,
}

impl Bell {
    fn of(listener: UnixListener) -> io::Result<Bell> {
        listener.set_nonblocking(true)?;
        let watched = OwnedFd::from(listener.try_clone()?);
        Ok(Bell { listener, watched: UnixStream::from_std(watched.into())? })
    }

    async fn rings(&self) -> io::Result<()> {
        loop {
            self.watched.readable().await?;
            let look = || match is_waiting(&self.listener) {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
            match self.watched.try_io(Interest::READABLE, look) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                rings => return rings,
            }
        }
    }
}

fn is_waiting(listener: &UnixListener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
