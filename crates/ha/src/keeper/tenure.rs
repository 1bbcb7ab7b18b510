//! A tenure: from the swapped record to the last write.
//!
//! ```text
//!   holding (the last owner may still write) -> taking -> open -> leaving -> the record names no owner
//!                     renewals each T/4 all the while; the lease ends T after the last one began
//! ```
//!
//! Leaves that lack data: the record must name a leaf before anything counts as durable without it, and may
//! stop naming it only after the pool has it back. So a growing set is simply written. For a shrinking one,
//! `recorded` is emptied first and the pool asked then: a leaf that fails meanwhile either is in the answer,
//! or waits for the next record.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::Poll;

use cenote_device::Tenure;
use cenote_runtime::{AbortOnDrop, Instant, JoinError};

use super::{Ended, Keeper, Legs, Mine};
use crate::head::{Held, Leave, Opened, Taking};
use crate::nodes::Role;
use crate::record::Record;
use crate::witness::{Tag, Written};

/// Times that the end of a tenure is tried.
const TRIES: u32 = 8;

/// The pool during a tenure.
enum Phase {
    /// Until then the last owner may write.
    Holding(Instant),
    Taking(AbortOnDrop<Result<Opened, String>>),
    Open,
    /// For the daemon's end, a hand-over or an administrator.
    Leaving(AbortOnDrop<Result<(), String>>, Leaving),
}

#[derive(Clone)]
struct Leaving {
    /// The machine that shall have it.
    next: Option<String>,
    how: Leave,
}

/// The result of a renewal.
enum Renewal {
    Made,
    /// Not answered, or not carried out: again soon.
    Open,
    Lost(String),
}

/// A tenure under way.
struct Under<'a> {
    keeper: &'a Keeper,
    tenure: Tenure,
    record: Record,
    tag: Tag,
    /// The next renewal.
    due: Instant,
    /// The storage fences other machines.
    needs_no_lease: bool,
    suspended_since: Option<Instant>,
}

impl Keeper {
    /// Has the pool until it is let go or lost.
    pub(super) async fn tenure(&self, mine: Mine) -> Ended {
        let Mine { record, tag, begun, hold } = mine;
        self.shared.legs.modify(|legs| {
            *legs = Legs { recorded: record.lacking.clone(), wanted: BTreeSet::new(), lost: None };
        });
        let tenure = self.grant();
        tenure.extend(Some(begun + self.lease));
        let taking = Taking { tenure: tenure.clone(), lacking: record.lacking.clone(), known: record.guid };
        let mut under = Under {
            keeper: self,
            tenure,
            record,
            tag,
            due: begun + self.lease / 4,
            needs_no_lease: false,
            suspended_since: None,
        };
        let ended = under.run(taking, self.runtime.now() + hold).await;
        let why = "the pool was let go";
        self.shared.legs.modify(|legs| _ = legs.lost.get_or_insert_with(|| why.into()));
        ended
    }
}

impl Under<'_> {
    async fn run(&mut self, taking: Taking, hold: Instant) -> Ended {
        let keeper = self.keeper;
        self.shows(Role::Takes);
        let mut phase = Phase::Holding(hold);
        loop {
            phase = match phase {
                Phase::Holding(until) if keeper.runtime.now() >= until => {
                    let taken = keeper.head.take(taking.clone());
                    Phase::Taking(keeper.runtime.spawn(taken).abort_on_drop())
                }
                Phase::Open => match self.look() {
                    Ok(None) => Phase::Open,
                    Ok(Some(leaving)) => self.leave(leaving),
                    Err(gone) => return self.give_up(gone).await,
                },
                other => other,
            };
            match self.wait(&mut phase).await {
                Waited::Time => {}
                Waited::Taken(Ok(opened)) => {
                    self.needs_no_lease = opened.needs_no_lease;
                    if opened.needs_no_lease {
                        self.tenure.extend(None);
                    }
                    if self.record.guid != Some(opened.guid) {
                        self.record.guid = Some(opened.guid);
                        self.due = keeper.runtime.now();
                    }
                    keeper.shared.view.lock().why = None;
                    keeper.say("is open here");
                    self.shows(Role::Has);
                    phase = Phase::Open;
                }
                Waited::Taken(Err(why)) => {
                    keeper.failed(&format!("can't be opened here: {why}"));
                    self.end(None, false).await;
                    return Ended::Failed;
                }
                Waited::Left(Ok(()), leaving) => {
                    keeper.say("was let go");
                    self.end(leaving.next, false).await;
                    return Ended::Left;
                }
                // The daemon ends: clients must go.
                Waited::Left(Err(why), leaving) if keeper.is_stopping() && leaving.how == Leave::Whole => {
                    keeper.failed(&format!("can't be let go: {why}"));
                    phase = self.leave(Leaving { how: Leave::AtAnyCost, ..leaving });
                }
                Waited::Left(Err(why), _) => {
                    keeper.failed(&format!("can't be let go: {why}"));
                    self.shows(Role::Has);
                    phase = Phase::Open;
                }
            }
            let wants = !keeper.shared.legs.borrow().wanted.is_empty();
            if wants || keeper.runtime.now() >= self.due {
                match self.renew().await {
                    Renewal::Made => {}
                    Renewal::Open => self.due = keeper.runtime.now() + keeper.lease / 16,
                    Renewal::Lost(why) => return self.lose(phase, &why).await,
                }
            }
            if !self.needs_no_lease && self.tenure.has_ended(keeper.runtime.now()) {
                let why = "the witness could not be reached before the lease ended";
                return self.lose(phase, why).await;
            }
        }
    }

    /// Looks at the open pool, and at orders.
    fn look(&mut self) -> Result<Option<Leaving>, Gone> {
        let keeper = self.keeper;
        match keeper.head.held() {
            Held::Works => self.suspended_since = None,
            Held::Suspended(why) => {
                let now = keeper.runtime.now();
                let since = *self.suspended_since.get_or_insert(now);
                if now.since(since) >= keeper.suspended {
                    self.suspended_since = None;
                    keeper.failed(&format!("is let go because its devices fail: {why}"));
                    return Ok(Some(Leaving { next: None, how: Leave::AtAnyCost }));
                }
            }
            Held::Lost(why) => return Err(Gone::Lost(why)),
            Held::Gone => return Err(Gone::Exported),
        }
        let mut orders = keeper.shared.orders.lock();
        (orders.come, orders.fence) = (false, false);
        let switch = orders.switch.take();
        let is_stopping = orders.stop;
        drop(orders);
        let wanted = self.record.wanted_by.clone().filter(|node| **node != *keeper.node);
        let next = switch.or(wanted.map(Some)).or(is_stopping.then_some(None));
        // Without a granted wish in the record, a hand-over that failed is not tried again.
        self.record.wanted_by = None;
        Ok(next.map(|next| Leaving { next, how: Leave::Whole }))
    }

    fn leave(&self, leaving: Leaving) -> Phase {
        self.shows(Role::Leaves);
        let left = self.keeper.head.leave(leaving.how);
        Phase::Leaving(self.keeper.runtime.spawn(left).abort_on_drop(), leaving)
    }

    /// Waits for the phase's work, the next renewal, or a wake.
    async fn wait(&self, phase: &mut Phase) -> Waited {
        let keeper = self.keeper;
        let now = keeper.runtime.now();
        let mut time = self.due.since(now).min(keeper.lease / 8);
        if let Phase::Holding(until) = phase {
            time = time.min(until.since(now));
        }
        let step = std::future::poll_fn(|context| match phase {
            Phase::Taking(taking) => Pin::new(taking).poll(context).map(|done| Waited::Taken(joined(done))),
            Phase::Leaving(left, leaving) => {
                Pin::new(left).poll(context).map(|done| Waited::Left(joined(done), leaving.clone()))
            }
            Phase::Holding(_) | Phase::Open => Poll::Pending,
        });
        let time = keeper.runtime.sleep(time);
        tokio::select! {
            biased;
            waited = step => waited,
            () = keeper.shared.wake.notified() => Waited::Time,
            () = time => Waited::Time,
        }
    }

    /// Renews the lease, and tells the witness which leaves lack data.
    async fn renew(&mut self) -> Renewal {
        let keeper = self.keeper;
        let lacking = self.next_lacking();
        let next = self.record.renewed(lacking.clone());
        let begun = keeper.runtime.now();
        match keeper.write(Some(&self.tag), &next).await {
            Ok(Written::Done(tag)) => {
                (self.record, self.tag) = (next, tag);
                self.due = begun + keeper.lease / 4;
                self.tenure.extend((!self.needs_no_lease).then(|| begun + keeper.lease));
                keeper.shared.legs.modify(|legs| {
                    legs.wanted.retain(|leaf| !lacking.contains(leaf));
                    legs.recorded = lacking;
                });
                let mut view = keeper.shared.view.lock();
                (view.record, view.seen) = (Some(self.record.clone()), Some(begun));
                Renewal::Made
            }
            Ok(Written::Changed) => self.changed(&next).await,
            Err(()) => Renewal::Open,
        }
    }

    /// Somebody swapped the record: another owner, this keeper with a lost answer, or one with a wish.
    async fn changed(&mut self, next: &Record) -> Renewal {
        match self.keeper.read().await {
            Err(()) => Renewal::Open,
            Ok(None) => Renewal::Lost("its record was removed from the witness".into()),
            Ok(Some((there, tag))) if there.is_same_tenure(&self.record) => {
                self.tag = tag;
                self.record.seq = there.seq.max(next.seq);
                if there.wanted_by.is_some() {
                    self.record.wanted_by = there.wanted_by;
                }
                // Now.
                self.due = self.keeper.runtime.now();
                Renewal::Made
            }
            Ok(Some((there, _))) => {
                let owner = there.owner.as_deref().unwrap_or("no machine");
                Renewal::Lost(format!("{owner} has it now"))
            }
        }
    }

    fn next_lacking(&self) -> BTreeSet<u64> {
        let (keeper, legs) = (self.keeper, &self.keeper.shared.legs);
        let now = || keeper.head.lacking().unwrap_or_else(|| self.record.lacking.clone());
        let with_wanted = |now: BTreeSet<u64>| &now | &legs.borrow().wanted;
        let lacking = with_wanted(now());
        if lacking.is_superset(&legs.borrow().recorded) {
            return lacking;
        }
        legs.modify(|legs| legs.recorded.clear());
        with_wanted(now())
    }

    /// The record names no owner any more.
    async fn end(&mut self, next: Option<String>, is_paused: bool) {
        for _ in 0..TRIES {
            let left = self.record.left(next.clone(), is_paused);
            match self.keeper.write(Some(&self.tag), &left).await {
                Ok(Written::Done(_)) => return,
                Ok(Written::Changed) => match self.changed(&left).await {
                    Renewal::Made | Renewal::Open => {}
                    Renewal::Lost(_) => return,
                },
                // Others wait for the end of the lease instead.
                Err(()) => {}
            }
        }
    }

    /// The open pool can't be kept.
    async fn give_up(&mut self, gone: Gone) -> Ended {
        match gone {
            Gone::Exported => {
                self.keeper.say("was exported: no machine takes it before `cenote ha switch`");
                self.end(None, true).await;
                Ended::Left
            }
            Gone::Lost(why) => self.lose(Phase::Open, &why).await,
        }
    }

    /// Another machine has the pool, or may have it.
    async fn lose(&mut self, phase: Phase, why: &str) -> Ended {
        let keeper = self.keeper;
        keeper.failed(&format!("is lost: {why}"));
        self.shows(Role::Leaves);
        self.tenure.extend(Some(Instant::default()));
        keeper.shared.legs.modify(|legs| legs.lost = Some(why.into()));
        keeper.head.lose(why);
        let is_open = match phase {
            Phase::Holding(_) => false,
            Phase::Taking(taking) => {
                let taken = joined(taking.await).is_ok();
                keeper.head.lose(why);
                taken
            }
            Phase::Open => true,
            Phase::Leaving(left, _) => joined(left.await).is_err(),
        };
        for _ in 0..if is_open { TRIES } else { 0 } {
            match keeper.head.leave(Leave::AtAnyCost).await {
                Ok(()) => break,
                Err(why) => keeper.failed(&format!("can't be let go: {why}")),
            }
            keeper.runtime.sleep(keeper.lease).await;
        }
        Ended::Failed
    }

    fn shows(&self, role: Role) {
        self.keeper.shared.view.lock().role = role;
    }
}

/// Why an open pool can't be kept.
enum Gone {
    Exported,
    Lost(String),
}

/// The end of a wait.
enum Waited {
    Time,
    Taken(Result<Opened, String>),
    Left(Result<(), String>, Leaving),
}

fn joined<T>(done: Result<Result<T, String>, JoinError>) -> Result<T, String> {
    done.unwrap_or_else(|error| Err(error.to_string()))
}
