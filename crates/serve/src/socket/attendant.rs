//! A thread that watches the clients of all running verbs for cancellation.
//!
//! Idea: starting and ending a thread takes as long as a short verb. The kernel adds a client to the set that
//! the thread waits for ([`epoll`]) without waking it.
//!
//! Locking: one mutex, for the clients; held for a look or a `recv` that does not wait.

use std::collections::BTreeMap;
use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use cenote_host::cancel::Cancel;

/// How long a client may take no data.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// Stands for the end of the thread.
const END: u64 = 0;
/// Events taken at once.
const EVENTS: usize = 64;

/// The thread; it ends with this.
pub struct Attendants {
    watched: Arc<Watched>,
    /// Closed at the end.
    _running: PipeWriter,
}

struct Watched {
    epoll: OwnedFd,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    last: u64,
    all: BTreeMap<u64, Client>,
}

struct Client {
    stream: UnixStream,
    cancel: Cancel,
    is_gone: bool,
}

/// A client while its verb runs.
pub(super) struct Attended<'a> {
    watched: &'a Watched,
    key: u64,
}

impl Attendants {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no descriptors or threads left.
    pub fn start() -> io::Result<Attendants> {
        let (ended, running) = io::pipe()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &ended, epoll::EventData::new_u64(END), epoll::EventFlags::IN)?;
        let watched = Arc::new(Watched { epoll, clients: Mutex::default() });
        let watching = watched.clone();
        thread::Builder::new().name("cenote-attend".into()).spawn(move || {
            watching.attend();
            drop(ended);
        })?;
        Ok(Attendants { watched, _running: running })
    }

    /// Watches a client until [`Attended::end`].
    ///
    /// # Errors
    /// The system has no memory left.
    pub(super) fn attend(&self, stream: UnixStream, cancel: Cancel) -> io::Result<Attended<'_>> {
        let mut clients = self.watched.clients.lock();
        clients.last += 1;
        let key = clients.last;
        let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.watched.epoll, &stream, epoll::EventData::new_u64(key), events)?;
        clients.all.insert(key, Client { stream, cancel, is_gone: false });
        Ok(Attended { watched: &self.watched, key })
    }
}

impl Attended<'_> {
    /// After the verb's end, returns whether the client is still connected.
    pub(super) fn end(self) -> bool {
        let mut clients = self.watched.clients.lock();
        clients.all.get_mut(&self.key).is_some_and(|client| !client.is_gone && client.hear())
    }
}

impl Drop for Attended<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.watched.clients.lock().all.remove(&self.key) {
            epoll::delete(&self.watched.epoll, &client.stream).ok();
        }
    }
}

impl Watched {
    fn attend(&self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                // Out of memory: verbs must not wait for this thread.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
            for event in &events {
                let key = event.data.u64();
                if key == END {
                    return;
                }
                let mut clients = self.clients.lock();
                let Some(client) = clients.all.get_mut(&key) else { continue };
                if !client.hear() {
                    client.is_gone = true;
                    client.cancel.cancel();
                    // Otherwise its end would be reported again and again.
                    epoll::delete(&self.epoll, &client.stream).ok();
                }
            }
        }
    }
}

impl Client {
    /// One byte is Ctrl-C, another one is impatience; the end of the stream means that the client was killed.
    fn hear(&self) -> bool {
        let mut bytes = [0; 64];
        match recv(&self.stream, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Ok((count, _)) => {
                (0..count).for_each(|_| self.cancel.cancel());
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_client_that_interrupts_stays_and_one_that_has_gone_cancels() {
        let attendants = Attendants::start().unwrap();
        let (quiet, stream) = UnixStream::pair().unwrap();
        let undisturbed = Cancel::default();
        let other = attendants.attend(stream, undisturbed.clone()).unwrap();
        for stays in [true, false] {
            let (mut client, stream) = UnixStream::pair().unwrap();
            let cancel = Cancel::default();
            let attended = attendants.attend(stream, cancel.clone()).unwrap();
            assert!(!cancel.is_cancelled());
            if stays {
                client.write_all(&[1]).unwrap();
            }
            let client = Some(client).filter(|_| stays);
            while !cancel.is_cancelled() {
                thread::yield_now();
            }
            assert_eq!(attended.end(), stays);
            drop(client);
        }
        assert!(!undisturbed.is_cancelled());
        drop(quiet);
        assert!(!other.end(), "it has gone since");
    }
}
