//! Runs verbs for a part of the daemon itself: one by its type, for the agent and metrics ([`ask`]); one by
//! its name, with a request in JSON, for HTTP ([`Call::start`]).
//!
//! Idea: a verb runs on its own thread. Its messages and parts go through a short channel, so a slow reader
//! slows the verb. Dropping the future or [`Running`] cancels the verb, as Ctrl-C would.
//!
//! Locking: a console's stream has a mutex, held to clone or to drop it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cenote_control::caller::CountedFiles;
use cenote_control::parts::Taker;
use cenote_control::remote::Told;
use cenote_control::table::{Json, Row};
use cenote_control::{Answered, Caller, Console, ControlError, Input, Note, Outcome, Progress, Rights, Verb};
use cenote_dataset::Credentials;
use cenote_host::cancel::Cancel;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{mpsc, oneshot};
use tokio::task::block_in_place;

use crate::socket::{Serving, on_command_thread};

/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;
const EVENTS_AHEAD: usize = 16;
const MESSAGES_BYTES_MAX: usize = 1 << 20;

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
    let caller = own_caller(Rights::All, said.clone(), cancel.clone());
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

/// The daemon's own user, without a directory or an environment.
fn own_caller(rights: Rights, console: Arc<dyn Console>, cancel: Cancel) -> Caller {
    let who = Credentials { uid: rustix::process::getuid().as_raw(), gids: Vec::new() };
    Caller::client(who, rights, console, "/".into(), Vec::new(), cancel)
}

struct Ends(Cancel);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Collects a verb's failures, one line each.
#[derive(Default)]
struct Said(Mutex<String>);

impl Said {
    fn text(&self) -> String {
        self.0.lock().trim().to_owned()
    }
}

impl Console for Said {
    fn note(&self, note: Note) {
        let (Note::Said(text) | Note::Bare(text) | Note::Line(text) | Note::Failed { text, .. }) = note;
        let mut said = self.0.lock();
        if said.len() + text.len() < MESSAGES_BYTES_MAX {
            *said += &(text + "\n");
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

/// A request to run.
#[derive(Debug)]
pub struct Call {
    /// Verb.
    pub verb: &'static Row,
    /// Its request, as JSON.
    pub request: Vec<u8>,
    /// Rights of the caller, who has the daemon's identity.
    pub rights: Rights,
    /// For the pool's history.
    pub command: String,
    /// The caller writes to the verb's standard input.
    pub has_input: bool,
    /// The caller reads the verb's standard output.
    pub has_output: bool,
}

/// A running verb.
pub struct Running {
    events: mpsc::Receiver<Next>,
    output: Option<Receiver>,
    ended: Option<Result<Json, ControlError>>,
    _cancelled_if_dropped: Ends,
}

/// The next event of a verb.
#[derive(Debug)]
pub enum Next {
    /// A note or progress.
    Told(Told),
    /// A part of the answer, as JSON.
    Part(Vec<u8>),
    /// Bytes that it wrote to standard output.
    Output(Vec<u8>),
    /// Its end.
    End(Result<Json, ControlError>),
}

impl Call {
    /// Starts the verb, and keeps `permit` until it ends. The pipe is its standard input, if any.
    ///
    /// # Errors
    /// The system has no descriptors or threads left.
    pub fn start(
        self,
        commands: &Arc<dyn Serving>,
        permit: impl Send + 'static,
    ) -> io::Result<(Running, Option<Sender>)> {
        let (tell, events) = mpsc::channel(EVENTS_AHEAD);
        let (mut output, mut its_output, mut input, mut its_input) = (None, None, None, None);
        if self.has_output {
            let (reader, writer) = io::pipe()?;
            output = Some(Receiver::from_owned_fd(reader.into())?);
            its_output = Some(OwnedFd::from(writer));
        }
        if self.has_input {
            let (reader, writer) = io::pipe()?;
            its_input = Some(OwnedFd::from(reader));
            input = Some(Sender::from_owned_fd(writer.into())?);
        }
        let streams = Mutex::new([its_input, its_output].map(|stream| stream.map(File::from)));
        let console = Arc::new(Teller { tell: tell.clone(), streams });
        let cancel = Cancel::default();
        let gives = {
            let console = console.clone();
            Taker::of_json(move |part| console.send(Next::Part(part)).map_err(ControlError::io("the answer")))
        };
        let caller = own_caller(self.rights, console.clone(), cancel.clone()).taking(gives);
        let commands = commands.clone();
        on_command_thread(move || {
            let Call { verb, request, command, .. } = self;
            let session = commands.session(caller, command, verb.sees_all);
            let done = session.runtime().clone().block_on(verb.run(&session, &request));
            drop(session);
            console.end();
            tell.blocking_send(Next::End(done)).ok();
            // The permit is held until the verb has ended, even without a waiting caller.
            drop(permit);
        })?;
        Ok((Running { events, output, ended: None, _cancelled_if_dropped: Ends(cancel) }, input))
    }
}

impl Running {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Next {
        loop {
            let (runs, has_output) = (self.ended.is_none(), self.output.is_some());
            // Polling the losing side reads nothing.
            tokio::select! {
                biased;
                next = self.events.recv(), if runs => match next {
                    Some(Next::End(done)) => self.ended = Some(done),
                    Some(next) => return next,
                    None => self.ended = Some(Err(did_not_end())),
                },
                chunk = read(&mut self.output), if has_output => match chunk.is_empty() {
                    true => self.output = None,
                    false => return Next::Output(chunk),
                },
                else => return Next::End(self.ended.take().unwrap_or_else(|| Err(did_not_end()))),
            }
        }
    }
}

fn did_not_end() -> ControlError {
    ControlError::Refused("the command did not end".into())
}

async fn read(stream: &mut Option<Receiver>) -> Vec<u8> {
    let Some(stream) = stream else { return std::future::pending().await };
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    // A pipe within this process fails only if another part closed it: treat as the end.
    stream.read_buf(&mut chunk).await.ok();
    chunk
}

/// The console of a running verb.
///
/// Work that outlives the verb may keep it; its streams are closed with the verb.
struct Teller {
    tell: mpsc::Sender<Next>,
    streams: Mutex<[Option<File>; 2]>,
}

const INPUT: usize = 0;
const OUTPUT: usize = 1;

impl Teller {
    /// Blocks until there is room.
    fn send(&self, next: Next) -> io::Result<()> {
        // On a thread of the runtime, other tasks go on meanwhile: the reader is one of them.
        let sent = block_in_place(|| self.tell.blocking_send(next));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn stream(&self, which: usize, advice: &'static str) -> io::Result<File> {
        let streams = self.streams.lock();
        let missing = || io::Error::new(io::ErrorKind::Unsupported, advice);
        streams[which].as_ref().ok_or_else(missing)?.try_clone()
    }

    fn end(&self) {
        *self.streams.lock() = [None, None];
    }
}

impl Console for Teller {
    fn note(&self, note: Note) {
        self.send(Next::Told(Told::Note(note))).ok();
    }

    fn progress(&self, now: Option<Progress<'_>>) {
        // The next one says more.
        self.tell.try_send(Next::Told(Told::progress(now))).ok();
    }

    fn counted(&self, now: Option<CountedFiles<'_>>) {
        self.tell.try_send(Next::Told(Told::counted(now))).ok();
    }

    fn output(&self) -> io::Result<File> {
        self.stream(OUTPUT, "the caller takes no bytes: ask for application/octet-stream")
    }

    fn stream(&self) -> io::Result<File> {
        Teller::stream(self, INPUT, "the request has no content of type application/octet-stream")
    }

    fn input(&self) -> Input<'_> {
        match Teller::stream(self, INPUT, "") {
            // Unread input stays for later.
            Ok(input) => Input::Pipe(Box::new(io::BufReader::with_capacity(1, input))),
            Err(_) => Input::None,
        }
    }

    fn prompt(&self, _text: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use cenote_control::remote::Asking;
    use cenote_control::{Options, Session, table};
    use cenote_runtime::Runtime;

    use super::*;
    use crate::socket::{Asked, Replies};

    /// A daemon without pools.
    struct Empty(Runtime);

    impl Serving for Empty {
        fn carry_out(&self, _: Asking, _: Asked, _: Replies) -> u8 {
            1
        }

        fn session(&self, caller: Caller, command: String, sees_all: bool) -> Session {
            let options = Options::in_daemon(Default::default(), command, sees_all);
            Session::new(&self.0, caller, options)
        }
    }

    fn call(request: &str, rights: Rights) -> Call {
        Call {
            verb: table::row("tunable").unwrap(),
            request: request.into(),
            rights,
            command: String::new(),
            has_input: false,
            has_output: true,
        }
    }

    #[test]
    fn a_request_that_is_none_or_not_permitted_is_refused() {
        let runtime = Runtime::real(Some(1));
        let commands: Arc<dyn Serving> = Arc::new(Empty(runtime.clone()));
        let set = r#"{"settings": [{"name": "zfs_arc_max", "value": "1"}]}"#;
        for (request, rights, why) in [
            ("{", Rights::All, "this is not its request"),
            (r#"{"nmaes": []}"#, Rights::All, "no field 'nmaes'"),
            (set, Rights::Look, "may look, but not change"),
            (set, Rights::All, "no daemon runs"),
        ] {
            runtime.block_on(async {
                let (mut running, _) = call(request, rights).start(&commands, ()).unwrap();
                let Next::End(Err(error)) = running.next().await else { panic!("{request}") };
                assert!(error.to_string().contains(why), "{request}: {error}");
            });
        }
    }

    #[test]
    fn a_slow_reader_gets_all_notes_and_all_output() {
        let runtime = Runtime::real(Some(1));
        runtime.block_on(async {
            let (tell, events) = mpsc::channel(EVENTS_AHEAD);
            let (reader, writer) = io::pipe().unwrap();
            let output = Receiver::from_owned_fd(reader.into()).unwrap();
            let streams = Mutex::new([None, Some(File::from(OwnedFd::from(writer)))]);
            let console = Arc::new(Teller { tell: tell.clone(), streams });
            let works = move || {
                let mut out = console.output().unwrap();
                for number in 0..100 {
                    console.note(Note::Said(number.to_string()));
                    out.write_all(&[number; 1000]).unwrap();
                }
                drop(out);
                console.end();
                tell.blocking_send(Next::End(Ok((b"{}".to_vec(), Outcome::Done)))).ok();
            };
            let worker = std::thread::spawn(works);
            let ends = Ends(Cancel::default());
            let mut running =
                Running { events, output: Some(output), ended: None, _cancelled_if_dropped: ends };
            let (mut notes, mut bytes) = (0, 0);
            loop {
                match running.next().await {
                    Next::Told(_) => notes += 1,
                    Next::Output(chunk) => bytes += chunk.len(),
                    Next::Part(_) => panic!("it has no parts"),
                    Next::End(done) => break assert_eq!(done.unwrap().1, Outcome::Done),
                }
            }
            assert_eq!((notes, bytes), (100, 100_000));
            worker.join().unwrap();
        });
    }
}
