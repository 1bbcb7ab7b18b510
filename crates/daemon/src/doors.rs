//! The daemon's network protocols: NBD and iSCSI for volumes, HTTP for the page, the API and metrics.
//!
//! Idea: doors (listening sockets) are bound before any pool opens, so that a wrong address is reported at
//! once, and accept clients when the pools are open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_control::ControlError;
use cenote_disk::{Ended, Limits};
use cenote_host::pools::Pools;
use cenote_http::server::{self, Client};
use cenote_http::{HttpServer, Tokens};
use cenote_iscsi::{Accounts, Luns};
use cenote_runtime::{AbortOnDrop, Runtime};
use cenote_serve::iscsi::{IscsiServer, LunMap, Names, accounts};
use cenote_serve::listen::{self, CONNECTIONS_MAX, ClientLimit, Door, Place, SocketFile, Visitor};
use cenote_serve::nbd::{self, NbdServer};
use cenote_serve::raw::{BadExport, RawExports};
use cenote_serve::socket::Serving;
use cenote_serve::tls::Tls;
use cenote_serve::ublk::UblkServer;
use cenote_serve::vhost::VhostServer;
use cenote_ublk::Server;
use futures::FutureExt;
use futures::future::BoxFuture;

/// NBD's default port.
const NBD_PORT: u16 = 10809;
/// iSCSI's default port.
const ISCSI_PORT: u16 = 3260;
/// HTTP's default port.
const HTTP_PORT: u16 = 8123;
/// Limit of the memory held by the requests of all clients of a protocol.
const MEMORY_BYTES: u64 = 256 << 20;

/// The doors to open, and their clients.
#[derive(Debug, Default)]
pub struct Doors {
    /// Addresses for NBD: HOST:PORT or unix:PATH.
    pub nbd: Vec<String>,
    /// Raw devices to export by NBD: NAME=PATH.
    pub exports: Vec<String>,
    /// Addresses for iSCSI: HOST:PORT.
    pub iscsi: Vec<String>,
    /// The prefix of the names of iSCSI targets.
    pub iscsi_name: Option<String>,
    /// Units of shared iSCSI targets: TARGET:NUMBER=VOLUME.
    pub iscsi_lun: Vec<String>,
    /// File with names and secrets for iSCSI logins.
    pub iscsi_accounts: Option<PathBuf>,
    /// Folder of the sockets for virtual machines.
    pub vhost_user: Option<PathBuf>,
    /// Folder of links to block devices of this machine.
    pub ublk: Option<PathBuf>,
    /// Addresses for HTTP: HOST:PORT or unix:PATH.
    pub http: Vec<String>,
    /// File with the tokens of HTTP clients; none: a new token.
    pub http_tokens: Option<PathBuf>,
    /// Folder with certificates.
    pub tls: Option<PathBuf>,
    /// Limit of concurrent connections of each protocol.
    pub connections: Option<u32>,
    /// Clients need not be known.
    pub insecure: bool,
}

/// Bound doors that wait for the pools.
pub struct Listeners {
    nbd: Vec<Door>,
    raw: RawExports,
    tls: Option<Tls>,
    iscsi: Vec<Door>,
    names: Names,
    map: LunMap,
    accounts: Accounts,
    vhost_user: Option<PathBuf>,
    /// The server of block devices, and the folder of links to them.
    ublk: Option<(Arc<Server>, PathBuf)>,
    http: Vec<Door>,
    tokens: Tokens,
    /// Limit of concurrent connections of each protocol.
    connections: usize,
    say: fn(&str),
}

/// Binds the requested doors. `socket`: the daemon's own.
pub async fn open(
    serve: &Doors,
    runtime: &Runtime,
    socket: &Path,
    say: fn(&str),
) -> Result<Listeners, ControlError> {
    let load = |dir: &PathBuf| Tls::load(dir).map_err(|error| ControlError::Usage(format!("--tls: {error}")));
    let tls = serve.tls.as_ref().map(load).transpose()?;
    let accounts = serve.iscsi_accounts.as_deref().map(|path| {
        let read = accounts::read(path);
        read.map_err(|why| ControlError::Usage(format!("--iscsi-accounts {}: {why}", path.display())))
    });
    let accounts = accounts.transpose()?.unwrap_or_default();
    let mut nbd = Vec::new();
    let knows_clients = tls.as_ref().is_some_and(Tls::asks_clients);
    let wanted = "--tls DIR with certificates, ca-cert.pem among them, by which clients are known";
    let danger = if serve.exports.is_empty() { VOLUMES } else { ALSO_RAW };
    let needs = Needs { danger, is_for_users: true, wanted };
    for typed in &serve.nbd {
        nbd.push(open_one("--nbd", typed, NBD_PORT, knows_clients || serve.insecure, &needs).await?);
    }
    if nbd.is_empty() && !serve.exports.is_empty() {
        return Err(ControlError::Usage("--export needs --nbd ADDRESS, where the devices are served".into()));
    }
    let raw = RawExports::open(&serve.exports, runtime).await;
    let raw = raw.map_err(|why| match why {
        BadExport::Device(_) => ControlError::Refused(format!("--export: {why}")),
        _ => ControlError::Usage(format!("--export: {why}")),
    })?;
    let mut http = Vec::new();
    // A token is needed in any case, and only root can capture packets that stay on this machine.
    let (danger, wanted) = ("see tokens on their way", "--tls DIR with certificates");
    let needs = Needs { danger, is_for_users: false, wanted };
    for typed in &serve.http {
        http.push(open_one("--http", typed, HTTP_PORT, tls.is_some() || serve.insecure, &needs).await?);
    }
    let tokens = tokens(serve, runtime, socket, &http, say)?;
    let names = serve.iscsi_name.as_deref().map(Names::parse).transpose();
    let names = names.map_err(|why| ControlError::Usage(format!("--iscsi-name: {why}")))?.unwrap_or_default();
    let vhost_user = serve.vhost_user.clone();
    if let Some(dir) = &vhost_user {
        std::fs::create_dir_all(dir).map_err(ControlError::io(dir.display().to_string()))?;
    }
    let connections = serve.connections.map_or(CONNECTIONS_MAX, |most| most as usize);
    let ublk = serve.ublk.as_ref().map(|dir| {
        let server = Server::start(runtime, Limits::new(runtime, MEMORY_BYTES, connections));
        let server =
            server.map_err(|why| ControlError::Refused(format!("--ublk {}: {why}", dir.display())))?;
        std::fs::create_dir_all(dir).map_err(ControlError::io(dir.display().to_string()))?;
        Ok::<_, ControlError>((Arc::new(server), dir.clone()))
    });
    let ublk = ublk.transpose()?;
    let map = LunMap::parse(&serve.iscsi_lun);
    let map = map.map_err(|why| ControlError::Usage(format!("--iscsi-lun: {why}")))?;
    let mut iscsi = Vec::new();
    let wanted = "--iscsi-accounts FILE with names and secrets";
    let needs = Needs { danger: VOLUMES, is_for_users: true, wanted };
    for typed in &serve.iscsi {
        if typed.starts_with("unix:") {
            return Err(ControlError::Usage(format!("--iscsi {typed}: iSCSI is spoken over TCP only")));
        }
        let knows_clients = !accounts.initiators.is_empty();
        iscsi.push(open_one("--iscsi", typed, ISCSI_PORT, knows_clients || serve.insecure, &needs).await?);
    }
    Ok(Listeners {
        nbd,
        raw,
        tls,
        iscsi,
        names,
        map,
        accounts,
        vhost_user,
        ublk,
        http,
        tokens,
        connections,
        say,
    })
}

/// The risk of an unprotected door for volumes.
const VOLUMES: &str = "read and write all volumes";
const ALSO_RAW: &str = "read and write all volumes and exported devices";

/// Requirements of a TCP door. A socket in the file system has none: only root and the daemon's user can open
/// it.
struct Needs<'a> {
    /// The risk otherwise.
    danger: &'a str,
    /// Other local users are a risk, too.
    is_for_users: bool,
    wanted: &'a str,
}

/// The tokens for HTTP clients: those of a file, or a new one.
fn tokens(
    serve: &Doors,
    runtime: &Runtime,
    socket: &Path,
    http: &[Door],
    say: fn(&str),
) -> Result<Tokens, ControlError> {
    if let Some(path) = &serve.http_tokens {
        let read = Tokens::read(path);
        return read.map_err(|why| ControlError::Usage(format!("--http-tokens {}: {why}", path.display())));
    }
    if http.iter().all(|door| matches!(door.place, Place::Unix(_))) {
        return Ok(Tokens::default());
    }
    let path = socket.with_file_name("http-token");
    let mut secret = [0; 32];
    runtime.fill_secret(&mut secret);
    let made = Tokens::make(&path, secret).map_err(ControlError::io(path.display().to_string()))?;
    say(&format!("the token for HTTP is in {}", path.display()));
    Ok(made)
}

async fn open_one(
    option: &str,
    typed: &str,
    port: u16,
    is_safe: bool,
    Needs { danger, is_for_users, wanted }: &Needs<'_>,
) -> Result<Door, ControlError> {
    let place = Place::parse(typed, port).map_err(|why| ControlError::Usage(format!("{option}: {why}")))?;
    let unsafe_for = match &place {
        _ if is_safe => None,
        Place::Unix(_) => None,
        place if !place.is_local() => Some(("other machines", "the network is trusted")),
        _ if *is_for_users => Some(("every user of this machine", "all of them are trusted")),
        _ => None,
    };
    if let Some((others, condition)) = unsafe_for {
        let instead = if option == "--nbd" && place.is_local() { "unix:PATH, " } else { "" };
        return Err(ControlError::Usage(format!(
            "{option} {place} lets {others} {danger}: give {instead}{wanted}, or --insecure if {condition}"
        )));
    }
    Door::open(&place).await.map_err(|error| ControlError::Refused(format!("{option} {place}: {error}")))
}

/// Keeps doors open; dropping it closes them.
pub type Open = Vec<(AbortOnDrop<()>, Option<SocketFile>)>;

/// Serves a client until it disconnects.
type Serves = dyn Fn(Runtime, Visitor) -> BoxFuture<'static, Result<(), Ended>> + Send + Sync;

/// A protocol.
struct Protocol {
    name: &'static str,
    /// The resource it serves.
    what: &'static str,
    serves: Box<Serves>,
    /// Tells a client that the limit is reached.
    turns_away: Box<Serves>,
    crowd: Arc<ClientLimit>,
}

impl Listeners {
    /// Accepts clients until the returned value is dropped.
    pub fn let_in(self, runtime: &Runtime, pools: &Arc<Pools>, verbs: Arc<dyn Serving>) -> Open {
        let places = self.iscsi.iter().map(|door| door.place.clone()).collect();
        let (crowd, limits) =
            (|| ClientLimit::new(self.connections), || Limits::new(runtime, MEMORY_BYTES, self.connections));
        let farewell = limits();
        let say = self.say;
        self.raw.names().for_each(|(name, path)| say(&format!("{path} is exported as {name} by NBD")));
        let (raw, tls) = (self.raw, self.tls.clone());
        let nbd = Arc::new(NbdServer { pools: pools.clone(), raw, limits: limits(), tls });
        let nbd = Protocol {
            name: "NBD",
            what: "volumes",
            serves: Box::new(move |runtime, visitor| {
                let server = nbd.clone();
                async move { server.serve(&runtime, visitor).await }.boxed()
            }),
            turns_away: Box::new(move |runtime, visitor| {
                let limits = farewell.clone();
                async move { nbd::turn_away(&runtime, visitor.stream, &limits).await }.boxed()
            }),
            crowd: crowd(),
        };
        let iscsi = Arc::new(IscsiServer {
            pools: pools.clone(),
            names: self.names,
            map: Arc::new(self.map),
            limits: limits(),
            accounts: self.accounts,
            places,
            luns: Luns::default(),
        });
        let iscsi = Protocol {
            name: "iSCSI",
            what: "volumes",
            serves: Box::new(move |runtime, visitor| {
                let server = iscsi.clone();
                async move { server.serve(&runtime, visitor).await }.boxed()
            }),
            turns_away: Box::new(|_, visitor| cenote_iscsi::turn_away(visitor.stream).boxed()),
            crowd: crowd(),
        };
        let mut open = let_in(Arc::new(nbd), self.nbd, runtime, say);
        open.extend(let_in(Arc::new(iscsi), self.iscsi, runtime, say));
        if let Some(dir) = self.vhost_user {
            say(&format!("volumes are in {} by vhost-user", dir.display()));
            let tell = Box::new(move |what: String| say(&what));
            let server = VhostServer { pools: pools.clone(), dir, limits: limits(), tell };
            open.push((runtime.spawn(Arc::new(server).keep(runtime.clone())).abort_on_drop(), None));
        }
        if let Some((server, dir)) = self.ublk {
            say(&format!("volumes are block devices, with links in {}", dir.display()));
            let server = UblkServer::new(pools, dir, server, move |what| say(&what));
            open.push((runtime.spawn(Arc::new(server).keep(runtime.clone())).abort_on_drop(), None));
        }
        if self.http.is_empty() {
            return open;
        }
        let (crowd, has_tls) = (crowd(), self.tls.is_some());
        let http = HttpServer::new(verbs, pools.clone(), self.tokens, self.tls);
        let http = Arc::new(http);
        // Only root and the daemon's user can open a socket in the file system.
        let (owner, anybody) = self.http.into_iter().partition(|door| matches!(door.place, Place::Unix(_)));
        for (doors, client) in [(owner, Client::Owner), (anybody, Client::Anybody)] {
            let server = http.clone();
            let is_silent = has_tls && client == Client::Anybody;
            let http = Protocol {
                name: "HTTP",
                what: "the page, the API and metrics",
                serves: Box::new(move |runtime, visitor| {
                    let server = server.clone();
                    async move {
                        // Browsers often break off connections: not worth a message.
                        server.serve(&runtime, visitor.stream, client, visitor.stranger).await.ok();
                        Ok(())
                    }
                    .boxed()
                }),
                turns_away: Box::new(move |_, visitor| {
                    async move {
                        // Without TLS, clients that expect it can't be sent a message.
                        if !is_silent {
                            server::turn_away(visitor.stream).await.ok();
                        }
                        Ok(())
                    }
                    .boxed()
                }),
                crowd: crowd.clone(),
            };
            open.extend(let_in(Arc::new(http), doors, runtime, say));
        }
        open
    }
}

fn let_in(protocol: Arc<Protocol>, doors: Vec<Door>, runtime: &Runtime, say: fn(&str)) -> Open {
    let let_in = |door: Door| {
        say(&format!("{} are at {} by {}", protocol.what, door.place, protocol.name));
        let serve: Arc<listen::Serve> = {
            let (protocol, runtime) = (protocol.clone(), runtime.clone());
            Arc::new(move |visitor: Visitor| {
                let (name, who) = (protocol.name, visitor.who.clone());
                let served = (protocol.serves)(runtime.clone(), visitor);
                async move {
                    if let Err(error) = served.await {
                        say(&format!("{name} {who}: {error}"));
                    }
                }
                .boxed()
            })
        };
        let turn_away: Arc<listen::Serve> = {
            let (protocol, runtime) = (protocol.clone(), runtime.clone());
            Arc::new(move |visitor| (protocol.turns_away)(runtime.clone(), visitor).map(drop).boxed())
        };
        let socket = door.socket_file();
        let letting_in = door.let_in(runtime.clone(), protocol.crowd.clone(), serve, turn_away);
        (runtime.spawn(letting_in).abort_on_drop(), Some(socket))
    };
    doors.into_iter().map(let_in).collect()
}
