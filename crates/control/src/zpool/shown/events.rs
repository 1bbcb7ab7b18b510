//! `zpool events`: the daemon's events of its pools; without a daemon, the events recorded on a pool's disks.
//!
//! OpenZFS keeps events in memory and loses them at reboot, as does the daemon. The disks keep the history's
//! internal events, each of which was such an event, and the error log, which records places but no times.

use cenote_dataset::errlog::LoggedError;
use cenote_format::history::key;
use cenote_format::nvlist::Nvlist;
use cenote_host::events::{self, Events as Ring};
use cenote_pool::FoundPool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show the daemon's events, or those recorded on the disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// Pools by name; empty: all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Events after this one; 0: from the first known.
    #[serde(default)]
    pub after: u64,
    /// Operation.
    #[serde(default)]
    pub order: Order,
}

/// An operation on events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Show them.
    #[default]
    Show,
    /// Wait for some: to follow events, ask again after the last one.
    Await,
    /// Forget them, in the daemon.
    Clear,
}

/// The events found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    /// Events, oldest first; those on disks, pool by pool.
    pub events: Vec<Event>,
    /// Pools whose disks were read.
    pub pools: Vec<String>,
    /// Number of the last known event of any pool.
    pub last: u64,
    /// Number of events forgotten.
    pub cleared: usize,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Pool's name.
    pub pool: String,
    /// Content.
    pub what: What,
}

/// The content of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// From the daemon.
    Seen {
        /// Its class, such as `sysevent.fs.zfs.pool_import`.
        class: String,
        /// Time in nanoseconds since 1970.
        unix_ns: u64,
        /// Its members under OpenZFS's names.
        members: Nvlist,
    },
    /// From the pool's history.
    Recorded(Nvlist),
    /// From the error log.
    DataError(LoggedError),
}

impl Verb for Events {
    const NAME: &'static str = "zpool events";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Sometimes;
    type Answer = Seen;

    fn only_looks(&self) -> bool {
        self.order != Order::Clear
    }

    /// # Errors
    /// Events on disk can be neither followed nor cleared. Unreadable pools are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<Seen>, ControlError> {
        match (session.pools(), self.order) {
            (Some(pools), _) => Ok(self.of_daemon(&pools.events).await.into()),
            (None, Order::Show) => self.on_disks(session).await,
            (None, Order::Await | Order::Clear) => {
                let option = if self.order == Order::Await { "-f" } else { "-c" };
                let why =
                    "no daemon runs (`cenote serve`), and what is on disk neither goes on nor is cleared";
                Err(ControlError::Refused(format!("zpool events {option}: {why}")))
            }
        }
    }
}

impl Events {
    async fn of_daemon(&self, ring: &Ring) -> Seen {
        let (mut seen, mut last) = (Vec::new(), self.after);
        if self.order == Order::Clear {
            return Seen { events: seen, pools: Vec::new(), last, cleared: ring.clear() };
        }
        loop {
            let new = ring.after(last);
            last = new.last().map_or(last, |event| event.id);
            let is_meant = |event: &events::Event| self.pools.is_empty() || self.pools.contains(&event.pool);
            seen.extend(new.into_iter().filter(is_meant).map(Event::from));
            if self.order == Order::Show || !seen.is_empty() {
                return Seen { events: seen, pools: Vec::new(), last, cleared: 0 };
            }
            ring.wait_after(last).await;
        }
    }

    async fn on_disks(&self, session: &Session) -> Result<Answered<Seen>, ControlError> {
        let (pools, mut outcome) = session.find_pools_to_show(&self.pools).await?;
        let mut seen = Seen { events: Vec::new(), pools: Vec::new(), last: 0, cleared: 0 };
        for found in pools {
            match recorded(session, &found).await {
                Ok(all) => {
                    let event = |what| Event { pool: found.name().into(), what };
                    seen.events.extend(all.into_iter().map(event));
                    seen.pools.push(found.name().into());
                }
                Err(error) => outcome = outcome.and(session.caller().tell(found.name(), &error)),
            }
        }
        Ok(Answered { answer: seen, outcome })
    }
}

async fn recorded(session: &Session, found: &FoundPool) -> Result<Vec<What>, ControlError> {
    let mos = session.open_without_asking(found).await?;
    let is_event = |record: &Nvlist| record.contains(key::INT_NAME) || record.contains(key::INT_EVENT);
    let records = mos.history().await?.into_iter().filter(is_event).map(What::Recorded);
    let errors = mos.error_log().await?.into_iter().map(What::DataError);
    Ok(records.chain(errors).collect())
}

impl From<events::Event> for Event {
    fn from(event: events::Event) -> Event {
        let events::Event { class, pool, unix_ns, members, .. } = event;
        Event { pool, what: What::Seen { class: class.into(), unix_ns, members } }
    }
}
