//! This program's terminal as its verbs use it: notes, progress, and secrets typed or piped in.
//!
//! Locking: the progress line has a mutex of its own, held while it is redrawn.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal};

use cenote_control::caller::CountedFiles;
use cenote_control::{Console, Input, Note};
use parking_lot::Mutex;

use crate::message::print_note;
use crate::session::{Progress, bytes_line, files_line};
use crate::streams::streams;

/// The terminal.
#[derive(Default)]
pub struct Terminal {
    progress: Mutex<Option<Progress>>,
}

impl Console for Terminal {
    fn note(&self, note: Note) {
        print_note(note);
    }

    fn progress(&self, now: Option<cenote_control::Progress<'_>>) {
        let mut shown = self.progress.lock();
        match now {
            None => shown.take().into_iter().for_each(|line| line.finish()),
            Some(now) => {
                let line = shown.get_or_insert_with(|| bytes_line(now.total_bytes, false));
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
                let line = shown.get_or_insert_with(files_line);
                line.message(now.what);
                line.set(now.files);
            }
        }
    }

    fn output(&self) -> io::Result<File> {
        streams().stdout.try_clone()
    }

    fn stream(&self) -> io::Result<File> {
        streams().stdin.try_clone()
    }

    fn input(&self) -> Input<'_> {
        let streams = streams();
        match (streams.stdin.is_terminal(), streams.stderr_screen().is_some()) {
            (true, true) => Input::Terminal,
            (true, false) => Input::None,
            // Input not read now stays for later reads.
            (false, _) => Input::Pipe(Box::new(BufReader::with_capacity(1, streams.stdin.clone()))),
        }
    }

    fn prompt(&self, text: &str) -> Option<String> {
        rpassword::prompt_password(text).ok()
    }
}
