//! Messages on standard error. Only this module writes there.
//!
//! Idea: reporting must never abort the reported work. Standard error may be full, closed, or a pipe without
//! a reader: a message that can't be written is dropped, and the exit status still tells how the command
//! ended. `eprintln!` would panic instead; clippy denies it in the whole workspace. Messages quote file
//! names, so characters that could control a terminal are escaped.
//!
//! With `--json` each message is one JSON object per line: `{"message": TEXT}`, or for an error `{"error":
//! TEXT, "status": N}` with the exit status.
//!
//! Locking: the flag for JSON is an atomic. Any thread may print: each message is a single write.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::Ordering;

use cenote_control::Note;
use cenote_control::text::visible;
use cenote_shown::json::line;
use serde_json::json;

use crate::streams::streams;

/// Prints all later messages as JSON.
pub fn use_json() {
    streams().use_json();
}

/// Prints a message after the program's name; takes the arguments of `format!`.
macro_rules! say {
    ($($text:tt)*) => { $crate::message::say_named(format_args!($($text)*)) };
}
pub(crate) use say;

/// Prints a message after the program's name.
pub fn say_named(text: impl Display) {
    print_note(Note::Said(text.to_string()));
}

/// Prints a message as OpenZFS words it, without the program's name.
pub fn say_bare(text: impl Display) {
    print_note(Note::Bare(text.to_string()));
}

/// Prints an error.
pub fn say_error(text: impl Display, status: u8) {
    print_note(Note::Failed { text: text.to_string(), status });
}

/// Prints a note for the caller in a single write, so that lines of several threads or programs don't mix.
pub fn print_note(note: Note) {
    let streams = streams();
    if let Note::Line(text) = note {
        // With JSON, the answer is the only output.
        if !streams.json.load(Ordering::Relaxed) {
            let _ = (&*streams.stdout).write_all((visible(&text) + "\n").as_bytes());
        }
        return;
    }
    let shown = match (streams.json.load(Ordering::Relaxed), note) {
        (true, Note::Said(text) | Note::Bare(text) | Note::Line(text)) => {
            line(&json!({"message": text})).unwrap_or_default()
        }
        (true, Note::Failed { text, status }) => {
            line(&json!({"error": text, "status": status})).unwrap_or_default()
        }
        (false, Note::Bare(text) | Note::Line(text)) => visible(&text) + "\n",
        (false, Note::Failed { text, .. }) if streams.nameless.load(Ordering::Relaxed) => {
            visible(&text) + "\n"
        }
        (false, Note::Said(text) | Note::Failed { text, .. }) => visible(&format!("cenote: {text}")) + "\n",
    };
    let _ = (&*streams.stderr).write_all(shown.as_bytes());
}
