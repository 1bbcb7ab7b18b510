//! The terminal of a command, as its verb speaks to it: notes, progress, and secrets that are
//! typed or piped in.
//!
//! Locking: the line of progress has a mutex of its own, held while it is redrawn.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Write};
use std::sync::Arc;

use cenote_control::{Console, Input, Note};
use parking_lot::Mutex;

use cenote_serve::socket::console::hidden_line;

use crate::message::print_note;
use crate::session::Progress;
use crate::streams::Streams;

/// The streams of a command.
pub struct Terminal {
    streams: Arc<Streams>,
    progress: Mutex<Option<Progress>>,
}

impl Terminal {
    /// That of these streams.
    pub fn new(streams: Arc<Streams>) -> Terminal {
        Terminal { streams, progress: Mutex::new(None) }
    }
}

impl Console for Terminal {
    fn note(&self, note: Note) {
        print_note(&self.streams, note);
    }

    fn progress(&self, now: Option<cenote_control::Progress<'_>>) {
        let mut shown = self.progress.lock();
        match now {
            None => shown.take().into_iter().for_each(|line| line.finish()),
            Some(now) => {
                let line =
                    shown.get_or_insert_with(|| Progress::bytes_at(self.streams.clone(), now.total_bytes));
                line.message(now.what);
                line.total(now.total_bytes);
                line.set(now.done_bytes);
            }
        }
    }

    fn output(&self) -> io::Result<File> {
        self.streams.stdout.try_clone()
    }

    fn stream(&self) -> io::Result<File> {
        self.streams.stdin.try_clone()
    }

    fn input(&self) -> Input<'_> {
        match (self.streams.stdin.is_terminal(), self.streams.stderr_screen().is_some()) {
            (true, true) => Input::Terminal,
            (true, false) => Input::None,
            // What is not read now stays for later.
            (false, _) => Input::Pipe(Box::new(BufReader::with_capacity(1, &*self.streams.stdin))),
        }
    }

    fn prompt(&self, text: &str) -> Option<String> {
        match self.streams.client {
            Some(_) => prompt_at(&self.streams, text).ok(),
            None => rpassword::prompt_password(text).ok(),
        }
    }
}

/// Asks at a client's terminal, without showing what is typed.
fn prompt_at(streams: &Streams, text: &str) -> io::Result<String> {
    (&*streams.stderr).write_all(text.as_bytes())?;
    let line = hidden_line(&streams.stdin);
    (&*streams.stderr).write_all(b"\n")?;
    line
}
