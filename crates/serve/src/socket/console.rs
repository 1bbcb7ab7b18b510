//! The console of a verb's caller at the other end of the socket: notes and progress go there, and secrets
//! come from the standard input that the client has passed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cenote_control::remote::{Share, Told};
use cenote_control::{Console, Input, Note, Progress};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::replies::Replies;

/// The client's console.
pub struct ClientConsole {
    replies: Arc<Replies>,
    stdin: File,
    stdout: File,
    /// Its standard error is a terminal.
    has_screen: bool,
}

impl ClientConsole {
    /// `has_screen`: its standard error is a terminal.
    pub(crate) fn new(
        replies: &Arc<Replies>,
        [stdin, stdout]: [OwnedFd; 2],
        has_screen: bool,
    ) -> ClientConsole {
        ClientConsole { replies: replies.clone(), stdin: stdin.into(), stdout: stdout.into(), has_screen }
    }
}

impl Console for ClientConsole {
    fn note(&self, note: Note) {
        self.replies.tell(&Told::Note(note));
    }

    fn progress(&self, now: Option<Progress<'_>>) {
        let share = now.map(|Progress { what, done_bytes, total_bytes }| Share {
            what: what.to_owned(),
            done_bytes,
            total_bytes,
        });
        self.replies.tell(&Told::Progress(share));
    }

    fn output(&self) -> io::Result<File> {
        self.stdout.try_clone()
    }

    fn stream(&self) -> io::Result<File> {
        self.stdin.try_clone()
    }

    fn input(&self) -> Input<'_> {
        match (self.stdin.is_terminal(), self.has_screen) {
            (true, true) => Input::Terminal,
            (true, false) => Input::None,
            // What is not read now stays for later.
            (false, _) => Input::Pipe(Box::new(BufReader::with_capacity(1, &self.stdin))),
        }
    }

    fn prompt(&self, text: &str) -> Option<String> {
        self.replies.show(text);
        let line = hidden_line(&self.stdin).ok();
        self.replies.show("\n");
        line
    }
}

/// Reads a line of a terminal, without showing what is typed.
///
/// # Errors
/// It is none, or is gone.
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
