//! `zpool events`: what the daemon has seen happen to its pools; without one, the events of a pool that are
//! on its disks.
//!
//! OpenZFS keeps events in memory and loses them at reboot, and so does the daemon. What survives are the
//! internal events in the history, each of which was such an event, and the error log, which records where
//! but not when.

use cenote_dataset::errlog::LoggedError;
use cenote_format::history::key;
use cenote_format::nvlist::Nvlist;
use cenote_host::events::{self, Events as Ring};
use cenote_pool::FoundPool;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Which events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Of pools with these names; none: of all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Those after this one; 0: from the first that is known.
    #[serde(default)]
    pub after: u64,
    /// What is done with them.
    #[serde(default)]
    pub order: Order,
}

/// What is done with events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// They are shown.
    #[default]
    Show,
    /// The same, once there are some: to follow events, ask again after the last one.
    Await,
    /// The daemon forgets them.
    Clear,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The events, the oldest first; those of pools on disks, pool by pool.
    pub events: Vec<Event>,
    /// The pools whose disks were read.
    pub pools: Vec<String>,
    /// The number of the last event that is known, of whatever pool.
    pub last: u64,
    /// How many were forgotten.
    pub cleared: usize,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The pool's name.
    pub pool: String,
    /// What is known of it.
    pub what: What,
}

/// What is known of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The daemon saw it.
    Seen {
        /// Its class, such as `sysevent.fs.zfs.pool_import`.
        class: String,
        /// When: nanoseconds since 1970.
        unix_ns: u64,
        /// All that is known of it, under OpenZFS's names.
        members: Nvlist,
    },
    /// The pool's history has it.
    Recorded(Nvlist),
    /// The error log has it.
    DataError(LoggedError),
}

impl Verb for Events {
    const NAME: &'static str = "zpool events";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Sometimes(Needs::All);
    type Answer = Seen;

    /// # Errors
    /// What is on disk neither goes on nor is cleared. Pools that can't be read are told of.
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
    /// What the daemon has seen.
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

    /// What pools have on their disks.
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
