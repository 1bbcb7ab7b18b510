//! The console of a verb's caller across the socket: notes and progress go to the client, and secrets come
//! from the standard input that it passed.
//!
//! Idea: work that outlives a verb, such as in a txg's queue, may keep the key source and thereby this
//! console. The client's streams are still closed with the verb: readers of its output wait for their end.
//!
//! Locking: the streams have their own mutex, held for one access.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cenote_control::caller::CountedFiles;
use cenote_control::remote::Told;
use cenote_control::{Console, Input, Note, Progress};
use parking_lot::Mutex;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::replies::Replies;

const INPUT: usize = 0;
const OUTPUT: usize = 1;

/// The client's console.
pub struct ClientConsole {
    replies: Arc<Replies>,
    /// Standard input and output; none: the verb has ended.
    streams: Mutex<Option<[File; 2]>>,
    /// Its standard error is a terminal.
    has_screen: bool,
}

impl ClientConsole {
    pub(crate) fn new(replies: &Arc<Replies>, streams: [OwnedFd; 2], has_screen: bool) -> ClientConsole {
        let streams = Mutex::new(Some(streams.map(File::from)));
        ClientConsole { replies: replies.clone(), streams, has_screen }
    }

    pub(crate) fn end(&self) {
        self.streams.lock().take();
    }

    fn of(&self, which: usize) -> io::Result<File> {
        let streams = self.streams.lock();
        streams.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?[which].try_clone()
    }
}

impl Console for ClientConsole {
    fn note(&self, note: Note) {
        self.replies.tell(&Told::Note(note));
    }

    fn progress(&self, now: Option<Progress<'_>>) {
        self.replies.tell(&Told::progress(now));
    }

    fn counted(&self, now: Option<CountedFiles<'_>>) {
        self.replies.tell(&Told::counted(now));
    }

    fn output(&self) -> io::Result<File> {
        self.of(OUTPUT)
    }

    fn stream(&self) -> io::Result<File> {
        self.of(INPUT)
    }

    fn input(&self) -> Input<'_> {
        let Ok(stdin) = self.of(INPUT) else { return Input::None };
        match (stdin.is_terminal(), self.has_screen) {
            (true, true) => Input::Terminal,
            (true, false) => Input::None,
            // Unread input stays for later.
            (false, _) => Input::Pipe(Box::new(BufReader::with_capacity(1, stdin))),
        }
    }

    fn prompt(&self, text: &str) -> Option<String> {
        let terminal = self.of(INPUT).ok()?;
        self.replies.show(text);
        let line = hidden_line(&terminal).ok();
        self.replies.show("\n");
        line
    }
}

/// Reads a line from a terminal without echo.
///
/// # Errors
/// No terminal, or it is gone.
pub fn hidden_line(terminal: &File) -> io::Result<String> {
    let shown = tcgetattr(terminal)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(terminal, OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = BufReader::with_capacity(1, terminal).read_line(&mut line);
    tcsetattr(terminal, OptionalActions::Flush, &shown)?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
