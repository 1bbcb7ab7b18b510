//! Connections to servers: TCP and sockets of this machine, with TLS on demand.
//!
//! A dead network is noticed by the kernel: data not acknowledged for [`UNACKNOWLEDGED`] ends a connection,
//! and so does an idle one that no longer answers probes.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cenote_device::place::{NbdPlace, NbdServer};
use cenote_disk::Stream;
use cenote_runtime::Runtime;
use futures::future::BoxFuture;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout,
};
use tokio::net::{TcpStream, UnixStream};

use crate::error::ServerError;
use crate::tls::Tls;

/// Data without an acknowledgement for this long ends a connection: time remains for another one.
const UNACKNOWLEDGED: Duration = Duration::from_secs(4);
/// Silence before the kernel probes an idle connection, and between probes.
const PROBE: Duration = Duration::from_secs(1);
/// Unanswered probes that end it.
const PROBES: u32 = 3;

/// A connection being made.
pub type Connecting<'a> = BoxFuture<'a, io::Result<Box<dyn Stream>>>;

/// A way to a server.
pub trait Dial: Send + Sync {
    /// Connects.
    fn dial(&self) -> Connecting<'_>;

    /// Starts TLS on a connection.
    fn secure(&self, stream: Box<dyn Stream>) -> Connecting<'_> {
        Box::pin(std::future::ready(Ok(stream)))
    }

    /// Whether connections are within TLS.
    fn is_tls(&self) -> bool {
        false
    }

    /// The machine that fails as one; `None`: this one.
    fn domain(&self) -> Option<Arc<str>> {
        None
    }

    /// Whether users other than root, this program's own and the server's could write to the disk.
    fn others_may_write(&self) -> bool {
        true
    }
}

/// A server's address.
pub(crate) struct Server {
    address: NbdServer,
    tls: Option<Tls>,
    /// Only trusted users can connect to its socket.
    is_private: bool,
}

impl Server {
    /// Over the network, without TLS.
    pub(crate) fn plain(host: &str, port: u16) -> Server {
        Server { address: NbdServer::Tcp { host: host.into(), port }, tls: None, is_private: false }
    }

    /// # Errors
    /// The certificates for a server within TLS are unusable.
    pub(crate) async fn of(place: &NbdPlace, runtime: &Runtime) -> Result<Server, ServerError> {
        let wanted = place.clone();
        let load = move || {
            let tls = match (&wanted.server, wanted.is_tls) {
                (NbdServer::Tcp { host, .. }, true) => Some(Tls::load(wanted.certificates.as_deref(), host)?),
                _ => None,
            };
            let is_private = matches!(&wanted.server, NbdServer::Unix(path) if is_private(path));
            Ok(Server { address: wanted.server, tls, is_private })
        };
        runtime.blocking(load).await
    }
}

impl Dial for Server {
    fn dial(&self) -> Connecting<'_> {
        Box::pin(async move {
            match &self.address {
                NbdServer::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?) as Box<dyn Stream>),
                NbdServer::Tcp { host, port } => {
                    let stream = TcpStream::connect((&**host, *port)).await?;
                    stream.set_nodelay(true)?;
                    set_socket_keepalive(&stream, true)?;
                    set_tcp_keepidle(&stream, PROBE)?;
                    set_tcp_keepintvl(&stream, PROBE)?;
                    set_tcp_keepcnt(&stream, PROBES)?;
                    set_tcp_user_timeout(&stream, UNACKNOWLEDGED.as_millis() as u32)?;
                    Ok(Box::new(stream) as Box<dyn Stream>)
                }
            }
        })
    }

    fn secure(&self, stream: Box<dyn Stream>) -> Connecting<'_> {
        match &self.tls {
            Some(tls) => Box::pin(tls.start(stream)),
            None => Box::pin(std::future::ready(Ok(stream))),
        }
    }

    fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    fn domain(&self) -> Option<Arc<str>> {
        match &self.address {
            NbdServer::Tcp { host, .. } => Some(host.as_str().into()),
            NbdServer::Unix(_) => None,
        }
    }

    fn others_may_write(&self) -> bool {
        let is_known = self.tls.as_ref().is_some_and(Tls::names_client);
        !is_known && !self.is_private
    }
}

/// Whether only root and this program's user can connect to a socket.
fn is_private(socket: &Path) -> bool {
    let is_trusted = |uid| uid == 0 || uid == rustix::process::geteuid().as_raw();
    std::fs::metadata(socket).is_ok_and(|found| is_trusted(found.uid()) && found.mode() & 0o022 == 0)
}
