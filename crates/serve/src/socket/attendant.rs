//! A thread per running command: it watches for the client's cancellation, and carries output to an untrusted
//! client.
//!
//! ```text
//!   command --> pipe --> attendant --> socket --> client, which writes it to its own streams
//! ```
//!
//! Idea: the sender of a descriptor controls how writes to it behave: a full pipe, or a file on the client's
//! FUSE mount, could block the command forever. So an untrusted client's command writes to pipes of the
//! daemon, and the daemon waits for the client for a limited time. Once the client is gone, or takes nothing
//! for [`Attendant::PATIENCE`], the pipes are closed, and the command ends as with any broken pipe.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, recv};

use super::answers::{self, Kind};
use cenote_host::cancel::Cancel;

/// Bytes per copy.
const CHUNK_BYTES: usize = 32 << 10;

/// The thread.
pub(super) struct Attendant {
    thread: JoinHandle<bool>,
    /// Closed when the command has ended.
    running: PipeWriter,
}

impl Attendant {
    /// How long a client may take no data.
    pub const PATIENCE: Duration = Duration::from_secs(300);

    /// Starts the thread. `outputs`: pipes to carry.
    pub fn start(
        stream: UnixStream,
        outputs: Vec<(Kind, PipeReader)>,
        cancel: Cancel,
    ) -> io::Result<Attendant> {
        for (_, pipe) in &outputs {
            ioctl_fionbio(pipe, true)?;
        }
        let (done, running) = io::pipe()?;
        let attend = move || {
            let mut attending = Attending { stream, outputs, cancel, is_here: true };
            attending.until(&done);
            attending.is_here
        };
        let thread = thread::Builder::new().name("cenote-attend".into()).spawn(attend)?;
        Ok(Attendant { thread, running })
    }

    /// After the command's end, carries the rest; returns whether the client is still connected.
    pub fn end(self) -> bool {
        drop(self.running);
        self.thread.join().unwrap_or(false)
    }
}

struct Attending {
    stream: UnixStream,
    outputs: Vec<(Kind, PipeReader)>,
    cancel: Cancel,
    is_here: bool,
}

impl Attending {
    fn until(&mut self, done: &PipeReader) {
        loop {
            let mut polled = vec![PollFd::new(done, PollFlags::IN)];
            polled.extend(self.is_here.then(|| PollFd::new(&self.stream, PollFlags::IN)));
            polled.extend(self.outputs.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)));
            match poll(&mut polled, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                // Out of memory: the command must not wait for this thread.
                Err(_) => return self.leave(),
            }
            let is = |at: usize| !polled[at].revents().is_empty();
            let (is_done, has_news) = (is(0), self.is_here && is(1));
            if has_news {
                self.hear();
            }
            self.carry();
            if is_done {
                return;
            }
        }
    }

    /// One byte is Ctrl-C, another one is impatience; the end of the stream means that the client was killed.
    fn hear(&mut self) {
        let mut bytes = [0; 64];
        match recv(&self.stream, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.leave(),
            Ok((count, _)) => (0..count).for_each(|_| self.cancel.cancel()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.leave(),
        }
    }

    fn carry(&mut self) {
        let mut chunk = vec![0; if self.outputs.is_empty() { 0 } else { CHUNK_BYTES }];
        let mut at = 0;
        while let Some((kind, pipe)) = self.outputs.get_mut(at) {
            match pipe.read(&mut chunk) {
                Ok(0) => drop(self.outputs.remove(at)),
                Ok(count) => {
                    if answers::send(&self.stream, *kind, &chunk[..count]).is_err() {
                        return self.leave();
                    }
                }
                // The pipe is empty.
                Err(_) => at += 1,
            }
        }
    }

    /// The client is gone: cancels the command and discards its output.
    fn leave(&mut self) {
        self.is_here = false;
        // In this order: a command that meets the closed pipe is cancelled already.
        self.cancel.cancel();
        self.outputs.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn attended(patience: Duration) -> (UnixStream, Attendant, PipeWriter, Cancel) {
        let (client, stream) = UnixStream::pair().unwrap();
        stream.set_write_timeout(Some(patience)).unwrap();
        let ((reader, writer), cancel) = (io::pipe().unwrap(), Cancel::default());
        let outputs = vec![(Kind::Output, reader)];
        let attendant = Attendant::start(stream, outputs, cancel.clone()).unwrap();
        (client, attendant, writer, cancel)
    }

    #[test]
    fn output_is_carried_and_the_last_of_it_too() {
        let (mut client, attendant, mut writer, cancel) = attended(Attendant::PATIENCE);
        let sent: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
        let expected = sent.clone();
        let reads = thread::spawn(move || {
            let mut got = Vec::new();
            while let Ok((kind, content)) = answers::receive(&mut client) {
                assert_eq!(kind, Kind::Output);
                got.extend(content);
            }
            got
        });
        writer.write_all(&sent).unwrap();
        // A part of the program may still hold the pipe.
        assert!(attendant.end() && !cancel.is_cancelled());
        drop(writer);
        assert!(reads.join().unwrap() == expected);
    }

    #[test]
    fn a_command_whose_client_has_gone_or_does_not_read_can_end() {
        for stays in [false, true] {
            let (client, attendant, mut writer, cancel) = attended(Duration::from_millis(200));
            let client = Some(client).filter(|_| stays);
            let error = loop {
                if let Err(error) = writer.write_all(&[0; 4096]) {
                    break error;
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            assert!(cancel.is_cancelled() && !attendant.end());
            drop(client);
        }
    }
}
