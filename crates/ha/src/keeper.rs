//! The keeper of one pool on one machine: waits for its turn, takes the pool, keeps the lease, lets it go.
//!
//! ```text
//!   watching ── its turn: swaps the record ──> tenure (taking, open, leaving) ──> watching
//!      ^                                          | lease ended, record swapped by another,
//!      '── a pause that doubles <── failed ───────'  pool suspended, handed over, exported
//! ```
//!
//! Idea: one loop per pool, which alone writes to the witness; wishes of administrators and leaves that lack
//! data come to it through [`Shared`]. A request that was not answered may have been carried out, so the
//! keeper reads the record and recognises its own by its `life`.
//!
//! Locking: `Watched` values, each held for one look or change.

mod tenure;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cenote_device::Tenure;
use cenote_runtime::{Instant, Runtime, Watched};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::head::Head;
use crate::nodes::Role;
use crate::record::{Record, Turn};
use crate::witness::{Asking, Seen, Tag, Witness, Written};

/// Before the next attempt after a failure; doubles.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Tells the daemon's log.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// The keeper of one pool.
pub struct Keeper {
    pub runtime: Runtime,
    pub node: Arc<str>,
    pub pool: Arc<str>,
    pub lease: Duration,
    /// A pool suspended for this long is let go.
    pub suspended: Duration,
    pub witness: Arc<dyn Witness>,
    pub head: Arc<dyn Head>,
    pub shared: Arc<Shared>,
    pub say: Say,
}

/// Shared with verbs, and with the pool's engine.
pub struct Shared {
    /// Wakes the keeper.
    pub wake: Notify,
    pub orders: Mutex<Orders>,
    pub legs: Watched<Legs>,
    pub view: Mutex<View>,
}

impl Default for Shared {
    fn default() -> Shared {
        let (wake, orders, view) = Default::default();
        Shared { wake, orders, legs: Watched::new(Legs::default()), view }
    }
}

/// Wishes of administrators.
#[derive(Debug, Default)]
pub struct Orders {
    /// Let the pool go: to this machine, or to any other.
    pub switch: Option<Option<String>>,
    /// Have it here.
    pub come: bool,
    /// Have it here even if its owner does not let it go.
    pub fence: bool,
    /// The daemon ends.
    pub stop: bool,
}

/// Leaves that lack data, as the witness knows them.
#[derive(Debug, Default)]
pub struct Legs {
    /// The witness's record names at least these.
    pub recorded: BTreeSet<u64>,
    /// The pool waits for these to be recorded.
    pub wanted: BTreeSet<u64>,
    /// The tenure has ended.
    pub lost: Option<Arc<str>>,
}

/// State of a pool, for people.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub role: Role,
    pub record: Option<Record>,
    /// When the record was last read or written with success.
    pub seen: Option<Instant>,
    /// The last failure.
    pub why: Option<String>,
    /// It was the witness's: the next look may succeed.
    pub may_pass: bool,
}

/// A turn that has come.
struct Come {
    /// The record to be replaced; `None`: there is none.
    before: Option<(Record, Tag)>,
    /// Its owner may still write for this long.
    hold: Duration,
}

/// A record that this machine has swapped in.
struct Mine {
    record: Record,
    tag: Tag,
    /// When the swap began.
    begun: Instant,
    hold: Duration,
}

/// The end of a tenure.
enum Ended {
    /// All went well, and others have their turn.
    Left,
    /// The pool did not open, or is lost to another machine, or may be.
    Failed,
}

impl Keeper {
    /// Keeps the pool until the daemon ends.
    pub async fn keep(self) {
        let mut pause = PAUSE;
        self.checked().await;
        while let Some(come) = self.turn().await {
            let Some(mine) = self.swap(come).await else { continue };
            let ended = self.tenure(mine).await;
            self.shared.view.lock().role = Role::Watches;
            match ended {
                Ended::Left => pause = PAUSE,
                Ended::Failed => {
                    self.pause(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Waits until the witness has shown that its swaps can be relied on.
    async fn checked(&self) {
        let mut pause = PAUSE;
        while !self.is_stopping() {
            match self.witness.check().await {
                Ok(()) => return,
                Err(error) => self.failed(&error.to_string()),
            }
            self.pause(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits for this machine's turn. `None`: the daemon ends.
    async fn turn(&self) -> Option<Come> {
        // The record as it has been since then.
        let mut since: Option<(Tag, Instant)> = None;
        loop {
            if self.is_stopping() {
                return None;
            }
            let mut rest = self.lease / 8;
            let seen = self.read().await;
            let now = self.runtime.now();
            match seen {
                // An owner whose renewals this machine does not see may be well.
                Err(()) => since = None,
                Ok(None) => return Some(Come { before: None, hold: Duration::ZERO }),
                Ok(Some((record, tag))) => {
                    let (is_wanted, is_fenced) = {
                        let mut orders = self.shared.orders.lock();
                        (std::mem::take(&mut orders.come), std::mem::take(&mut orders.fence))
                    };
                    let unchanged = match &since {
                        Some((known, since)) if *known == tag => now.since(*since),
                        _ => Duration::ZERO,
                    };
                    if unchanged == Duration::ZERO {
                        since = Some((tag.clone(), now));
                    }
                    let is_due = match record.turn_of(&self.node) {
                        Turn::Now => true,
                        Turn::After(wait) => {
                            rest = rest.min(wait.saturating_sub(unchanged));
                            unchanged >= wait
                        }
                        Turn::Never => false,
                    };
                    let is_free = record.owner.is_none();
                    if is_due || is_fenced || is_wanted && is_free {
                        let is_early = !is_due && !is_free;
                        let hold = if is_early { record.patience() } else { Duration::ZERO };
                        return Some(Come { before: Some((record, tag)), hold });
                    }
                    if is_wanted {
                        self.wish(&record, &tag).await;
                    }
                }
            }
            self.rest(rest).await;
        }
    }

    /// Asks the owner to hand the pool over.
    async fn wish(&self, record: &Record, tag: &Tag) {
        // A change: it was renewed meanwhile.
        if let Ok(Written::Changed) = self.write(Some(tag), &record.wished_by(&self.node)).await {
            self.shared.orders.lock().come = true;
        }
    }

    /// Swaps the record for one of a new tenure of this machine.
    async fn swap(&self, come: Come) -> Option<Mine> {
        let Come { before, hold } = come;
        let life = self.runtime.random_u64();
        let record = match &before {
            Some((before, _)) => before.taken_by(&self.node, life, self.lease),
            None => Record::first(&self.node, life, self.lease),
        };
        let begun = self.runtime.now();
        match self.write(before.as_ref().map(|(_, tag)| tag), &record).await {
            Ok(Written::Done(tag)) => return Some(Mine { record, tag, begun, hold }),
            Ok(Written::Changed) => return None,
            Err(()) => {}
        }
        // The swap may have been made, or be made later: then another look sees this machine as an owner that
        // renews nothing.
        match self.read().await {
            Ok(Some((there, tag))) if there.is_same_tenure(&record) => {
                Some(Mine { record: there, tag, begun, hold })
            }
            _ => None,
        }
    }

    /// Waits for the witness's answer, a quarter of the lease at most. Errors are noted.
    async fn answer<T>(&self, asking: Asking<T>) -> Result<T, ()> {
        match self.runtime.timeout(self.lease / 4, asking).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => self.failed(&error.to_string()),
            Err(_) => self.failed("the witness has not answered"),
        }
        self.shared.view.lock().may_pass = true;
        Err(())
    }

    /// Swaps the record. After an error it may have been swapped, or will be.
    async fn write(&self, before: Option<&Tag>, record: &Record) -> Result<Written, ()> {
        self.answer(self.witness.write(&self.pool, before, record.encode())).await
    }

    /// Reads the record.
    async fn read(&self) -> Result<Option<(Record, Tag)>, ()> {
        let seen = self.answer(self.witness.read(&self.pool)).await?;
        let now = self.runtime.now();
        let Some(Seen { bytes, tag }) = seen else {
            let mut view = self.shared.view.lock();
            (view.record, view.seen) = (None, Some(now));
            return Ok(None);
        };
        match Record::decode(&bytes) {
            Ok(record) => {
                let mut view = self.shared.view.lock();
                (view.record, view.seen) = (Some(record.clone()), Some(now));
                Ok(Some((record, tag)))
            }
            Err(error) => {
                self.failed(&error.to_string());
                Err(())
            }
        }
    }

    /// Notes a failure; says it if it is another one than the last.
    fn failed(&self, why: &str) {
        let is_new = {
            let mut view = self.shared.view.lock();
            view.may_pass = false;
            view.why.replace(why.to_owned()).as_deref() != Some(why)
        };
        if is_new {
            self.say(why);
        }
    }

    fn say(&self, text: &str) {
        (self.say)(&format!("ha: pool '{}': {text}", self.pool));
    }

    fn is_stopping(&self) -> bool {
        self.shared.orders.lock().stop
    }

    /// Waits, at most until woken.
    async fn rest(&self, time: Duration) {
        self.runtime.timeout(time, self.shared.wake.notified()).await.ok();
    }

    /// Waits until the daemon ends, or an order comes, at most this long.
    async fn pause(&self, time: Duration) {
        let until = self.runtime.now() + time;
        loop {
            let left = until.since(self.runtime.now());
            let orders = {
                let orders = self.shared.orders.lock();
                orders.stop || orders.come || orders.fence
            };
            if left == Duration::ZERO || orders {
                return;
            }
            self.rest(left).await;
        }
    }

    /// The tenure that the engine obeys.
    fn grant(&self) -> Tenure {
        let shared = self.shared.clone();
        Tenure::new(move |lacking| {
            let shared = shared.clone();
            Box::pin(async move { shared.agree(lacking).await })
        })
    }
}

impl Shared {
    /// Waits until the witness knows these leaves.
    async fn agree(&self, lacking: BTreeSet<u64>) -> Result<(), Arc<str>> {
        let mut legs = self.legs.watch();
        let is_known = |legs: &Legs| legs.lost.is_some() || lacking.is_subset(&legs.recorded);
        if !is_known(&self.legs.borrow()) {
            self.legs.modify(|legs| legs.wanted.extend(&lacking));
            self.wake.notify_one();
        }
        let gone = |_| Arc::<str>::from("its keeper is gone");
        let lost = legs.until(is_known).await.map_err(gone)?.lost.clone();
        lost.map_or(Ok(()), Err)
    }

    /// Wakes the keeper for new orders.
    pub fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock());
        self.wake.notify_one();
    }
}
