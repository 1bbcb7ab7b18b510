//! The threads that read requests from `/dev/fuse`, for all sessions of this process.
//!
//! ```text
//!   kernel: a request on the descriptor of session n --> epoll --> a thread: reads and begins requests of n
//!                                                          ^                 until there is none
//!                                                          '-- again -- after a share of them, behind others
//! ```
//!
//! Idea: of thousands of sessions few are busy. An idle one costs an entry of an epoll.
//!
//! Events are edges: each new request announces its session to one thread. A thread leaves a session without
//! requests, so no edge is lost; or after its share, when it asks for an event itself.
//!
//! A session with too many operations is left alone until it has room again ([`Unread`]).
//!
//! Locking: `sessions` is locked for one look or change.
//!
//! Source: epoll(7), Linux `fs/fuse/dev.c` (`fuse_dev_poll`, `fuse_dev_queue_req`).

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;
use rustix::event::epoll;
use rustix::io::Errno;

/// Most requests of a session that a thread reads before it looks at others.
const SHARE: usize = 32;

/// A session's way in.
pub trait Serve: Send + Sync {
    /// Its `/dev/fuse`, which does not block.
    fn device(&self) -> BorrowedFd<'_>;

    /// Reads a request and begins its operation. `again` leads back here.
    fn serve(&self, buffer: &mut Vec<u8>, again: Unread) -> Served;
}

/// The result of a look for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// There was one.
    One,
    /// There is none.
    None,
    /// There may be some, which are read later: the session keeps the [`Unread`].
    Later,
    /// The session has ended.
    Ended,
}

struct Readers {
    epoll: OwnedFd,
    sessions: Mutex<BTreeMap<u64, Arc<dyn Serve>>>,
    numbers: AtomicU64,
}

static READERS: Mutex<(Option<Arc<Readers>>, usize)> = Mutex::new((None, 0));

/// A session not read to its last request.
#[derive(Debug, Clone)]
pub struct Unread {
    readers: Arc<Readers>,
    number: u64,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sessions", self.sessions.lock().len())
    }
}

/// Serves a session until it ends, by at least so many threads for all of them.
///
/// # Errors
/// No thread can be started, or the kernel refuses the descriptor.
pub fn serve(session: Arc<dyn Serve>, threads: usize) -> io::Result<()> {
    let readers = with_threads(threads)?;
    let number = readers.numbers.fetch_add(1, Ordering::Relaxed);
    // Before the first event.
    readers.sessions.lock().insert(number, session.clone());
    let added = epoll::add(&readers.epoll, session.device(), epoll::EventData::new_u64(number), edges());
    if added.is_err() {
        readers.sessions.lock().remove(&number);
    }
    Ok(added?)
}

fn with_threads(threads: usize) -> io::Result<Arc<Readers>> {
    let mut all = READERS.lock();
    let readers = match &all.0 {
        Some(readers) => readers.clone(),
        None => {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let (sessions, numbers) = Default::default();
            all.0.insert(Arc::new(Readers { epoll, sessions, numbers })).clone()
        }
    };
    while all.1 < threads.max(1) {
        let readers = readers.clone();
        thread::Builder::new().name("cenote-fuse".into()).spawn(move || readers.run())?;
        all.1 += 1;
    }
    Ok(readers)
}

fn edges() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ET
}

impl Readers {
    fn run(self: Arc<Self>) {
        let mut buffer = Vec::new();
        loop {
            let mut event = [MaybeUninit::uninit()];
            // One: others are for other threads.
            let number = match epoll::wait(&self.epoll, &mut event, None) {
                Ok((events, _)) => events.first().map(|event| event.data.u64()),
                Err(Errno::INTR) => None,
                // The epoll is there as long as the process.
                Err(_) => return,
            };
            let Some(number) = number else { continue };
            let Some(session) = self.sessions.lock().get(&number).cloned() else { continue };
            // One session's fault must not take the thread from all others.
            let read = || self.read(number, &*session, &mut buffer);
            if catch_unwind(AssertUnwindSafe(read)).is_err() {
                self.unread(number).again();
            }
        }
    }

    fn read(self: &Arc<Self>, number: u64, session: &dyn Serve, buffer: &mut Vec<u8>) {
        for _ in 0..SHARE {
            match session.serve(buffer, self.unread(number)) {
                Served::One => {}
                Served::None | Served::Later => return,
                Served::Ended => {
                    epoll::delete(&self.epoll, session.device()).ok();
                    self.sessions.lock().remove(&number);
                    return;
                }
            }
        }
        self.unread(number).again();
    }

    fn unread(self: &Arc<Self>, number: u64) -> Unread {
        Unread { readers: self.clone(), number }
    }
}

impl Unread {
    /// Lets a thread look again.
    pub fn again(self) {
        let session = self.readers.sessions.lock().get(&self.number).cloned();
        if let Some(session) = session {
            let data = epoll::EventData::new_u64(self.number);
            // Fails only if it has just been removed.
            epoll::modify(&self.readers.epoll, session.device(), data, edges()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// A session whose requests are single bytes.
    struct Piped {
        end: OwnedFd,
        requests: Sender<u8>,
        /// Full while this is locked.
        is_full: Arc<Mutex<()>>,
        unread: Arc<Mutex<Option<Unread>>>,
    }

    impl Serve for Piped {
        fn device(&self) -> BorrowedFd<'_> {
            self.end.as_fd()
        }

        fn serve(&self, _buffer: &mut Vec<u8>, again: Unread) -> Served {
            *self.unread.lock() = Some(again);
            if self.is_full.is_locked() {
                return Served::Later;
            }
            let mut byte = [0];
            match rustix::io::read(&self.end, &mut byte) {
                Ok(1) => self.requests.send(byte[0]).map_or(Served::Ended, |()| Served::One),
                Err(Errno::AGAIN) => Served::None,
                _ => Served::Ended,
            }
        }
    }

    struct Other {
        end: OwnedFd,
        requests: Receiver<u8>,
        is_full: Arc<Mutex<()>>,
        unread: Arc<Mutex<Option<Unread>>>,
    }

    fn session() -> Other {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let (sender, requests) = channel();
        let (is_full, unread) = (Arc::<Mutex<()>>::default(), Arc::<Mutex<_>>::default());
        let piped = Piped { end: read, requests: sender, is_full: is_full.clone(), unread: unread.clone() };
        serve(Arc::new(piped), 2).unwrap();
        Other { end: write, requests, is_full, unread }
    }

    #[test]
    fn few_threads_serve_many_sessions_until_each_ends() {
        let sessions: Vec<Other> = (0..200).map(|_| session()).collect();
        // More than a thread's share.
        let requests: Vec<u8> = (0..3 * SHARE as u8).collect();
        for session in sessions.iter().rev() {
            assert_eq!(rustix::io::write(&session.end, &requests), Ok(requests.len()));
        }
        for session in sessions {
            let mut served: Vec<u8> = session.requests.iter().take(requests.len()).collect();
            // Two threads may bring them.
            served.sort();
            assert_eq!(served, requests);
            drop(session.end);
            assert!(session.requests.recv().is_err(), "it has ended");
        }
        assert_eq!(READERS.lock().1, 2);
    }

    #[test]
    fn a_session_without_room_is_read_when_it_has_room() {
        let session = session();
        let full = session.is_full.lock();
        rustix::io::write(&session.end, &[7]).unwrap();
        let unread = loop {
            match session.unread.lock().take() {
                Some(unread) => break unread,
                None => thread::yield_now(),
            }
        };
        drop(full);
        unread.again();
        assert_eq!(session.requests.recv(), Ok(7));
    }
}
