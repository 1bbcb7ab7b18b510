//! NBD: every volume under its dataset's name, snapshots as `POOL/VOLUME@SNAPSHOT`, and exported devices
//! ([`raw`](crate::raw)).
//!
//! ```text
//!   listener --> connection --(TLS)--> handshake --> ServedVolume, until client or pool disappears
//! ```
//!
//! Idea: `cenote-nbd` learns about volumes only from this module. Our own metadata context
//! `cenote:changed-since=SNAPSHOT` is 1 where a volume, or a later snapshot, may differ from an earlier
//! snapshot.
//!
//! Clients connect through a socket in the file system, or through TLS with certificates, unless the
//! administrator allows more.

use std::ops::Range;
use std::sync::Arc;

use cenote_disk::{Ended, Errno, Failure, Limits, Stream};
use cenote_fs::FsError;
use cenote_nbd::export::BASE_ALLOCATION;
use cenote_nbd::{Export, Exports, Extent, Handshake, Listed, Offer};
use cenote_nbd::{handshake, transmit};
use cenote_object::DatasetError;
use cenote_runtime::Runtime;
use futures::FutureExt;
use futures::future::BoxFuture;

use cenote_host::cancel::Cancel;
use cenote_host::pools::Pools;
use cenote_host::volumes::{Earlier, list};

use crate::disk::{ServedDisk, failure, refused};
use crate::listen::{NO_ROOM, Visitor};
use crate::raw::RawExports;
use crate::tls::Tls;

/// Prefix of a changed-since context.
const CHANGED_SINCE: &str = "cenote:changed-since=";

/// Serves volumes by NBD.
pub struct NbdServer {
    /// Pools.
    pub pools: Arc<Pools>,
    /// Exported devices.
    pub raw: RawExports,
    /// Limits per client.
    pub limits: Limits,
    /// TLS, if a certificate exists.
    pub tls: Option<Tls>,
}

impl NbdServer {
    /// Serves one client until it disconnects.
    ///
    /// # Errors
    /// A protocol error, a stall, or a lost connection.
    pub async fn serve(&self, runtime: &Runtime, visitor: Visitor) -> Result<(), Ended> {
        let Visitor { mut stream, who, stranger, .. } = visitor;
        let cancel = Cancel::default();
        let (pools, raw) = (self.pools.clone(), self.raw.clone());
        let exports = Served { pools, raw, who: format!("NBD {who}"), cancel: cancel.clone() };
        let work = async {
            let mut offer = if self.tls.is_some() { Offer::OnlyTls } else { Offer::Plain };
            loop {
                match Handshake::new(&mut *stream, &exports, offer).run(runtime, &self.limits).await? {
                    handshake::Outcome::Left => return Ok(()),
                    handshake::Outcome::Chosen(chosen) => {
                        let share = self.limits.share(stranger);
                        return transmit(stream, chosen, runtime, &self.limits, share).await;
                    }
                    handshake::Outcome::StartTls => {
                        let Some(tls) = &self.tls else { return Ok(()) };
                        let started = runtime.timeout(self.limits.patience, tls.start(stream)).await;
                        stream = started.unwrap_or(Err(std::io::ErrorKind::TimedOut.into()))?;
                        offer = Offer::WithinTls;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Ok(()),
            done = work => done,
        }
    }
}

/// Tells a client that there is no room for it.
///
/// # Errors
/// A protocol error or a lost connection.
pub async fn turn_away(runtime: &Runtime, mut stream: Box<dyn Stream>, limits: &Limits) -> Result<(), Ended> {
    Handshake::new(&mut *stream, &NoRoom, Offer::Plain).run(runtime, limits).await.map(drop)
}

/// The empty service for excess clients.
struct NoRoom;

impl Exports for NoRoom {
    fn list(&self) -> BoxFuture<'_, Vec<Listed>> {
        async { Vec::new() }.boxed()
    }

    fn open<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Export>, Failure>> {
        async { Err(Failure::new(Errno::Perm, NO_ROOM)) }.boxed()
    }
}

struct Served {
    pools: Arc<Pools>,
    raw: RawExports,
    who: String,
    cancel: Cancel,
}

impl Exports for Served {
    fn list(&self) -> BoxFuture<'_, Vec<Listed>> {
        let listed = async {
            let all = list(&self.pools).await.unwrap_or_default();
            let describe = |is_read_only| if is_read_only { "volume, read-only" } else { "volume" };
            let volumes = all.into_iter().map(|volume| Listed {
                description: describe(volume.is_read_only).into(),
                name: volume.name,
            });
            self.raw.list().into_iter().chain(volumes).collect()
        };
        listed.boxed()
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Export>, Failure>> {
        let opened = async move {
            let only;
            let name = match name {
                "" => {
                    only = self.only().await?;
                    &only
                }
                name => name,
            };
            if let Some(raw) = self.raw.get(name) {
                return Ok(raw);
            }
            let volume = ServedDisk::open(&self.pools, name, &self.who, &self.cancel).await;
            let volume = volume.map_err(|error| refused(&error))?;
            Ok(volume as Arc<dyn Export>)
        };
        opened.boxed()
    }
}

impl Served {
    /// The default export: the only one.
    async fn only(&self) -> Result<String, Failure> {
        let volumes = list(&self.pools).await.map_err(|error| failure(&error.into()))?;
        let raw = self.raw.list().into_iter().map(|raw| raw.name);
        let all: Vec<String> = raw.chain(volumes.into_iter().map(|volume| volume.name)).collect();
        match &all[..] {
            [only] => Ok(only.clone()),
            _ => Err(Failure::new(Errno::Invalid, "name a volume: POOL/VOLUME, or POOL/VOLUME@SNAPSHOT")),
        }
    }
}

impl Export for ServedDisk {
    fn description(&self) -> String {
        format!("{} of a Cenote pool", self.volume().name())
    }

    fn contexts<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<String>> {
        let known = async move {
            let Some(snapshot) = query.strip_prefix(CHANGED_SINCE) else { return Vec::new() };
            match self.volume().earlier(snapshot).await {
                Ok(Some(_)) => vec![query.to_owned()],
                _ => Vec::new(),
            }
        };
        known.boxed()
    }

    fn extents<'a>(
        &'a self,
        context: &'a str,
        range: Range<u64>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Extent>, Failure>> {
        let found = async move {
            let since = self.since(context).await?;
            let (mut at, mut found) = (range.start, Vec::new());
            while at < range.end && found.len() < most {
                let (flags, end) = match &since {
                    None => {
                        let (is_data, end) = self.volume().extent(at..range.end).await?;
                        (if is_data { 0 } else { Extent::HOLE | Extent::ZERO }, end)
                    }
                    Some(earlier) => {
                        let (has_changed, end) = self.volume().changed_since(earlier, at..range.end).await?;
                        (has_changed.into(), end)
                    }
                };
                found.push(Extent { len_bytes: end - at, flags });
                at = end;
            }
            Ok::<_, FsError>(found)
        };
        found.map(|found| found.map_err(|error| failure(&error))).boxed()
    }
}

impl ServedDisk {
    /// A context's earlier snapshot; none: it asks for allocation.
    async fn since(&self, context: &str) -> Result<Option<Earlier>, FsError> {
        let Some(snapshot) = context.strip_prefix(CHANGED_SINCE) else {
            debug_assert_eq!(context, BASE_ALLOCATION);
            return Ok(None);
        };
        let gone = || DatasetError::NoDataset { name: format!("{}@{snapshot}", self.volume().name()).into() };
        Ok(Some(self.volume().earlier(snapshot).await?.ok_or_else(gone)?))
    }
}
