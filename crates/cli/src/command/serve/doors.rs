//! The network protocols that the daemon serves volumes by.
//!
//! Idea: doors are opened before any pool, so that a wrong address is known at once, and let clients in when
//! the pools are open.

use std::path::PathBuf;
use std::sync::Arc;

use cenote_disk::Limits;
use cenote_runtime::{AbortOnDrop, Runtime};
use cenote_serve::listen::{CONNECTIONS_MAX, Door, Place, SocketFile};
use cenote_serve::nbd::NbdServer;
use cenote_serve::pools::Pools;
use cenote_serve::tls::Tls;
use futures::FutureExt;
use tokio::sync::Semaphore;

use super::Serve;
use crate::message::say;
use crate::outcome::CliError;

/// The port that NBD has by default.
const NBD_PORT: u16 = 10809;
/// What requests of all NBD clients hold in memory at most.
const NBD_MEMORY_BYTES: u64 = 256 << 20;

/// Doors that are open, and wait for the pools.
pub struct Doors {
    nbd: Vec<Door>,
    tls: Option<Tls>,
}

/// Opens the doors that were asked for.
pub async fn open(serve: &Serve) -> Result<Doors, CliError> {
    let load = |dir: &PathBuf| Tls::load(dir).map_err(|error| CliError::Usage(format!("--tls: {error}")));
    let tls = serve.tls.as_ref().map(load).transpose()?;
    let mut nbd = Vec::new();
    for typed in &serve.nbd {
        let place = Place::parse(typed, NBD_PORT).map_err(|why| CliError::Usage(format!("--nbd: {why}")))?;
        if !place.is_local() && tls.is_none() && !serve.insecure {
            return Err(CliError::Usage(format!(
                "--nbd {place} lets other machines read and write all volumes: give --tls DIR with \
                 certificates, or --insecure if the network is trusted"
            )));
        }
        let door = Door::open(&place).await;
        nbd.push(door.map_err(|error| CliError::Refused(format!("--nbd {place}: {error}")))?);
    }
    Ok(Doors { nbd, tls })
}

impl Doors {
    /// Lets clients in until what this returns is dropped.
    pub fn let_in(self, runtime: &Runtime, pools: &Arc<Pools>) -> Vec<(AbortOnDrop<()>, SocketFile)> {
        let limits = Limits::new(NBD_MEMORY_BYTES);
        let server = Arc::new(NbdServer { pools: pools.clone(), limits, tls: self.tls });
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let let_in = |door: Door| {
            say!("volumes are at {} by NBD", door.place);
            let (server, serving) = (server.clone(), runtime.clone());
            let serve = Arc::new(move |stream, who: String| {
                let (server, runtime) = (server.clone(), serving.clone());
                async move {
                    if let Err(error) = server.serve(&runtime, stream, &who).await {
                        say!("NBD {who}: {error}");
                    }
                }
                .boxed()
            });
            let socket = door.socket_file();
            let letting_in = door.let_in(runtime.clone(), connections.clone(), serve);
            (runtime.spawn(letting_in).abort_on_drop(), socket)
        };
        self.nbd.into_iter().map(let_in).collect()
    }
}
