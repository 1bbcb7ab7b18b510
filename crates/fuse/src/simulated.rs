//! The kernel of a simulated machine: it mounts, sends requests and takes notices, all in the kernel's bytes.
//!
//! ```text
//!   program of the world --> kernel (a part of the simulated machine) -- bytes --> Connection --> impl Vfs
//!                               ^-------------------- notices ---------------------- Notifier
//! ```
//!
//! Idea: a session without `/dev/fuse` differs from a real one in its transport only: the same code parses,
//! dispatches, counts and pauses requests. Each is its own task, which the simulator orders.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cenote_runtime::Runtime;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;

use crate::mount::{MountError, MountOptions, Mounted};
use crate::request::Request;
use crate::session::{Session, dispatch};
use crate::traffic::Traffic;
use crate::vfs::{Errno, Result, Vfs};
use crate::waiting::Waiting;

/// A kernel that a simulated machine has instead of the host's ([`Runtime::equip`] with a
/// [`SimulatedKernel`]).
pub trait Kernel: Send + Sync + 'static {
    /// A number for a new mount.
    fn number(&self) -> u64;

    /// Mounts on a directory, which exists.
    ///
    /// # Errors
    /// As the kernel likes.
    fn mount(
        &self,
        mount: u64,
        dir: &Path,
        options: &MountOptions,
        connection: Connection,
    ) -> Result<(), MountError>;

    /// Changes a mount's options.
    ///
    /// # Errors
    /// As the kernel likes.
    fn remount(&self, mount: u64, options: &MountOptions) -> Result<(), MountError>;

    /// Whether it is attached.
    fn is_there(&self, mount: u64) -> bool;

    /// Unmounts. `lazy`: detaches it now; its connection ends with its last user.
    ///
    /// # Errors
    /// It is in use.
    fn unmount(&self, mount: u64, lazy: bool) -> Result<(), MountError>;

    /// Ends the connection: users get an error.
    fn abort(&self, mount: u64);

    /// Takes a notice: its `fuse_notify_code`, and the bytes after the header.
    fn notify(&self, mount: u64, code: i32, notice: &[u8]);
}

/// The simulated machine's kernel.
#[derive(Clone)]
pub struct SimulatedKernel(pub Arc<dyn Kernel>);

impl std::ops::Deref for SimulatedKernel {
    type Target = dyn Kernel;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for SimulatedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedKernel")
    }
}

type Answer = BoxFuture<'static, Option<Result<Vec<u8>>>>;

/// The kernel's end of a session, which ends when this is dropped.
#[derive(Clone)]
pub struct Connection {
    serve: Arc<dyn Fn(Bytes) -> Answer + Send + Sync>,
    _alive: Arc<oneshot::Sender<()>>,
}

impl Connection {
    pub(crate) fn new<V: Vfs>(
        runtime: &Runtime,
        vfs: V,
        traffic: Arc<Traffic>,
        alive: oneshot::Sender<()>,
    ) -> Connection {
        let (vfs, waiting, runtime) = (Arc::new(vfs), Arc::<Waiting>::default(), runtime.clone());
        let serve = move |request: Bytes| {
            let (vfs, waiting, traffic) = (vfs.clone(), waiting.clone(), traffic.clone());
            let operation = runtime.spawn(async move {
                let _underway = traffic.begin().await;
                let request = Request::parse(request)?;
                let reply = dispatch::dispatch(&*vfs, &waiting, &request).await?;
                Some(reply.map(|reply| reply.parts().collect::<Vec<_>>().concat()))
            });
            // A panic answers EIO, as in a real session.
            async move { operation.await.unwrap_or(Some(Err(Errno::IO))) }.boxed()
        };
        Connection { serve: Arc::new(serve), _alive: Arc::new(alive) }
    }

    /// Sends a request. Returns the bytes after the reply's header; `None`: malformed, or without a reply.
    pub fn send(&self, request: Bytes) -> Answer {
        (self.serve)(request)
    }
}

/// Mounts `vfs` in the simulated machine, if `runtime` is one that has a kernel.
pub(crate) fn mounted<V: Vfs + Clone>(
    runtime: &Runtime,
    vfs: &V,
    dir: &Path,
    options: &MountOptions,
) -> Option<Result<(Mounted, Session), MountError>> {
    let kernel = (*runtime.part::<SimulatedKernel>()?).clone();
    let mount = kernel.number();
    let (session, connection) = Session::simulated(runtime, kernel.clone(), mount, vfs.clone());
    let made = kernel.mount(mount, dir, options, connection);
    Some(made.map(|()| (Mounted::simulated(dir, kernel, mount), session)))
}
