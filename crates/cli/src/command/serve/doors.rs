//! The network protocols that the daemon serves volumes by.
//!
//! Idea: doors are opened before any pool, so that a wrong address is known at once, and let clients in when
//! the pools are open.

use std::path::PathBuf;
use std::sync::Arc;

use cenote_disk::{Ended, Limits};
use cenote_iscsi::{Accounts, Luns};
use cenote_runtime::{AbortOnDrop, Runtime};
use cenote_serve::iscsi::IscsiServer;
use cenote_serve::listen::{CONNECTIONS_MAX, Door, Place, Serve as Serving, SocketFile, Visitor};
use cenote_serve::nbd::NbdServer;
use cenote_serve::pools::Pools;
use cenote_serve::tls::Tls;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use super::{Serve, accounts};
use crate::message::say;
use crate::outcome::CliError;

/// The port that NBD has by default.
const NBD_PORT: u16 = 10809;
/// The port that iSCSI has by default.
const ISCSI_PORT: u16 = 3260;
/// What requests of all clients of a protocol hold in memory at most.
const MEMORY_BYTES: u64 = 256 << 20;

/// Doors that are open, and wait for the pools.
pub struct Doors {
    nbd: Vec<Door>,
    tls: Option<Tls>,
    iscsi: Vec<Door>,
    accounts: Accounts,
}

/// Opens the doors that were asked for.
pub async fn open(serve: &Serve) -> Result<Doors, CliError> {
    let load = |dir: &PathBuf| Tls::load(dir).map_err(|error| CliError::Usage(format!("--tls: {error}")));
    let tls = serve.tls.as_ref().map(load).transpose()?;
    let accounts = serve.iscsi_accounts.as_deref().map(accounts::read).transpose()?.unwrap_or_default();
    let mut nbd = Vec::new();
    for typed in &serve.nbd {
        let is_safe = tls.is_some() || serve.insecure;
        nbd.push(open_one("--nbd", typed, NBD_PORT, is_safe, "--tls DIR with certificates").await?);
    }
    let mut iscsi = Vec::new();
    for typed in &serve.iscsi {
        if typed.starts_with("unix:") {
            return Err(CliError::Usage(format!("--iscsi {typed}: iSCSI is spoken over TCP only")));
        }
        let is_safe = !accounts.initiators.is_empty() || serve.insecure;
        let instead = "--iscsi-accounts FILE with names and secrets";
        iscsi.push(open_one("--iscsi", typed, ISCSI_PORT, is_safe, instead).await?);
    }
    Ok(Doors { nbd, tls, iscsi, accounts })
}

async fn open_one(
    option: &str,
    typed: &str,
    port: u16,
    is_safe: bool,
    wanted: &str,
) -> Result<Door, CliError> {
    let place = Place::parse(typed, port).map_err(|why| CliError::Usage(format!("{option}: {why}")))?;
    if !place.is_local() && !is_safe {
        return Err(CliError::Usage(format!(
            "{option} {place} lets other machines read and write all volumes: give {wanted}, or --insecure \
             if the network is trusted"
        )));
    }
    Door::open(&place).await.map_err(|error| CliError::Refused(format!("{option} {place}: {error}")))
}

/// A protocol: serves a client.
type Serves = dyn Fn(Runtime, Visitor) -> BoxFuture<'static, Result<(), Ended>> + Send + Sync;

impl Doors {
    /// Lets clients in until what this returns is dropped.
    pub fn let_in(self, runtime: &Runtime, pools: &Arc<Pools>) -> Vec<(AbortOnDrop<()>, SocketFile)> {
        let places = self.iscsi.iter().map(|door| door.place.clone()).collect();
        let limits = Limits::new(MEMORY_BYTES);
        let nbd = Arc::new(NbdServer { pools: pools.clone(), limits, tls: self.tls });
        let nbd: Arc<Serves> = Arc::new(move |runtime, visitor| {
            let server = nbd.clone();
            async move { server.serve(&runtime, visitor.stream, &visitor.who).await }.boxed()
        });
        let (limits, accounts) = (Limits::new(MEMORY_BYTES), self.accounts);
        let luns = Luns::default();
        let iscsi = Arc::new(IscsiServer { pools: pools.clone(), limits, accounts, places, luns });
        let iscsi: Arc<Serves> = Arc::new(move |runtime, visitor| {
            let server = iscsi.clone();
            async move { server.serve(&runtime, visitor).await }.boxed()
        });
        let mut open = let_in("NBD", self.nbd, runtime, &nbd);
        open.extend(let_in("iSCSI", self.iscsi, runtime, &iscsi));
        open
    }
}

fn let_in(
    protocol: &'static str,
    doors: Vec<Door>,
    runtime: &Runtime,
    serves: &Arc<Serves>,
) -> Vec<(AbortOnDrop<()>, SocketFile)> {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let let_in = |door: Door| {
        say!("volumes are at {} by {protocol}", door.place);
        let (serves, serving) = (serves.clone(), runtime.clone());
        let serve: Arc<Serving> = Arc::new(move |visitor: Visitor| {
            let who = visitor.who.clone();
            let served = serves(serving.clone(), visitor);
            async move {
                if let Err(error) = served.await {
                    say!("{protocol} {who}: {error}");
                }
            }
            .boxed()
        });
        let socket = door.socket_file();
        let letting_in = door.let_in(runtime.clone(), connections.clone(), serve);
        (runtime.spawn(letting_in).abort_on_drop(), socket)
    };
    doors.into_iter().map(let_in).collect()
}
