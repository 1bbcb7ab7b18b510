//! The network protocols that the daemon serves: NBD for volumes, HTTP for the page, the API and metrics.
//!
//! Idea: doors are opened before any pool, so that a wrong address is known at once, and let clients in when
//! the pools are open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_http::server::Client;
use cenote_http::{HttpServer, Tokens};
use cenote_nbd::Limits;
use cenote_runtime::{AbortOnDrop, Runtime};
use cenote_serve::listen::{self, CONNECTIONS_MAX, Door, Place, SocketFile};
use cenote_serve::nbd::NbdServer;
use cenote_serve::pools::Pools;
use cenote_serve::tls::Tls;
use futures::FutureExt;
use tokio::sync::Semaphore;

use super::{Serve, api};
use crate::daemon::Commands;
use crate::message::say;
use crate::outcome::CliError;

/// The port that NBD has by default.
const NBD_PORT: u16 = 10809;
/// The port that HTTP has by default.
const HTTP_PORT: u16 = 8123;
/// What requests of all NBD clients hold in memory at most.
const NBD_MEMORY_BYTES: u64 = 256 << 20;

/// Doors that are open, and wait for the pools.
pub struct Doors {
    nbd: Vec<Door>,
    nbd_tls: Option<Tls>,
    http: Vec<Door>,
    http_tls: Option<Tls>,
    tokens: Tokens,
}

/// Opens the doors that were asked for. `socket`: the daemon's own.
pub async fn open(serve: &Serve, runtime: &Runtime, socket: &Path) -> Result<Doors, CliError> {
    let load = |dir: &PathBuf| Tls::load(dir).map_err(|error| CliError::Usage(format!("--tls: {error}")));
    let tls = || serve.tls.as_ref().map(load).transpose();
    let (nbd_tls, http_tls) = (tls()?, tls()?);
    let nbd = open_all(serve, "--nbd", &serve.nbd, NBD_PORT, "read and write all volumes").await?;
    let http = open_all(serve, "--http", &serve.http, HTTP_PORT, "see tokens on their way").await?;
    let tokens = match &serve.http_tokens {
        Some(path) => Tokens::read(path)
            .map_err(|why| CliError::Usage(format!("--http-tokens {}: {why}", path.display())))?,
        None if http.iter().any(|door| matches!(door.place, Place::Tcp(_))) => {
            let path = socket.with_file_name("http-token");
            let mut secret = [0; 32];
            runtime.fill_secret(&mut secret);
            let made = Tokens::make(&path, secret).map_err(CliError::io(path.display().to_string()))?;
            say!("the token for HTTP is in {}", path.display());
            made
        }
        None => Tokens::default(),
    };
    Ok(Doors { nbd, nbd_tls, http, http_tls, tokens })
}

/// Opens the doors of one protocol. `danger`: what others could do there.
async fn open_all(
    serve: &Serve,
    option: &str,
    typed: &[String],
    port: u16,
    danger: &str,
) -> Result<Vec<Door>, CliError> {
    let mut doors = Vec::new();
    for typed in typed {
        let place = Place::parse(typed, port).map_err(|why| CliError::Usage(format!("{option}: {why}")))?;
        if !place.is_local() && serve.tls.is_none() && !serve.insecure {
            return Err(CliError::Usage(format!(
                "{option} {place} lets other machines {danger}: give --tls DIR with certificates, or \
                 --insecure if the network is trusted"
            )));
        }
        let door = Door::open(&place).await;
        doors.push(door.map_err(|error| CliError::Refused(format!("{option} {place}: {error}")))?);
    }
    Ok(doors)
}

/// What keeps doors open; dropped, they are shut.
pub type Open = Vec<(AbortOnDrop<()>, SocketFile)>;

impl Doors {
    /// Lets clients in until what this returns is dropped.
    pub fn let_in(self, runtime: &Runtime, pools: &Arc<Pools>, commands: Arc<Commands>) -> Open {
        let limits = Limits::new(NBD_MEMORY_BYTES);
        let nbd = Arc::new(NbdServer { pools: pools.clone(), limits, tls: self.nbd_tls });
        let catalogue = if self.http.is_empty() { Default::default() } else { api::catalogue() };
        let http = HttpServer::new(commands, pools.clone(), catalogue, self.tokens, self.http_tls);
        let http = Arc::new(http);
        let mut open = Vec::new();
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        for door in self.nbd {
            say!("volumes are at {} by NBD", door.place);
            let (server, serving) = (nbd.clone(), runtime.clone());
            open.push(let_in(runtime, door, &connections, move |stream, who| {
                let (server, runtime) = (server.clone(), serving.clone());
                async move {
                    if let Err(error) = server.serve(&runtime, stream, &who).await {
                        say!("NBD {who}: {error}");
                    }
                }
                .boxed()
            }));
        }
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        for door in self.http {
            let client = match &door.place {
                Place::Unix(_) => Client::Owner,
                Place::Tcp(_) => Client::Anybody,
            };
            say!("the page, the API and metrics are at {} by HTTP", door.place);
            let (server, serving) = (http.clone(), runtime.clone());
            open.push(let_in(runtime, door, &connections, move |stream, _| {
                let (server, runtime) = (server.clone(), serving.clone());
                // Browsers break connections off all the time: not worth a word.
                async move { _ = server.serve(&runtime, stream, client).await }.boxed()
            }));
        }
        open
    }
}

fn let_in(
    runtime: &Runtime,
    door: Door,
    connections: &Arc<Semaphore>,
    serve: impl Fn(Box<dyn cenote_nbd::Stream>, String) -> futures::future::BoxFuture<'static, ()>
    + Send
    + Sync
    + 'static,
) -> (AbortOnDrop<()>, SocketFile) {
    let serve: Arc<listen::Serve> = Arc::new(serve);
    let socket = door.socket_file();
    let letting_in = door.let_in(runtime.clone(), connections.clone(), serve);
    (runtime.spawn(letting_in).abort_on_drop(), socket)
}
