//! Runs verbs and commands for a part of the daemon itself, such as HTTP: a verb returns a value ([`ask`]), a
//! command has pipes as streams.
//!
//! Dropping the future cancels the work, as Ctrl-C would.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use crate::socket::{Asked, CommandLine, Peer, Serving, on_command_thread};
use cenote_control::{Answered, Caller, Console, Input, Note, Outcome, Progress, Rights, Verb};
use cenote_dataset::Credentials;
use cenote_host::cancel::Cancel;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;

/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes of messages kept.
const MESSAGES_BYTES_MAX: usize = 1 << 20;

/// A running command.
pub struct Running {
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    status: oneshot::Receiver<u8>,
    _cancelled_if_dropped: Ends,
}

/// The next event of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Standard output.
    Output(Vec<u8>),
    /// Standard error.
    Message(Vec<u8>),
    /// Its end, with the exit status.
    End(u8),
}

/// Starts a command as the daemon's own user, and keeps `permit` until it ends. `stdin`: the caller writes to
/// its standard input through the returned pipe.
///
/// # Errors
/// The system has no descriptors or threads left.
pub fn start(
    commands: &Arc<dyn Serving>,
    words: Vec<String>,
    stdin: bool,
    permit: impl Send + 'static,
) -> io::Result<(Running, Option<Sender>)> {
    let (stdout, its_stdout) = io::pipe()?;
    let (stderr, its_stderr) = io::pipe()?;
    let (its_stdin, stdin) = match stdin {
        true => {
            let (its_stdin, stdin) = io::pipe()?;
            (OwnedFd::from(its_stdin), Some(Sender::from_owned_fd(stdin.into())?))
        }
        false => (OwnedFd::from(std::fs::File::open("/dev/null")?), None),
    };
    let cancel = Cancel::default();
    let argv = std::iter::once("cenote".to_owned()).chain(words).map(String::into_bytes).collect();
    let uid = rustix::process::getuid().as_raw();
    let asked = Asked {
        line: CommandLine::new(argv, b"/".to_vec(), Vec::new()),
        peer: Peer { who: Credentials { uid, gids: Vec::new() }, pid: std::process::id() as i32 },
        streams: [its_stdin, its_stdout.into(), its_stderr.into()],
        files: Vec::new(),
        is_carried: false,
        cancel: cancel.clone(),
    };
    let (told, status) = oneshot::channel();
    let commands = commands.clone();
    on_command_thread(move || {
        // The permit is held until the command has ended, even without a waiting caller.
        _ = told.send(commands.run(asked));
        drop(permit);
    })?;
    let stdout = Some(Receiver::from_owned_fd(stdout.into())?);
    let stderr = Some(Receiver::from_owned_fd(stderr.into())?);
    Ok((Running { stdout, stderr, status, _cancelled_if_dropped: Ends(cancel) }, stdin))
}

impl Running {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Next {
        loop {
            let (stdout, stderr) = (self.stdout.is_some(), self.stderr.is_some());
            // Polling the losing side reads nothing.
            let (is_output, chunk) = tokio::select! {
                chunk = read(&mut self.stdout), if stdout => (true, chunk),
                chunk = read(&mut self.stderr), if stderr => (false, chunk),
                else => return Next::End((&mut self.status).await.unwrap_or(1)),
            };
            match (is_output, chunk.is_empty()) {
                (true, true) => self.stdout = None,
                (false, true) => self.stderr = None,
                (true, false) => return Next::Output(chunk),
                (false, false) => return Next::Message(chunk),
            }
        }
    }

    /// Runs it to its end; returns output, messages and status. `None`: more output than `bytes_max`.
    async fn collect(mut self, bytes_max: usize) -> Option<(Vec<u8>, Vec<u8>, u8)> {
        let (mut output, mut messages) = (Vec::new(), Vec::new());
        loop {
            match self.next().await {
                Next::Output(chunk) => output.extend(chunk),
                Next::Message(chunk) => keep(&mut messages, &chunk),
                Next::End(status) => return Some((output, messages, status)),
            }
            if output.len() > bytes_max {
                return None;
            }
        }
    }
}

/// A verb's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard<T> {
    /// The answer; none: the verb failed completely.
    pub answer: Option<T>,
    /// The reasons for missing parts; the rest is in the answer.
    pub failed: Option<String>,
}

/// Runs a verb as the daemon's own user. `command`: for the pool's history, if it changes a pool.
pub async fn ask<V: Verb>(commands: &Arc<dyn Serving>, request: V, command: &str) -> Heard<V::Answer>
where
    V::Answer: Send,
{
    let (said, cancel) = (Arc::new(Said::default()), Cancel::default());
    let who = Credentials { uid: rustix::process::getuid().as_raw(), gids: Vec::new() };
    let caller = Caller::client(who, Rights::All, said.clone(), "/".into(), Vec::new(), cancel.clone());
    let (told, done) = oneshot::channel();
    let (commands, command) = (commands.clone(), command.to_owned());
    let begun = on_command_thread(move || {
        let session = commands.session(caller, command, V::SEES_ALL);
        _ = told.send(session.runtime().clone().block_on(session.run(request)));
    });
    if let Err(error) = begun {
        return Heard { answer: None, failed: Some(error.to_string()) };
    }
    let _cancelled_if_dropped = Ends(cancel);
    match done.await {
        Ok(Ok(Answered { answer, outcome: Outcome::Done })) => Heard { answer: Some(answer), failed: None },
        Ok(Ok(Answered { answer, .. })) => Heard { answer: Some(answer), failed: Some(said.text()) },
        Ok(Err(error)) => Heard { answer: None, failed: Some(error.to_string()) },
        Err(_) => Heard { answer: None, failed: Some(format!("{} did not end", V::NAME)) },
    }
}

struct Ends(Cancel);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Collects a verb's failures, one line each.
#[derive(Default)]
struct Said(Mutex<Vec<u8>>);

impl Said {
    fn text(&self) -> String {
        let said = self.0.lock().map(|said| String::from_utf8_lossy(&said).trim().to_owned());
        said.unwrap_or_default()
    }
}

impl Console for Said {
    fn note(&self, note: Note) {
        let (Note::Said(text) | Note::Bare(text) | Note::Line(text) | Note::Failed { text, .. }) = note;
        if let Ok(mut said) = self.0.lock() {
            keep(&mut said, (text + "\n").as_bytes());
        }
    }

    fn progress(&self, _now: Option<Progress<'_>>) {}

    fn input(&self) -> Input<'_> {
        Input::None
    }

    fn prompt(&self, _text: &str) -> Option<String> {
        None
    }
}

/// The output of a displaying command.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Document {
    /// Its JSON, if any.
    pub value: Value,
    /// The reasons for missing parts; the rest is in the value.
    pub failed: Option<String>,
}

/// Runs a command that only prints; returns its JSON document of at most `bytes_max`.
pub async fn document(
    commands: &Arc<dyn Serving>,
    words: impl IntoIterator<Item = &str>,
    bytes_max: usize,
) -> Document {
    match output(commands, words, bytes_max).await {
        Ok((output, failed)) => {
            Document { value: serde_json::from_slice(&output).unwrap_or_default(), failed }
        }
        Err(why) => Document { failed: Some(why), ..Document::default() },
    }
}

/// Runs a command that only prints; returns its text.
///
/// # Errors
/// The command's failure, or more output than `bytes_max`.
pub async fn text(
    commands: &Arc<dyn Serving>,
    words: impl IntoIterator<Item = &str>,
    bytes_max: usize,
) -> Result<String, String> {
    match output(commands, words, bytes_max).await? {
        (output, None) => Ok(String::from_utf8_lossy(&output).into_owned()),
        (_, Some(why)) => Err(why),
    }
}

/// The output, and the reasons for missing parts.
async fn output(
    commands: &Arc<dyn Serving>,
    words: impl IntoIterator<Item = &str>,
    bytes_max: usize,
) -> Result<(Vec<u8>, Option<String>), String> {
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let line = words.join(" ");
    let (running, _) = start(commands, words, false, ()).map_err(|error| error.to_string())?;
    match running.collect(bytes_max).await {
        None => Err(format!("`{line}` printed too much")),
        Some((output, _, 0)) => Ok((output, None)),
        Some((output, messages, status)) => {
            let why = String::from_utf8_lossy(&messages).trim().to_owned();
            let why = if why.is_empty() { format!("`{line}` ended with status {status}") } else { why };
            Ok((output, Some(why)))
        }
    }
}

/// Appends to messages up to their limit.
pub fn keep(messages: &mut Vec<u8>, chunk: &[u8]) {
    if messages.len() + chunk.len() <= MESSAGES_BYTES_MAX {
        messages.extend(chunk);
    }
}

async fn read(stream: &mut Option<Receiver>) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    if let Some(stream) = stream {
        // A pipe within this process fails only if another part closed it: treat as the end.
        stream.read_buf(&mut chunk).await.ok();
    }
    chunk
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use cenote_runtime::Runtime;
    use serde_json::json;

    use cenote_control::Session;
    use cenote_control::remote::Asking;

    use super::*;
    use crate::socket::Replies;

    struct Half;

    impl Serving for Half {
        fn run(&self, asked: Asked) -> u8 {
            let [_, out, messages] = asked.streams;
            File::from(out).write_all(br#"{"pools": {"a": {}}}"#).unwrap();
            File::from(messages).write_all(b"b: I/O error\n").unwrap();
            1
        }

        fn carry_out(&self, _: Asking, _: Asked, _: Replies) -> u8 {
            1
        }

        fn session(&self, _: Caller, _: String, _: bool) -> Session {
            unreachable!("it has no pools")
        }
    }

    #[test]
    fn what_could_be_shown_is_kept_and_what_could_not_is_said() {
        let commands: Arc<dyn Serving> = Arc::new(Half);
        Runtime::real(Some(1)).block_on(async {
            let listed = document(&commands, ["zpool", "list"], 1 << 10).await;
            assert_eq!(listed.value, json!({"pools": {"a": {}}}));
            assert_eq!(listed.failed.as_deref(), Some("b: I/O error"));
            assert_eq!(text(&commands, ["zpool", "list"], 1 << 10).await.unwrap_err(), "b: I/O error");
        });
    }
}
