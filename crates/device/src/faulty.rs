//! A layer that makes a device fail, from a seed.
//!
//! Every operation tries the rules in order; the first that strikes decides. If it corrupts data, all other
//! corruption rules apply, too, because one read may cover many blocks. Bad *sectors* stay bad, as on a worn
//! disk: they depend only on the seed and the sector. The rules ([`Faults`]) can outlive the device.
//!
//! Locking: one mutex guards rules and random numbers. Each operation takes it to choose the rule, and
//! releases it before the transfer. Without rules it is not taken.
//!
//! ```text
//! let disk = Arc::new(MemoryDevice::new("disk0", 1 << 20));
//! let worn = Faulty::new(disk, 42)
//!     .with(Fault::error(Op::Read).sectors(0.001))
//!     .with(Fault::corruption().within(0..262_144).chance(0.01))
//!     .with(Fault::error(Op::Write).times(1));
//! ```

use crate::error::{Op, Result};
use crate::io::Io;
use crate::order::{Order, Position};
use crate::{Device, DeviceInfo, pieces};
use bytes::Bytes;
use cenote_runtime::{Rng, Runtime};
use parking_lot::Mutex;
use std::fmt::{self, Display, Formatter};
use std::io::Error;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

/// The unit in which media go bad.
const SECTOR_BYTES: u64 = 512;

/// A rule: effect, place, frequency.
#[derive(Clone)]
pub struct Fault {
    effect: Effect,
    range: Range<u64>,
    when: When,
    after: u64,
    times: u64,
}

#[derive(Clone)]
enum Effect {
    Error(Op),
    Hang(Op),
    /// After this time, or when the rule is removed.
    Later(Op, Option<Duration>, Runtime),
    Corruption,
    TornWrite,
    LostWrite,
}

#[derive(Debug, Clone, Copy)]
enum When {
    Chance(f64),
    Sectors(f64),
}

impl Fault {
    /// Fails with EIO and does nothing. A failed flush may lose writes, as on Linux: the next one succeeds.
    pub fn error(op: Op) -> Fault {
        Fault::new(Effect::Error(op))
    }

    /// Never completes, and does nothing.
    pub fn hang(op: Op) -> Fault {
        Fault::new(Effect::Hang(op))
    }

    /// Begins when the rule is removed: a temporarily unresponsive device.
    pub fn hang_for_now(op: Op, runtime: &Runtime) -> Fault {
        Fault::new(Effect::Later(op, None, runtime.clone()))
    }

    /// Begins later by this time.
    pub fn delay(op: Op, by: Duration, runtime: &Runtime) -> Fault {
        Fault::new(Effect::Later(op, Some(by), runtime.clone()))
    }

    /// Reads one wrong bit (one in each bad sector, for [`Fault::sectors`]).
    pub fn corruption() -> Fault {
        Fault::new(Effect::Corruption)
    }

    /// Writes only the first sectors, and reports success.
    pub fn torn_write() -> Fault {
        Fault::new(Effect::TornWrite)
    }

    /// Writes nothing, and reports success.
    pub fn lost_write() -> Fault {
        Fault::new(Effect::LostWrite)
    }

    fn new(effect: Effect) -> Fault {
        Fault { effect, range: 0..u64::MAX, when: When::Chance(1.0), after: 0, times: u64::MAX }
    }

    /// Only operations that touch these bytes, and flushes.
    pub fn within(self, range: Range<u64>) -> Fault {
        Fault { range, ..self }
    }

    /// Strikes with this probability.
    pub fn chance(self, probability: f64) -> Fault {
        Fault { when: When::Chance(probability), ..self }
    }

    /// Strikes bad sectors (512 bytes): this share of all, always the same.
    pub fn sectors(self, share: f64) -> Fault {
        Fault { when: When::Sectors(share), ..self }
    }

    /// Spares this many operations first.
    pub fn after(self, operations: u64) -> Fault {
        Fault { after: operations, ..self }
    }

    /// Strikes at most this many operations.
    pub fn times(self, times: u64) -> Fault {
        Fault { times, ..self }
    }

    fn op(&self) -> Op {
        match self.effect {
            Effect::Error(op) | Effect::Hang(op) | Effect::Later(op, ..) => op,
            Effect::Corruption => Op::Read,
            Effect::TornWrite | Effect::LostWrite => Op::Write,
        }
    }

    /// A flush touches no sector, and so no bad one.
    fn chance_of_flush(&self) -> f64 {
        match self.when {
            When::Chance(probability) => probability,
            When::Sectors(_) => 0.0,
        }
    }
}

/// As shown in a list of faults: `read errors on 5 % of all sectors`.
impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.effect {
            Effect::Error(op) => write!(f, "{op} errors")?,
            Effect::Hang(op) | Effect::Later(op, None, _) => write!(f, "hanging {op} operations")?,
            Effect::Later(op, Some(by), _) => write!(f, "{op} operations delayed by {by:?}")?,
            Effect::Corruption => f.write_str("wrong bits in what is read")?,
            Effect::TornWrite => f.write_str("torn writes")?,
            Effect::LostWrite => f.write_str("lost writes")?,
        }
        match self.when {
            When::Chance(1.0) => {}
            When::Chance(probability) => write!(f, ", {} % of them", 100.0 * probability)?,
            When::Sectors(share) => write!(f, " on {} % of all sectors", 100.0 * share)?,
        }
        if self.range != (0..u64::MAX) {
            write!(f, ", bytes {} to {}", self.range.start, self.range.end)?;
        }
        if self.after > 0 {
            write!(f, ", after {} more", self.after)?;
        }
        match self.times {
            u64::MAX => Ok(()),
            times => write!(f, ", {times} more times"),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({self})")
    }
}

/// A device that fails by rules; clones share its state.
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<dyn Device>,
    faults: Arc<Faults>,
}

/// The rules of a failing device, changeable during use.
pub struct Faults {
    seed: u64,
    /// There are rules, or it is unplugged.
    is_armed: AtomicBool,
    state: Mutex<FaultState>,
    /// Set by the first delayed operation; changes take their turn here from then on.
    late: OnceLock<(Runtime, Order)>,
    /// Notified when rules change.
    changed: Notify,
}

struct FaultState {
    rng: Rng,
    /// Ascending by number.
    rules: Vec<Rule>,
    next: u64,
    injected: u64,
    is_unplugged: bool,
}

/// An active fault.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its number, for removal.
    pub number: u64,
    /// The fault.
    pub fault: Fault,
    /// Operations struck.
    pub struck: u64,
}

struct Strike {
    rule: u64,
    effect: Effect,
    places: Vec<u64>,
}

impl Faulty {
    /// A device without faults yet.
    pub fn new(inner: Arc<dyn Device>, seed: u64) -> Faulty {
        Faulty::by(inner, Arc::new(Faults::new(seed)))
    }

    /// A device that fails by these rules.
    pub fn by(inner: Arc<dyn Device>, faults: Arc<Faults>) -> Faulty {
        Faulty { inner, faults }
    }

    /// Adds a rule after the existing ones.
    pub fn with(self, fault: Fault) -> Faulty {
        self.add(fault);
        self
    }
}

impl Deref for Faulty {
    type Target = Faults;

    fn deref(&self) -> &Faults {
        &self.faults
    }
}

impl Faults {
    /// No rules yet.
    pub fn new(seed: u64) -> Faults {
        let rng = Rng::new(seed);
        let state = FaultState { rng, rules: Vec::new(), next: 0, injected: 0, is_unplugged: false };
        let (is_armed, late, changed) = (AtomicBool::new(false), OnceLock::new(), Notify::new());
        Faults { seed, is_armed, state: Mutex::new(state), late, changed }
    }

    /// Adds a rule; returns its number.
    pub fn add(&self, fault: Fault) -> u64 {
        self.change(|state| {
            let number = state.next;
            state.next += 1;
            state.rules.push(Rule { number, fault, struck: 0 });
            number
        })
    }

    /// Removes a rule; returns whether it existed.
    pub fn remove(&self, number: u64) -> bool {
        self.change(|state| {
            let before = state.rules.len();
            state.rules.retain(|rule| rule.number != number);
            state.rules.len() < before
        })
    }

    /// All rules, in order.
    pub fn rules(&self) -> Vec<Rule> {
        self.state.lock().rules.clone()
    }

    /// Removes all rules.
    pub fn heal(&self) {
        self.change(|state| state.rules.clear());
    }

    /// Unplugs the device, so that every operation fails, or plugs it in.
    pub fn unplug(&self, is_unplugged: bool) {
        self.change(|state| state.is_unplugged = is_unplugged);
    }

    /// Number of operations struck so far.
    pub fn injected(&self) -> u64 {
        self.state.lock().injected
    }

    fn change<T>(&self, change: impl FnOnce(&mut FaultState) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        self.is_armed.store(state.is_unplugged || !state.rules.is_empty(), Ordering::Release);
        drop(state);
        self.changed.notify_waiters();
        changed
    }

    async fn removed(&self, number: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, or the notification could fall between the two.
            changed.as_mut().enable();
            if self.state.lock().rules.iter().all(|rule| rule.number != number) {
                return;
            }
            changed.await;
        }
    }

    fn strike(&self, op: Op, offset: u64, len: u64) -> Option<Strike> {
        if !self.is_armed.load(Ordering::Acquire) {
            return None;
        }
        let state = &mut *self.state.lock();
        if state.is_unplugged {
            state.injected += 1;
            return Some(Strike { rule: u64::MAX, effect: Effect::Error(op), places: Vec::new() });
        }
        let mut wrong: Option<Strike> = None;
        for Rule { number, fault: rule, struck } in &mut state.rules {
            let is_corruption = matches!(rule.effect, Effect::Corruption);
            if rule.op() != op || rule.times == 0 || (wrong.is_some() && !is_corruption) {
                continue;
            }
            let touched = rule.range.start.max(offset)..rule.range.end.min(offset + len);
            let places = match rule.when {
                _ if op == Op::Flush => state.rng.chance(rule.chance_of_flush()).then(Vec::new),
                _ if touched.is_empty() => None,
                When::Chance(probability) => {
                    let place = touched.start + state.rng.below(touched.end - touched.start);
                    state.rng.chance(probability).then(|| vec![place])
                }
                When::Sectors(share) => bad_places(self.seed ^ *number, share, touched),
            };
            if places.is_some() && rule.after > 0 {
                rule.after -= 1;
                continue;
            }
            if let Some(places) = places {
                rule.times = if rule.times == u64::MAX { u64::MAX } else { rule.times - 1 };
                *struck += 1;
                state.injected += u64::from(wrong.is_none());
                match &mut wrong {
                    None if !is_corruption => {
                        return Some(Strike { rule: *number, effect: rule.effect.clone(), places });
                    }
                    None => wrong = Some(Strike { rule: *number, effect: Effect::Corruption, places }),
                    Some(strike) => strike.places.extend(places),
                }
            }
        }
        wrong.map(|mut strike| {
            strike.places.sort_unstable();
            strike.places.dedup();
            strike
        })
    }
}

impl Faulty {
    fn error(&self, op: Op, offset: u64, len: u64) -> Result<()> {
        Err(self.info().io_error(op, offset, len, Error::from_raw_os_error(libc::EIO)))
    }

    /// An operation without data.
    fn gate(
        &self,
        op: Op,
        range: (u64, u64),
        then: impl FnOnce(&dyn Device) -> Io<()> + Send + 'static,
    ) -> Io<()> {
        match self.strike(op, range.0, range.1).map(|strike| (strike.rule, strike.effect)) {
            None => self.change(range, then),
            Some((_, Effect::Hang(_))) => Io::never(),
            Some((rule, Effect::Later(_, by, runtime))) => self.later(&runtime, (rule, by), range, then),
            Some(_) => {
                if op == Op::Flush {
                    self.inner.lose_unflushed();
                }
                Io::done(self.error(op, range.0, range.1))
            }
        }
    }

    /// A change of a range (empty for a flush), behind delayed ones.
    fn change(
        &self,
        (offset, len): (u64, u64),
        then: impl FnOnce(&dyn Device) -> Io<()> + Send + 'static,
    ) -> Io<()> {
        let Some((runtime, order)) = self.late.get() else { return then(&*self.inner) };
        match order.enter(offset, len) {
            Position::First(turn) => then(&*self.inner).holding(turn),
            place => {
                let inner = self.inner.clone();
                Io::pending(runtime, async move {
                    let _turn = place.turn().await;
                    then(&*inner).await
                })
            }
        }
    }

    fn later<T: Send>(
        &self,
        runtime: &Runtime,
        (rule, by): (u64, Option<Duration>),
        (offset, len): (u64, u64),
        then: impl FnOnce(&dyn Device) -> Io<T> + Send + 'static,
    ) -> Io<T> {
        let (_, order) = self.late.get_or_init(|| (runtime.clone(), Order::default()));
        let (place, of, time) = (order.enter(offset, len), self.clone(), runtime.clone());
        Io::pending(runtime, async move {
            let _turn = place.turn().await;
            match by {
                Some(by) => time.sleep(by).await,
                None => of.removed(rule).await,
            }
            then(&*of.inner).await
        })
    }
}

/// A bad byte in each bad sector of the range, or `None`.
fn bad_places(seed: u64, share: f64, range: Range<u64>) -> Option<Vec<u64>> {
    let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
    let bad = sectors.filter_map(|sector| {
        let mut rng = Rng::stream(seed, sector);
        rng.chance(share).then(|| sector * SECTOR_BYTES + rng.below(SECTOR_BYTES))
    });
    let places: Vec<u64> = bad.collect();
    (!places.is_empty()).then_some(places)
}

/// `bytes`, read at `offset`, with a wrong bit at each place.
fn corrupted(bytes: Bytes, offset: u64, places: &[u64]) -> Bytes {
    let mut bytes = Vec::from(bytes);
    for place in places {
        if let Some(byte) = place.checked_sub(offset).and_then(|at| bytes.get_mut(at as usize)) {
            *byte ^= 1 << (place % 8);
        }
    }
    Bytes::from(bytes)
}

impl Device for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        let in_range = self.info().check_range(Op::Read, offset, len as u64).is_ok();
        let strike = if in_range { self.strike(Op::Read, offset, len as u64) } else { None };
        match strike {
            None => self.inner.read_at(offset, len),
            Some(Strike { effect: Effect::Corruption, places, .. }) => {
                self.inner.read_at(offset, len).map(move |read| Ok(corrupted(read?, offset, &places)))
            }
            Some(Strike { effect: Effect::Hang(_), .. }) => Io::never(),
            Some(Strike { effect: Effect::Later(_, by, runtime), rule, .. }) => {
                self.later(&runtime, (rule, by), (offset, 0), move |inner| inner.read_at(offset, len))
            }
            Some(_) => Io::done(self.error(Op::Read, offset, len as u64).map(|()| Bytes::new())),
        }
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        let len = data.len() as u64;
        let in_range = self.info().check_writable(Op::Write, offset, len).is_ok();
        let strike = if in_range { self.strike(Op::Write, offset, len) } else { None };
        match strike {
            None => self.change((offset, len), move |inner| inner.write_at(offset, data)),
            Some(Strike { effect: Effect::LostWrite, .. }) => Io::done(Ok(())),
            Some(Strike { effect: Effect::TornWrite, places, .. }) => {
                // Only the sectors before the struck one.
                let place = places.first().copied().unwrap_or(offset);
                let kept = (place - place % SECTOR_BYTES).saturating_sub(offset);
                let data = data.slice(..kept as usize);
                self.change((offset, kept), move |inner| inner.write_at(offset, data))
            }
            Some(Strike { effect: Effect::Hang(_), .. }) => Io::never(),
            Some(Strike { effect: Effect::Later(_, by, runtime), rule, .. }) => {
                self.later(&runtime, (rule, by), (offset, len), move |inner| inner.write_at(offset, data))
            }
            Some(_) => Io::done(self.error(Op::Write, offset, len)),
        }
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        if self.is_armed.load(Ordering::Acquire) {
            let of = self.clone();
            return self.write_at(offset, data).then(move |()| of.flush());
        }
        self.change((offset, data.len() as u64), move |inner| inner.write_through(offset, data))
    }

    fn read_pieces(&self, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
        match self.is_armed.load(Ordering::Acquire) {
            true => pieces::read(self, offset, lens),
            false => self.inner.read_pieces(offset, lens),
        }
    }

    fn write_pieces(&self, offset: u64, data: Vec<Bytes>) -> Io<()> {
        match self.is_armed.load(Ordering::Acquire) {
            true => pieces::write(self, offset, data),
            false => {
                let bytes = data.iter().map(|piece| piece.len() as u64).sum();
                self.change((offset, bytes), move |inner| inner.write_pieces(offset, data))
            }
        }
    }

    fn flush(&self) -> Io<()> {
        self.gate(Op::Flush, (0, 0), |inner| inner.flush())
    }

    fn lose_unflushed(&self) {
        self.inner.lose_unflushed();
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        let in_range = self.info().check_writable(Op::Discard, offset, len).is_ok();
        match in_range {
            true => self.gate(Op::Discard, (offset, len), move |inner| inner.discard(offset, len)),
            false => self.inner.discard(offset, len),
        }
    }

    fn has_hole(&self, offset: u64, len: u64) -> Io<bool> {
        self.inner.has_hole(offset, len)
    }

    fn is_there(&self) -> Io<bool> {
        match self.state.lock().is_unplugged {
            true => Io::done(Ok(false)),
            false => self.inner.is_there(),
        }
    }

    fn size_now(&self) -> Io<u64> {
        self.inner.size_now()
    }

    fn grown(&self) -> Io<Option<Arc<dyn Device>>> {
        let faults = self.faults.clone();
        let above = |inner| Arc::new(Faulty::by(inner, faults)) as Arc<dyn Device>;
        self.inner.grown().map(|grown| Ok(grown?.map(above)))
    }
}
