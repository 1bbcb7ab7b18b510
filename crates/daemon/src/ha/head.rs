//! Opens and closes a pool of the daemon for its keeper.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cenote_control::{ControlError, Session};
use cenote_device::{Place, StorageLock};
use cenote_format::units::Guid;
use cenote_ha::{Head, Held, Leave, Opened, PoolSettings, Taking};
use cenote_host::pools::{InUse, OpenPool, Pools};
use cenote_pool::{Cause, PoolState};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::moving;

/// Between two tries to close a pool that is being opened or closed by a command.
const AGAIN: Duration = Duration::from_millis(200);

/// How pools are opened.
#[derive(Clone, Copy)]
pub struct How {
    pub load_keys: bool,
    pub no_mount: bool,
    pub say: fn(&str),
}

/// A pool of the daemon.
pub struct PoolHead(Arc<Shared>);

struct Shared {
    settings: PoolSettings,
    session: Session,
    pools: Arc<Pools>,
    how: How,
    /// Leaves that lacked data when the pool was taken.
    before: Mutex<BTreeSet<Guid>>,
}

/// The places of a pool's devices; none: those of the daemon.
pub fn places(pool: &PoolSettings, session: &Session) -> Result<Vec<Place>, ControlError> {
    pool.disks.iter().map(|disk| session.caller().place(disk.as_ref())).collect()
}

impl PoolHead {
    pub fn new(settings: &PoolSettings, session: &Session, pools: &Arc<Pools>, how: How) -> PoolHead {
        let (settings, pools) = (settings.clone(), pools.clone());
        let session = session.serving(&pools);
        PoolHead(Arc::new(Shared { settings, session, pools, how, before: Mutex::default() }))
    }
}

impl Shared {
    fn open(&self) -> Option<Arc<OpenPool>> {
        self.pools.get(&self.settings.name)
    }

    async fn take(&self, taking: Taking) -> Result<Opened, ControlError> {
        let name = &self.settings.name;
        let disks = places(&self.settings, &self.session)?;
        let disks = if disks.is_empty() { self.pools.search.clone() } else { disks };
        let looking = self.session.searching(disks);
        let found = looking.find_on_disks(name).await?;
        let is_known = taking.known == Some(found.guid().0);
        if !is_known {
            looking.check_unused(&found)?;
        }
        // Leaves of another pool of this name say nothing about this one.
        let lacking = taking.lacking.iter().copied().map(Guid).filter(|_| is_known);
        let lacking: BTreeSet<Guid> = lacking.collect();
        let session = looking.under(taking.tenure, is_known);
        *self.before.lock() = lacking.clone();
        let found = found.without(&lacking)?;
        let open = session.hold(&found, None).await?;
        // The pool is open from here on: later failures are reported.
        let tell = |error| session.caller().tell(&open.name, &error);
        if self.how.load_keys {
            session.load_keys(&open, None).await.unwrap_or_else(tell);
        }
        if !self.how.no_mount {
            session.mount_all(&open).await.unwrap_or_else(tell);
        }
        moving::came(&self.settings, session.runtime(), self.how.say).await;
        let needs_no_lease = open.engine.pool().tree().found().has_storage_locks(StorageLock::Held);
        Ok(Opened { guid: open.guid().0, needs_no_lease })
    }

    async fn leave(&self, how: Leave) -> Result<(), ControlError> {
        let Some(pool) = self.open() else { return Ok(()) };
        if how == Leave::AtAnyCost {
            moving::goes(&self.settings, self.session.runtime(), self.how.say).await;
        }
        let in_use = if how == Leave::AtAnyCost { InUse::Goes } else { InUse::ClientsGo };
        let gone = self.session.let_go(&pool, PoolState::Exported, in_use).await;
        if how == Leave::Whole && gone.is_ok() {
            moving::goes(&self.settings, self.session.runtime(), self.how.say).await;
        }
        gone
    }
}

impl Head for PoolHead {
    fn take(&self, taking: Taking) -> BoxFuture<'static, Result<Opened, String>> {
        let shared = self.0.clone();
        async move {
            // A pool that an earlier tenure left open, or that a command has opened.
            if let Some(pool) = shared.open() {
                drop(pool);
                shared.session.runtime().sleep(AGAIN).await;
                shared.leave(Leave::AtAnyCost).await.map_err(|error| error.to_string())?;
            }
            shared.take(taking).await.map_err(|error| error.to_string())
        }
        .boxed()
    }

    fn held(&self) -> Held {
        let Some(pool) = self.0.open() else { return Held::Gone };
        match pool.engine.pool().suspension().suspended() {
            None => Held::Works,
            Some(suspended) if suspended.cause == Cause::Multihost => Held::Lost(suspended.why.to_string()),
            Some(suspended) => Held::Suspended(suspended.why.to_string()),
        }
    }

    fn lacking(&self) -> Option<BTreeSet<u64>> {
        let pool = self.0.open()?;
        let guids = pool.engine.pool().lacking().guids(&self.0.before.lock());
        Some(guids.into_iter().map(|guid| guid.0).collect())
    }

    fn lose(&self, why: &str) {
        if let Some(pool) = self.0.open()
            && let Some(fence) = &pool.engine.pool().tree().found().fence
        {
            fence.lose(why);
        }
    }

    fn leave(&self, how: Leave) -> BoxFuture<'static, Result<(), String>> {
        let shared = self.0.clone();
        async move { shared.leave(how).await.map_err(|error| error.to_string()) }.boxed()
    }
}
