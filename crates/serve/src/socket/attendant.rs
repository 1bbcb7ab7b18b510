//! A thread per running verb: it watches for the client's cancellation.

use std::io::{self, PipeReader, PipeWriter};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use cenote_host::cancel::Cancel;

/// The thread.
pub(super) struct Attendant {
    thread: JoinHandle<bool>,
    /// Closed when the verb has ended.
    running: PipeWriter,
}

impl Attendant {
    /// How long a client may take no data.
    pub const PATIENCE: Duration = Duration::from_secs(300);

    /// Starts the thread.
    pub fn start(stream: UnixStream, cancel: Cancel) -> io::Result<Attendant> {
        let (done, running) = io::pipe()?;
        let attend = move || attend(&stream, &cancel, &done);
        let thread = thread::Builder::new().name("cenote-attend".into()).spawn(attend)?;
        Ok(Attendant { thread, running })
    }

    /// After the verb's end, returns whether the client is still connected.
    pub fn end(self) -> bool {
        drop(self.running);
        self.thread.join().unwrap_or(false)
    }
}

/// Returns whether the client is still connected when the verb has ended.
fn attend(stream: &UnixStream, cancel: &Cancel, done: &PipeReader) -> bool {
    loop {
        let mut polled = [PollFd::new(done, PollFlags::IN), PollFd::new(stream, PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            // Out of memory: the verb must not wait for this thread.
            Err(_) => break,
        }
        let [is_done, has_news] = polled.map(|polled| !polled.revents().is_empty());
        if has_news && !hear(stream, cancel) {
            break;
        }
        if is_done {
            return true;
        }
    }
    cancel.cancel();
    false
}

/// One byte is Ctrl-C, another one is impatience; the end of the stream means that the client was killed.
fn hear(stream: &UnixStream, cancel: &Cancel) -> bool {
    let mut bytes = [0; 64];
    match recv(stream, &mut bytes[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => false,
        Ok((count, _)) => {
            (0..count).for_each(|_| cancel.cancel());
            true
        }
        Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_client_that_interrupts_stays_and_one_that_has_gone_cancels() {
        for stays in [true, false] {
            let (mut client, stream) = UnixStream::pair().unwrap();
            let cancel = Cancel::default();
            let attendant = Attendant::start(stream, cancel.clone()).unwrap();
            assert!(!cancel.is_cancelled());
            if stays {
                client.write_all(&[1]).unwrap();
            }
            let client = Some(client).filter(|_| stays);
            while !cancel.is_cancelled() {
                thread::yield_now();
            }
            assert_eq!(attendant.end(), stays);
            drop(client);
        }
    }
}
