//! Where clients of network protocols come in.
//!
//! ```text
//!   Place: address, or unix:PATH --> Door, bound --> each connection: a task, until the daemon ends
//! ```
//!
//! A place is bound only if what is served there is safe, which the caller says. Sockets in the file system
//! are for the daemon's user and root.
//!
//! Every client has an origin, by which shares are counted: its user, if it is on this machine, or its
//! address. Memory: connections are counted ([`Crowd`]). Those beyond the most are told so, a few at a time,
//! and the rest are closed at once.

mod crowd;
mod owner;

pub use crowd::{CONNECTIONS_MAX, Crowd};

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

/// Clients of a socket in the file system that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Wait after an accept that failed: this process may have too many files open.
const BREATHER: Duration = Duration::from_millis(100);

/// How long a client may be silent before it is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// When one that does not answer, not even that it has got what was sent, is taken for gone.
const GONE: Duration = Duration::from_secs(180);
/// How long it may take to tell a client that there is no room.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a client is told for whom there is no room.
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
    /// Reads what an administrator typed: `HOST:PORT`, `HOST` or `:PORT` as numbers, or `unix:PATH`.
    ///
    /// # Errors
    /// It is none of these; the text says what is wanted.
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

    /// Whether only programs of this machine get there.
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

/// A place where clients come in.
pub struct Door {
    listener: Listener,
    /// Where it is; with the port that the system chose, if it was 0.
    pub place: Place,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A client that has come in.
pub struct Visitor {
    /// What it talks through.
    pub stream: Box<dyn Stream>,
    /// Who and where it is, for people.
    pub who: String,
    /// Where it comes from; none: it is root's or the daemon's user's, and needs no share.
    pub stranger: Option<Origin>,
    /// Where it came in.
    pub here: Place,
}

/// What is done with a client.
pub type Serve = dyn Fn(Visitor) -> BoxFuture<'static, ()> + Send + Sync;

impl Door {
    /// Opens a door. What a dead process left of a socket is taken away.
    ///
    /// # Errors
    /// The place is in use, or not this machine's.
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

    /// What takes its socket away, if it has one.
    pub fn socket_file(&self) -> SocketFile {
        SocketFile(self.place.clone())
    }

    /// Lets clients in until this is dropped; those who are in stay. Who finds no room is given to
    /// `turn_away`, for a short time.
    pub async fn let_in(self, runtime: Runtime, crowd: Arc<Crowd>, serve: Arc<Serve>, turn_away: Arc<Serve>) {
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
            // Otherwise the door is shut in the client's face.
        }
    }

    /// The next client; none: it has gone already.
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
    // A host that lost power would keep its volume, and the pool, for ever.
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

/// Where a client comes from that needs a share.
pub(crate) fn stranger(from: Origin) -> Option<Origin> {
    Some(from).filter(|from| !matches!(from, Origin::User(uid) if is_trusted(*uid)))
}

/// Takes the socket of a place in the file system away when it is dropped.
pub struct SocketFile(Place);

impl SocketFile {
    /// That of a place.
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

/// Takes away a socket at which nobody listens.
pub(crate) fn remove_dead(path: &Path) {
    if matches!(UnixStream::connect(path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path).ok();
    }
}

/// A socket at a path that only this process's user and root can open, from its first moment: Linux gives the
/// file the mode that the socket has when it is bound.
///
/// # Errors
/// Something is there, or nothing can be made there.
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
