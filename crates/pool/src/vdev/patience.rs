//! Bounds the wait for a device's answers, and tracks the answers still due.
//!
//! A device that does not answer within its deadline ([`cenote_device::Nature`]), or is given up earlier, is
//! out of use until its errors are cleared: a pool waits for a hung disk once, then continues as if it had
//! failed. Late writes do no harm: the disk misses all later txgs, and is not used again before it has
//! answered.
//!
//! ```text
//!   asked --+-- answered
//!           |-- the asker is dropped: the operation goes on, and keeps its permit
//!           |-- SLOW: other leaves are read in its place, if they hold the same; the device may be given up
//!           '-- deadline, or given up: out of use; the operation is late, and stays with the device until it
//!               is over
//! ```
//!
//! So a device's queue knows its load even if callers have gone.
//!
//! Locking: none; relaxed flags and counts. `over` is notified when no answer is due any more.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cenote_device::{Device, DeviceError, Io, Op};
use cenote_runtime::{Instant, Runtime};
use tokio::sync::Notify;

use super::queue::QueueSettings;

pub(crate) const SLOW: Duration = Duration::from_secs(5);

pub(crate) struct Patience {
    pub(crate) device: Arc<dyn Device>,
    runtime: Runtime,
    settings: Arc<QueueSettings>,
    /// Shared with the same device before it grew.
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    hung: AtomicBool,
    /// Late changes, without a waiter.
    late: AtomicU64,
    /// Changes under way, including late ones.
    owed: AtomicU64,
    over: Notify,
    /// Slow operations waited for.
    slow: AtomicU64,
    slow_since_ns: AtomicU64,
    given_up: Notify,
    /// Operations that took `zio_slow_io_ms` or longer.
    slow_ios: AtomicU64,
}

/// A change, or a series of them.
pub(crate) struct Owed(Arc<State>);

struct Late(Arc<State>);

struct Slow(Arc<State>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    Patient,
    /// Waits up to [`SLOW`].
    Hasty,
}

impl Patience {
    pub(crate) fn new(runtime: &Runtime, device: Arc<dyn Device>, settings: &Arc<QueueSettings>) -> Patience {
        let (runtime, settings) = (runtime.clone(), settings.clone());
        Patience { device, runtime, settings, state: Arc::default() }
    }

    pub(crate) fn on(&self, grown: Arc<dyn Device>) -> Patience {
        let (runtime, settings) = (self.runtime.clone(), self.settings.clone());
        Patience { device: grown, runtime, settings, state: self.state.clone() }
    }

    pub(crate) fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// An operation timed out, or a late change is unanswered.
    pub(crate) fn is_hung(&self) -> bool {
        self.state.hung.load(Ordering::Relaxed) || self.state.late.load(Ordering::Relaxed) > 0
    }

    /// Late changes still count until answered.
    pub(crate) fn forgive(&self) {
        self.state.hung.store(false, Ordering::Relaxed);
    }

    /// Start of the oldest slow operation, if any.
    pub(crate) fn slow_since(&self) -> Option<Instant> {
        let since =
            || Instant::default() + Duration::from_nanos(self.state.slow_since_ns.load(Ordering::Relaxed));
        self.is_slow().then(since)
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.state.slow.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn slow_ios(&self) -> u64 {
        self.state.slow_ios.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_slow_ios(&self) {
        self.state.slow_ios.store(0, Ordering::Relaxed);
    }

    pub(crate) fn give_up(&self) {
        self.state.hung.store(true, Ordering::Relaxed);
        self.state.given_up.notify_waiters();
        self.state.over.notify_waiters();
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.state.late.load(Ordering::Relaxed) == 0
    }

    /// Marks a series of changes as under way.
    pub(crate) fn owe(&self) -> Owed {
        Owed::new(&self.state)
    }

    /// Waits for all changes, unless the device hangs. Reads are harmless.
    pub(crate) async fn idle(&self) {
        loop {
            let mut over = std::pin::pin!(self.state.over.notified());
            // Registered before the check, or the last notification could fall between the two.
            over.as_mut().enable();
            if self.state.owed.load(Ordering::Acquire) == 0 || self.is_hung() {
                return;
            }
            over.await;
        }
    }

    /// `kept` (a permit) is held until the answer, even if the caller is dropped.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        what: (Op, u64, u64),
        kept: impl Send + 'static,
        begin: impl FnOnce(&dyn Device) -> Io<T>,
    ) -> Result<T, DeviceError> {
        self.answer(what, kept, self.begin(what.0, begin), Haste::Patient).await
    }

    /// `None`: a hung device gets no changes.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        op: Op,
        begin: impl FnOnce(&dyn Device) -> Io<T>,
    ) -> Option<Io<T>> {
        (!(is_change(op) && self.is_hung())).then(|| begin(&*self.device))
    }

    pub(crate) async fn answer<T: Send + 'static>(
        &self,
        (op, offset_bytes, len): (Op, u64, u64),
        kept: impl Send + 'static,
        io: Option<Io<T>>,
        haste: Haste,
    ) -> Result<T, DeviceError> {
        let io = match io {
            Some(io) if io.is_done() => return io.await,
            Some(io) if !self.is_hung() => io,
            _ => return Err(no_answer(&*self.device, op, offset_bytes, len)),
        };
        let (device, runtime, state) = (self.device.clone(), self.runtime.clone(), self.state.clone());
        let owed = is_change(op).then(|| Owed::new(&state));
        let late_answer = no_answer(&*device, op, offset_bytes, len);
        let deadline = device.info().nature.deadline;
        let (begun, settings) = (runtime.now(), self.settings.clone());
        let answer = async move {
            let mut io = io;
            if let Ok(answer) = runtime.timeout(SLOW, &mut io).await {
                state.judge(op, runtime.now() - begun, &settings);
                drop((owed, kept));
                return answer;
            }
            let slow = Slow::new(&state, runtime.now());
            let time = runtime.clone();
            let rest = async move {
                let _kept = kept;
                let answer =
                    state.unless_given_up(time.timeout(deadline.saturating_sub(SLOW), &mut io)).await;
                state.judge(op, time.now() - begun, &settings);
                drop(slow);
                if let Some(Ok(answer)) = answer {
                    drop(owed);
                    return answer;
                }
                state.hung.store(true, Ordering::Relaxed);
                let late = owed.map(|owed| (owed, Late::new(&state)));
                drop(io.holding(late));
                state.over.notify_waiters();
                Err(no_answer(&*device, op, offset_bytes, len))
            };
            match haste {
                Haste::Patient => rest.await,
                Haste::Hasty => {
                    runtime.spawn(rest).detach();
                    Err(late_answer)
                }
            }
        };
        self.runtime.to_end(answer).await
    }

    /// `None` if the device does not answer.
    pub(crate) async fn within<T>(&self, asking: impl Future<Output = T>) -> Option<T> {
        if self.is_hung() {
            return None;
        }
        let answer = self.runtime.timeout(self.device.info().nature.deadline, asking).await;
        if answer.is_err() {
            self.state.hung.store(true, Ordering::Relaxed);
            self.state.over.notify_waiters();
        }
        answer.ok()
    }
}

impl State {
    /// Counts an operation that was slow (`zio_done`). Flushes have no usual time.
    fn judge(&self, op: Op, took: Duration, settings: &QueueSettings) {
        if op != Op::Flush && took >= settings.slow_io() {
            self.slow_ios.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `None` if the device is given up first.
    async fn unless_given_up<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut given_up = std::pin::pin!(self.given_up.notified());
        // Registered before the check, or the notification could fall between the two.
        given_up.as_mut().enable();
        if self.hung.load(Ordering::Relaxed) {
            return None;
        }
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            () = given_up => None,
        }
    }
}

impl Owed {
    fn new(state: &Arc<State>) -> Owed {
        state.owed.fetch_add(1, Ordering::Relaxed);
        Owed(state.clone())
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if self.0.owed.fetch_sub(1, Ordering::Release) == 1 {
            self.0.over.notify_waiters();
        }
    }
}

impl Late {
    fn new(state: &Arc<State>) -> Late {
        state.late.fetch_add(1, Ordering::Relaxed);
        Late(state.clone())
    }
}

impl Slow {
    fn new(state: &Arc<State>, now: Instant) -> Slow {
        if state.slow.fetch_add(1, Ordering::Relaxed) == 0 {
            let since = now.as_ns().saturating_sub(SLOW.as_nanos() as u64);
            state.slow_since_ns.store(since, Ordering::Relaxed);
        }
        Slow(state.clone())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.slow.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.0.late.fetch_sub(1, Ordering::Relaxed);
    }
}

fn is_change(op: Op) -> bool {
    matches!(op, Op::Write | Op::Discard)
}

fn no_answer(device: &dyn Device, op: Op, offset_bytes: u64, len: u64) -> DeviceError {
    let why = Error::new(ErrorKind::TimedOut, "the device does not answer and is out of use");
    device.info().io_error(op, offset_bytes, len, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vdev::leaf::Leaf;
    use crate::vdev::queue::IoClass;
    use crate::vdev::unflushed::Stake;
    use cenote_device::{Delayed, Fault, Faulty, Latency, MemoryDevice};
    use cenote_format::units::Guid;
    use cenote_runtime::SimConfig;

    const SECOND: Duration = Duration::from_secs(1);

    fn leaf(runtime: &Runtime, device: Arc<dyn Device>) -> Leaf {
        Leaf::new(runtime, Guid(1), device, &Arc::default())
    }

    #[test]
    fn a_dropped_operation_is_made_and_keeps_its_permit_until_then() {
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            let memory = Arc::new(MemoryDevice::new("disk", 1 << 20));
            let latency = Latency { fixed: SECOND, ..Latency::default() };
            let leaf = leaf(&runtime, Arc::new(Delayed::new(memory.clone(), latency, &runtime)));
            let active = || leaf.load()[IoClass::SyncWrite as usize].active;
            let write = leaf.write(IoClass::SyncWrite, Stake::NOTHING, 0, vec![7; 4096].into());
            assert!(runtime.timeout(SECOND / 2, write).await.is_err());
            assert!(runtime.timeout(SECOND / 4, leaf.idle()).await.is_err());
            assert_eq!((active(), memory.live_image()[0]), (1, 0));
            leaf.idle().await;
            assert_eq!((runtime.now().as_ns(), memory.live_image()[0]), (1_000_000_000, 7));
            runtime.yield_now().await;
            assert_eq!(active(), 0);
            // The abandoned write still needs a flush.
            leaf.flush(&Arc::default()).await;
            assert_eq!(memory.durable_image()[0], 7);
        });
    }

    #[test]
    fn a_device_that_owes_an_answer_is_out_of_use_though_it_is_forgiven() {
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            let memory = Arc::new(MemoryDevice::new("disk", 1 << 20));
            let late = Fault::delay(Op::Write, 400 * SECOND, &runtime).times(1);
            let leaf = leaf(&runtime, Arc::new(Faulty::new(memory.clone(), 1).with(late)));
            let write = async |byte: u8| {
                leaf.write(IoClass::SyncWrite, Stake::NOTHING, 0, vec![byte; 4096].into()).await
            };
            assert!(write(1).await.is_err());
            assert_eq!(runtime.now().as_ns(), 300_000_000_000);
            leaf.idle().await;
            leaf.clear_errors();
            assert!(leaf.is_hung(), "it may still write");
            assert!(write(2).await.is_err());
            runtime.sleep(101 * SECOND).await;
            assert!(!leaf.is_hung() && memory.live_image()[0] == 1);
            write(3).await.unwrap();
            assert_eq!(memory.live_image()[0], 3);
        });
    }
}
