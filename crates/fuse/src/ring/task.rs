//! Operations that go on at their core's thread, wait after wait.
//!
//! ```text
//!   the core's thread: first wait --> [ waits ] --woken, by any thread--> inbox of the core
//!                                        ^                                   |
//!                                        '------- polled by the thread <-----'  ends: answered in its call
//! ```
//!
//! Idea: the thread that polls the operation is the one that must send its answer. So the end of a wait wakes
//! one thread, not a worker and then this one.
//!
//! Locking: `operation` is locked only by the core's thread, while it polls.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::Core;

pub(super) struct Task {
    core: Arc<Core>,
    /// `None` at its end.
    operation: Mutex<Option<Operation>>,
    /// In the inbox.
    is_woken: AtomicBool,
}

type Operation = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Task {
    pub(super) fn new(core: Arc<Core>, operation: Operation) -> Arc<Task> {
        Arc::new(Task { core, operation: Mutex::new(Some(operation)), is_woken: AtomicBool::new(false) })
    }

    /// For the core's thread only.
    pub(super) fn poll(self: Arc<Task>) {
        // Cleared first: a wake-up from now on may be news to this poll.
        self.is_woken.store(false, Ordering::SeqCst);
        let mut operation = self.operation.lock();
        let Some(of_task) = operation.as_mut() else { return };
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| of_task.as_mut().poll(&mut context)));
        if !matches!(polled, Ok(Poll::Pending)) {
            // After a panic, its drop answers.
            *operation = None;
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Task>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            let core = self.core.clone();
            core.inbox.lock().woken.push(self);
            core.hurry();
        }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task(core {})", self.core.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::channel::oneshot;
    use rustix::event::{EventfdFlags, eventfd};

    fn core() -> Arc<Core> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        Arc::new(Core { number: 0, inbox: Mutex::default(), is_waiting: AtomicBool::new(true), wake })
    }

    fn woken(core: &Core) -> Vec<Arc<Task>> {
        std::mem::take(&mut core.inbox.lock().woken)
    }

    #[test]
    fn an_operation_goes_on_at_its_core_whatever_thread_ends_its_wait() {
        let core = core();
        let (first, waits) = oneshot::channel();
        let (second, waits_again) = oneshot::channel();
        let (tell, mut told) = oneshot::channel();
        core.clone().go_on(async move {
            let sum = waits.await.unwrap() + waits_again.await.unwrap();
            tell.send((sum, std::thread::current().id())).unwrap();
        });
        assert!(woken(&core).is_empty());
        for sender in [first, second] {
            core.is_waiting.store(true, Ordering::SeqCst);
            std::thread::spawn(move || sender.send(7_u32).unwrap()).join().unwrap();
            assert_eq!(rustix::io::read(&core.wake, &mut [0; 8]), Ok(8), "the core's thread is woken");
            assert_eq!(told.try_recv(), Ok(None), "nothing is done elsewhere");
            let woken = woken(&core);
            assert_eq!(woken.len(), 1);
            woken.into_iter().for_each(Task::poll);
        }
        assert_eq!(told.try_recv(), Ok(Some((14_u32, std::thread::current().id()))));
    }

    #[test]
    fn one_wake_up_is_as_good_as_many_and_is_not_lost_while_polled() {
        let core = core();
        let mut polls = 0;
        core.clone().go_on(std::future::poll_fn(move |context| {
            polls += 1;
            context.waker().wake_by_ref();
            context.waker().wake_by_ref();
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        }));
        for _ in 0..3 {
            let woken = woken(&core);
            assert_eq!(woken.len(), 1);
            woken.into_iter().for_each(Task::poll);
        }
        assert!(woken(&core).is_empty(), "it has ended");
    }

    #[test]
    fn a_panic_ends_the_operation_alone() {
        let (tell, mut told) = oneshot::channel::<()>();
        core().go_on(async move {
            let _tell = tell;
            panic!("on purpose");
        });
        assert!(told.try_recv().is_err(), "it is dropped");
    }
}
