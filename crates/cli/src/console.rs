//! The terminal of a command as its verb uses it: notes, progress, and secrets typed or piped in.
//!
//! Idea: work begun by a command may outlive it together with its terminal, for example in the queue of a
//! txg. The streams must close with the command, because the reader of its output waits for their end.
//!
//! Locking: the progress line has a mutex of its own, held while it is redrawn.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Write};
use std::sync::{Arc, Weak};

use cenote_control::caller::CountedFiles;
use cenote_control::{Console, Input, Note};
use parking_lot::Mutex;

use cenote_serve::socket::console::hidden_line;

use crate::message::print_note;
use crate::session::Progress;
use crate::streams::Streams;

/// The streams of a command.
pub struct Terminal {
    streams: Weak<Streams>,
    progress: Mutex<Option<Progress>>,
}

impl Terminal {
    /// The terminal of these streams.
    pub fn new(streams: &Arc<Streams>) -> Terminal {
        Terminal { streams: Arc::downgrade(streams), progress: Mutex::new(None) }
    }

    fn there(&self) -> io::Result<Arc<Streams>> {
        self.streams.upgrade().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Console for Terminal {
    fn note(&self, note: Note) {
        if let Some(streams) = self.streams.upgrade() {
            print_note(&streams, note);
        }
    }

    fn progress(&self, now: Option<cenote_control::Progress<'_>>) {
        let mut shown = self.progress.lock();
        match now {
            None => shown.take().into_iter().for_each(|line| line.finish()),
            Some(now) => {
                let Some(streams) = self.streams.upgrade() else { return };
                let line = shown.get_or_insert_with(|| Progress::bytes_at(streams, now.total_bytes));
                line.message(now.what);
                line.total(now.total_bytes);
                line.set(now.done_bytes);
            }
        }
    }

    fn counted(&self, now: Option<CountedFiles<'_>>) {
        let mut shown = self.progress.lock();
        match now {
            None => shown.take().into_iter().for_each(|line| line.finish()),
            Some(now) => {
                let Some(streams) = self.streams.upgrade() else { return };
                let line = shown.get_or_insert_with(|| Progress::files_at(streams));
                line.message(now.what);
                line.set(now.files);
            }
        }
    }

    fn output(&self) -> io::Result<File> {
        self.there()?.stdout.try_clone()
    }

    fn stream(&self) -> io::Result<File> {
        self.there()?.stdin.try_clone()
    }

    fn input(&self) -> Input<'_> {
        let Ok(streams) = self.there() else { return Input::None };
        match (streams.stdin.is_terminal(), streams.stderr_screen().is_some()) {
            (true, true) => Input::Terminal,
            (true, false) => Input::None,
            // Input not read now stays for later reads.
            (false, _) => Input::Pipe(Box::new(BufReader::with_capacity(1, streams.stdin.clone()))),
        }
    }

    fn prompt(&self, text: &str) -> Option<String> {
        let streams = self.there().ok()?;
        match streams.client {
            Some(_) => prompt_at(&streams, text).ok(),
            None => rpassword::prompt_password(text).ok(),
        }
    }
}

/// Prompts at a client's terminal, without echo.
fn prompt_at(streams: &Streams, text: &str) -> io::Result<String> {
    (&*streams.stderr).write_all(text.as_bytes())?;
    let line = hidden_line(&streams.stdin);
    (&*streams.stderr).write_all(b"\n")?;
    line
}
