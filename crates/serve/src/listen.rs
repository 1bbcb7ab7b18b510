//! Accepts clients of network protocols.
//!
//! ```text
//!   Place: address, or unix:PATH --> Door, bound --> each connection: a task, until the daemon ends
//! ```
//!
//! The caller binds a place only if its service is safe there. Sockets in the file system are for the
//! daemon's user and root.
//!
//! Every client has an origin, the unit for shares: its user, if on this machine, otherwise its address.
//! Memory: connections are limited ([`ClientLimit`]). A few excess clients at a time get a message; the rest
//! are closed at once.

mod client_limit;
mod owner;

pub use client_limit::{CONNECTIONS_MAX, ClientLimit};

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::{self, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cenote_disk::{Origin, Stream};
use cenote_host::own::is_trusted;
use cenote_runtime::Runtime;
use futures::future::BoxFuture;
use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use tokio::net::{TcpListener, TcpStream, UnixListener};

/// Pending clients of a socket in the file system.
const BACKLOG: i32 = 1024;
/// Wait after a failed accept: this process may have too many files open.
const BREATHER: Duration = Duration::from_millis(100);

/// Silence before a keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// A client that acknowledges nothing for this long counts as gone.
const GONE: Duration = Duration::from_secs(180);
/// Time limit for telling a client that there is no room.
const FAREWELL: Duration = Duration::from_secs(2);

/// The message to excess clients.
pub const NO_ROOM: &str = "too many clients are connected; try again later";

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Address and port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Place {
    /// Parses `HOST:PORT`, `HOST` or `:PORT` as numbers, or `unix:PATH`.
    ///
    /// # Errors
    /// Another form; the text names the valid ones.
    pub fn parse(typed: &str, port: u16) -> Result<Place, String> {
        if let Some(path) = typed.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("unix: needs a path".into())
            } else {
                Ok(Place::Unix(path.into()))
            };
        }
        let host = typed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(typed);
        if let Ok(host) = IpAddr::from_str(host) {
            return Ok(Place::Tcp(SocketAddr::new(host, port)));
        }
        if let Some(port) = typed.strip_prefix(':').and_then(|port| port.parse().ok()) {
            return Ok(Place::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        match typed.strip_prefix("localhost") {
            Some("") => return Ok(Place::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))),
            Some(rest) if rest.starts_with(':') => return Place::parse(rest, port),
            _ => {}
        }
        let wanted = "is no address: 127.0.0.1:10809, [::1]:10809, :10809 or unix:/run/some.sock";
        typed.parse().map(Place::Tcp).map_err(|_| format!("'{typed}' {wanted}"))
    }

    /// Whether only programs of this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Place::Tcp(address) => address.ip().is_loopback(),
            Place::Unix(_) => true,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Tcp(address) => write!(f, "{address}"),
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A bound place.
pub struct Door {
    listener: Listener,
    /// Its place; with the system's choice for port 0.
    pub place: Place,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// An accepted client.
pub struct Visitor {
    /// Connection.
    pub stream: Box<dyn Stream>,
    /// Readable description.
    pub who: String,
    /// Its origin; none: root or the daemon's user, exempt from shares.
    pub stranger: Option<Origin>,
    /// The place it connected to.
    pub here: Place,
}

/// Serves a client.
pub type Serve = dyn Fn(Visitor) -> BoxFuture<'static, ()> + Send + Sync;

impl Door {
    /// Binds a place. Removes the socket of a dead process.
    ///
    /// # Errors
    /// The place is in use, or not on this machine.
    pub async fn open(place: &Place) -> io::Result<Door> {
        match place {
            Place::Tcp(address) => {
                let listener = TcpListener::bind(address).await?;
                let place = Place::Tcp(listener.local_addr()?);
                Ok(Door { listener: Listener::Tcp(listener), place })
            }
            Place::Unix(path) => {
                remove_dead(path);
                let listener = private_socket(path)?;
                listener.set_nonblocking(true)?;
                let listener = UnixListener::from_std(listener)?;
                Ok(Door { listener: Listener::Unix(listener), place: place.clone() })
            }
        }
    }

    /// Removes its socket on drop, if it has one.
    pub fn socket_file(&self) -> SocketFile {
        SocketFile(self.place.clone())
    }

    /// Accepts clients until dropped; accepted ones stay. Excess clients go to `turn_away`, for a short time.
    pub async fn let_in(
        self,
        runtime: Runtime,
        crowd: Arc<ClientLimit>,
        serve: Arc<Serve>,
        turn_away: Arc<Serve>,
    ) {
        loop {
            let visitor = match self.accept().await {
                Ok(Some(come)) => come,
                Ok(None) => continue,
                Err(_) => {
                    runtime.sleep(BREATHER).await;
                    continue;
                }
            };
            if let Some(room) = crowd.enter(visitor.stranger) {
                let serving = serve(visitor);
                runtime.spawn(async move { (serving.await, drop(room)) }).detach();
            } else if let Some(room) = crowd.be_turned_away() {
                let (farewell, timer) = (turn_away(visitor), runtime.clone());
                let farewell = async move { (timer.timeout(FAREWELL, farewell).await.ok(), drop(room)) };
                runtime.spawn(farewell).detach();
            }
            // Other excess clients are disconnected.
        }
    }

    /// The next client; none: it has disconnected already.
    async fn accept(&self) -> io::Result<Option<Visitor>> {
        match &self.listener {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(of_tcp(stream, address).ok())
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(self.of_unix(stream).ok())
            }
        }
    }

    fn of_unix(&self, stream: tokio::net::UnixStream) -> io::Result<Visitor> {
        let peer = stream.peer_cred()?;
        let who = peer.pid().map_or_else(|| "a local process".into(), |pid| format!("process {pid}"));
        let (stream, stranger) = (Box::new(stream), stranger(Origin::User(peer.uid())));
        Ok(Visitor { stream, who, stranger, here: self.place.clone() })
    }
}

fn of_tcp(stream: TcpStream, address: SocketAddr) -> io::Result<Visitor> {
    stream.set_nodelay(true)?;
    // Otherwise a host that lost power would keep its volume, and the pool, forever.
    set_socket_keepalive(&stream, true)?;
    set_tcp_keepidle(&stream, KEEPALIVE)?;
    set_tcp_keepintvl(&stream, KEEPALIVE / 4)?;
    set_tcp_user_timeout(&stream, GONE.as_millis() as u32)?;
    let here = stream.local_addr()?;
    let user = owner::of_client(address, here).map(Origin::User);
    let from = user.unwrap_or_else(|| Origin::at(address.ip()));
    let (stream, who) = (Box::new(stream), address.to_string());
    Ok(Visitor { stream, who, stranger: stranger(from), here: Place::Tcp(here) })
}

/// The origin of a client that needs a share.
pub(crate) fn stranger(from: Origin) -> Option<Origin> {
    Some(from).filter(|from| !matches!(from, Origin::User(uid) if is_trusted(*uid)))
}

/// Removes a place's socket file on drop.
pub struct SocketFile(Place);

impl SocketFile {
    pub(crate) fn of(place: Place) -> SocketFile {
        SocketFile(place)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Place::Unix(path) = &self.0 {
            std::fs::remove_file(path).ok();
        }
    }
}

/// Removes a socket without a listener.
pub(crate) fn remove_dead(path: &Path) {
    if matches!(UnixStream::connect(path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path).ok();
    }
}

/// A socket that only this process's user and root can ever open: Linux gives the file the socket's mode at
/// bind.
///
/// # Errors
/// The path exists, or can't be created.
pub(crate) fn private_socket(path: &Path) -> io::Result<net::UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn places_are_read_as_they_are_typed() {
        let tcp = |typed: &str| Place::parse(typed, 10809).unwrap().to_string();
        assert_eq!(tcp("127.0.0.1"), "127.0.0.1:10809");
        assert_eq!(tcp(":7"), "127.0.0.1:7");
        assert_eq!(tcp("localhost"), "127.0.0.1:10809");
        assert_eq!(tcp("localhost:9"), "127.0.0.1:9");
        assert_eq!(tcp("[::1]"), "[::1]:10809");
        assert_eq!(tcp("[::]:5"), "[::]:5");
        assert_eq!(tcp("unix:/run/x"), "unix:/run/x");
        assert!(Place::parse("0.0.0.0", 1).is_ok_and(|place| !place.is_local()));
        assert!(Place::parse("::1", 1).is_ok_and(|place| place.is_local()));
        assert!(Place::parse("nonsense", 1).is_err() && Place::parse("unix:", 1).is_err());
    }

    #[test]
    fn a_private_socket_is_born_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _socket = private_socket(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(private_socket(&path).is_err(), "something is there");
    }
}
