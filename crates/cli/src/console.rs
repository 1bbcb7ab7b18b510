//! The terminal of a command, as its verb speaks to it: notes, progress, and keys that are typed or piped in.
//!
//! Locking: the line of progress has a mutex of its own, held while it is redrawn.

use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::sync::Arc;

use cenote_control::session::{MAX_KEY_BYTES, is_raw, material};
use cenote_control::{Console, Note};
use cenote_dataset::{EncryptionInfo, UserKey};
use parking_lot::Mutex;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

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

    fn ask_key(&self, info: &EncryptionInfo, may_be_piped: bool) -> Option<UserKey> {
        ask(&self.streams, info, may_be_piped)
    }
}

/// Prompts for a key at the terminal, twice for a new key; some may also be piped in. `None` if there is
/// neither terminal nor pipe, or the answer is empty.
fn ask(streams: &Streams, info: &EncryptionInfo, may_be_piped: bool) -> Option<UserKey> {
    match (streams.stdin.is_terminal(), streams.stderr_screen().is_some()) {
        (true, true) if streams.client.is_some() => {
            typed(streams, info, |text| prompt_at(streams, &text).ok())
        }
        (true, true) => typed(streams, info, |text| rpassword::prompt_password(text).ok()),
        (false, _) if may_be_piped => piped(BufReader::with_capacity(1, &*streams.stdin), info),
        _ => None,
    }
}

/// Asks at a client's terminal, without showing what is typed.
fn prompt_at(streams: &Streams, text: &str) -> io::Result<String> {
    (&*streams.stderr).write_all(text.as_bytes())?;
    let shown = tcgetattr(&streams.stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&streams.stdin, OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = BufReader::with_capacity(1, &*streams.stdin).read_line(&mut line);
    tcsetattr(&streams.stdin, OptionalActions::Flush, &shown)?;
    (&*streams.stderr).write_all(b"\n")?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads one line from the pipe and leaves the rest for later prompts; reads a raw key to the end.
fn piped(pipe: impl BufRead, info: &EncryptionInfo) -> Option<UserKey> {
    let key = match is_raw(info) {
        true => material(pipe).ok()?.0,
        false => {
            let mut line = Vec::new();
            pipe.take(MAX_KEY_BYTES).read_until(b'\n', &mut line).ok()?;
            line
        }
    };
    (!key.is_empty()).then_some(UserKey(key))
}

fn typed(
    streams: &Streams,
    info: &EncryptionInfo,
    mut prompt: impl FnMut(String) -> Option<String>,
) -> Option<UserKey> {
    let say = |text: String| print_note(streams, Note::Said(text));
    let root = &info.root;
    if is_raw(info) {
        say(format!("the key of '{root}' is raw and can't be typed; give it with --key {root}=file:PATH"));
        return None;
    }
    let mut ask = |text| prompt(text).filter(|answer| !answer.is_empty());
    if !info.is_new() {
        return ask(format!("Key for {root} (Enter to continue without it): "))
            .map(|key| UserKey(key.into_bytes()));
    }
    let key = ask(format!("Enter new key for '{root}': "))?;
    if ask(format!("Re-enter new key for '{root}': "))? != key {
        say("the keys do not match".into());
        return None;
    }
    Some(UserKey(key.into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use cenote_format::units::{Guid, ObjectId};

    use super::*;

    fn null() -> Streams {
        let null = || Arc::new(File::open("/dev/null").unwrap());
        let (stdin, stdout, stderr) = (null(), null(), null());
        Streams { stdin, stdout, stderr, json: false.into(), client: None }
    }

    #[test]
    fn a_key_from_a_pipe_is_a_line_but_a_raw_one_is_all() {
        let mut pipe = &b"first line\nsecond\n"[..];
        assert_eq!(piped(&mut pipe, &info(3)).unwrap().0, b"first line\n");
        assert_eq!(piped(&mut pipe, &info(2)).unwrap().0, b"second\n");
        assert!(piped(&mut pipe, &info(3)).is_none());
        assert_eq!(piped(&b"a\nb\n"[..], &info(1)).unwrap().0, b"a\nb\n");
        let endless = io::BufReader::new(io::repeat(b'x'));
        assert_eq!(piped(endless, &info(3)).unwrap().0.len() as u64, MAX_KEY_BYTES);
    }

    #[test]
    fn a_new_key_is_typed_twice() {
        let new = EncryptionInfo { key_object: ObjectId(0), ..info(3) };
        let null = null();
        let type_in = |info: &EncryptionInfo, answers: &[&str]| {
            let mut answers = answers.iter();
            let key = typed(&null, info, |_| answers.next().map(|answer| answer.to_string()));
            assert!(answers.next().is_none(), "all are asked for");
            key.map(|key| key.0)
        };
        assert_eq!(type_in(&new, &["longpassword", "longpassword"]).unwrap(), b"longpassword");
        assert!(type_in(&new, &["longpassword", "longpasswort"]).is_none());
        assert_eq!(type_in(&info(3), &["any"]).unwrap(), b"any");
        assert!(type_in(&info(3), &[""]).is_none() && type_in(&info(1), &[]).is_none());
    }

    fn info(keyformat: u64) -> EncryptionInfo {
        EncryptionInfo {
            root: "tank".into(),
            root_dir: ObjectId(2),
            suite: 8,
            keyformat,
            keylocation: None,
            pbkdf2_salt: 0,
            pbkdf2_iters: 0,
            key_guid: Guid(1),
            key_object: ObjectId(3),
        }
    }
}
