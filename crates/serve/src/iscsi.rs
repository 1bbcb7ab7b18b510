//! Serves volumes by iSCSI: each volume is a target with one logical unit 0, or several volumes are units of
//! one target (`map`). `names` forms the target names.
//!
//! Two user properties stay with the volume wherever its pool goes: [`KEPT_PROPERTY`] keeps persistent
//! reservations, [`LUN_PROPERTY`](cenote_host::volumes::LUN_PROPERTY) its place in a target.

pub mod accounts;
mod map;
mod names;

pub use map::LunMap;
pub use names::{NAME, Names};

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use cenote_dataset::{Source, Value};
use cenote_disk::{Ended, Errno, Failure, Limits};
use cenote_fs::FsError;
use cenote_iscsi::{Accounts, Identity, Luns, Portal, Targets, Unit, Units, Visit};
use cenote_object::DatasetError;
use cenote_runtime::Runtime;
use cenote_tasks::{Instead, inherit, set_property};
use futures::FutureExt;
use futures::future::BoxFuture;

use cenote_host::cancel::Cancel;
use cenote_host::pools::Pools;
use cenote_host::volumes::{Unserved, list};

use crate::disk::{ServedDisk, failure, refused};
use crate::listen::{Place, Visitor};

use names::NAME_BYTES_MAX;

/// The user property for persistent reservations.
const KEPT_PROPERTY: &str = "org.cenote:iscsi.reservations";
/// Serves volumes by iSCSI.
pub struct IscsiServer {
    /// Pools.
    pub pools: Arc<Pools>,
    /// Naming of targets.
    pub names: Names,
    /// Volumes that share targets.
    pub map: Arc<LunMap>,
    /// Limits per client.
    pub limits: Limits,
    /// Login accounts.
    pub accounts: Accounts,
    /// Places where clients connect.
    pub places: Vec<Place>,
    /// Shared state of each volume's sessions.
    pub luns: Luns,
}

impl IscsiServer {
    /// Serves one client until it disconnects.
    ///
    /// # Errors
    /// A protocol error, a stall, or a lost connection.
    pub async fn serve(&self, runtime: &Runtime, visitor: Visitor) -> Result<(), Ended> {
        let cancel = Cancel::default();
        let who = format!("iSCSI {}", visitor.who);
        let (pools, names, map) = (self.pools.clone(), self.names.clone(), self.map.clone());
        let served = Served { pools, names, map, who, cancel: cancel.clone() };
        let portal = self.portal(&visitor.here);
        let (stream, share) = (visitor.stream, self.limits.share(visitor.stranger));
        let leaving = async move { cancel.cancelled().await }.boxed();
        let visit = Visit { stream, share, leaving };
        let (limits, accounts, luns) = (&self.limits, &self.accounts, &self.luns);
        cenote_iscsi::serve(visit, runtime, limits, &served, accounts, &portal, luns).await
    }

    /// The addresses announced to a client: the one it used, and others it may reach.
    fn portal(&self, here: &Place) -> Portal {
        let may_reach = |place: &&Place| match place {
            Place::Tcp(address) => !address.ip().is_unspecified() && here.is_local() >= place.is_local(),
            Place::Unix(_) => false,
        };
        let all = self.places.iter().filter(may_reach).map(Place::to_string).collect();
        Portal { here: here.to_string(), all }
    }
}

struct Served {
    pools: Arc<Pools>,
    names: Names,
    map: Arc<LunMap>,
    who: String,
    cancel: Cancel,
}

impl Targets for Served {
    fn list(&self) -> BoxFuture<'_, Vec<String>> {
        let listed = async {
            let all = list(&self.pools).await.unwrap_or_default();
            let places = self.map.places(&all);
            let alone = all.iter().filter(|volume| !places.has(&volume.name));
            let alone = alone.map(|volume| self.names.target_of(&volume.name));
            let alone = alone.filter(|name| name.len() <= NAME_BYTES_MAX);
            places.targets().map(|target| self.names.of_target(target)).chain(alone).collect()
        };
        listed.boxed()
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Units, Failure>> {
        let opened = async move {
            let unknown = || Failure::new(Errno::Invalid, format!("there is no target '{name}'"));
            if let Some(target) = self.names.target(name) {
                let all = list(&self.pools).await.map_err(|error| failure(&error.into()))?;
                let mut units = Units::new();
                for (number, volume) in self.map.places(&all).units(&target) {
                    // Skip volumes that can't be served now.
                    if let Ok(volume) = self.volume(volume).await {
                        units.insert(number, volume as Arc<dyn Unit>);
                    }
                }
                return if units.is_empty() { Err(unknown()) } else { Ok(units) };
            }
            let volume = self.names.volume_of(name).ok_or_else(unknown)?;
            let unit = self.volume(&volume).await.map_err(|error| refused(&error))?;
            // A disk is in one target: otherwise initiators would confuse the sessions of its ports.
            if self.map.may_have(&volume)
                || unit.volume().own_lun().await.map_err(|error| failure(&error.into()))?.is_some()
            {
                let all = list(&self.pools).await.map_err(|error| failure(&error.into()))?;
                if self.map.places(&all).has(&volume) {
                    return Err(unknown());
                }
            }
            Ok(Units::from([(0, unit as Arc<dyn Unit>)]))
        };
        opened.boxed()
    }
}

impl Served {
    async fn volume(&self, name: &str) -> Result<Arc<ServedDisk>, Unserved> {
        ServedDisk::open(&self.pools, name, &self.who, &self.cancel).await
    }
}

impl Unit for ServedDisk {
    fn identity(&self) -> Identity {
        let (pool, dataset) = self.volume().guids();
        Identity::new(pool.0, dataset.0, self.volume().name())
    }

    fn kept(&self) -> BoxFuture<'_, Result<Option<String>, Failure>> {
        let kept = async {
            // A snapshot inherits its volume's property.
            let Some((engine, name)) = self.volume().changeable() else { return Ok(None) };
            let found = engine.mos().await?.dataset(name).await?.property(KEPT_PROPERTY).await?;
            let found = found.filter(|property| property.source == Source::Local);
            Ok::<_, DatasetError>(found.map(|property| property.literal()))
        };
        kept.map(|kept| kept.map_err(|error| failure(&error.into()))).boxed()
    }

    fn keep(&self, text: Option<String>) -> BoxFuture<'_, Result<(), Failure>> {
        let keeping = async move {
            let Some((engine, name)) = self.volume().changeable() else {
                return Err(DatasetError::unsuitable(self.volume().name(), "is read-only"));
            };
            match text {
                Some(text) => set_property(engine, name, KEPT_PROPERTY, Value::Text(text)).await,
                None => inherit(engine, name, KEPT_PROPERTY, Instead::Inherited).await,
            }
        };
        keeping.map(|kept| kept.map_err(|error| failure(&FsError::from(error)))).boxed()
    }

    fn share<'a>(
        &'a self,
        offset: u64,
        from: &'a dyn Unit,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<u64, Failure>> {
        let sharing = async move {
            let from: &dyn Any = from;
            let Some(from) = from.downcast_ref::<ServedDisk>() else { return Ok(0) };
            let shared = self.volume().share(offset, from.volume(), range).await;
            shared.map_err(|error| failure(&error))
        };
        sharing.boxed()
    }
}
