//! A running verb as an HTTP answer.
//!
//! ```text
//!   JSON     {"parts": [...], "answer": ..., "notes": [...], "status": 0}    the default
//!   events   text/event-stream: `note`, `progress` and `part` as they arrive; `answer` or `error`; `end`
//!   raw      application/octet-stream: the bytes of standard output
//! ```
//!
//! Idea: parts and bytes are passed on as they arrive, so a list of millions of files takes no memory here.
//! The HTTP status reports only verbs that fail before any of them. Afterwards, the verb's own status follows
//! at the end; a transfer of bytes that fails is cut off.
//!
//! A client that leaves ends its verb. If it has further requests on the connection, hyper does not notice,
//! and an endless verb would keep its room. So empty comments fill the time between events: sending them
//! fails.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use cenote_control::remote::Told;
use cenote_control::table::Json;
use cenote_control::{ControlError, Note, Outcome};
use cenote_runtime::Runtime;
use cenote_serve::run::{Next, Running};
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// Answer body.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Longest time without an event or a comment.
const HEARTBEAT: Duration = Duration::from_secs(4);
const NOTES_BYTES_MAX: usize = 1 << 20;

/// Format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One JSON document.
    Json,
    /// Server-sent events.
    Events,
    /// Raw bytes.
    Raw,
}

impl Form {
    /// Format that an `Accept` header asks for.
    pub fn accepted(header: &str) -> Form {
        if header.contains("text/event-stream") {
            Form::Events
        } else if header.contains("application/octet-stream") {
            Form::Raw
        } else {
            Form::Json
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Form::Json => "application/json",
            Form::Events => "text/event-stream",
            Form::Raw => "application/octet-stream",
        }
    }
}

/// A complete answer.
pub fn whole(status: StatusCode, content_type: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(content.into()).map_err(|never| match never {}).boxed_unsync();
    with_headers(status, content_type, body)
}

/// Refuses a request with a reason.
pub fn refusal(status: StatusCode, error: &str) -> Response<Body> {
    whole(status, "application/json", json!({ "error": error }).to_string())
}

fn with_headers(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store"),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// HTTP status of a verb that failed without output. `is_get`: POST could have succeeded.
fn http_status(error: &ControlError, is_get: bool) -> StatusCode {
    match error {
        ControlError::MayOnlyLook if is_get => StatusCode::METHOD_NOT_ALLOWED,
        ControlError::MayOnlyLook => StatusCode::FORBIDDEN,
        error if error.outcome() == Outcome::Misused => StatusCode::BAD_REQUEST,
        _ => StatusCode::CONFLICT,
    }
}

/// Refuses a verb before it runs. `is_get`: POST could have succeeded.
pub fn refused(error: ControlError, is_get: bool) -> Response<Body> {
    failed(error, Notes::default(), is_get)
}

fn failed(error: ControlError, mut notes: Notes, is_get: bool) -> Response<Body> {
    let status = http_status(&error, is_get);
    let mut content = b"{".to_vec();
    content.extend(notes.end(Err(error)));
    whole(status, Form::Json.content_type(), content)
}

/// Answers with a verb's notes, parts, bytes and answer, until it or the connection ends.
pub async fn of_verb(runtime: &Runtime, mut running: Running, form: Form, is_get: bool) -> Response<Body> {
    let mut notes = Notes::default();
    if form == Form::Events {
        return streamed(Stream::new(runtime, running, form, notes, VecDeque::new()));
    }
    loop {
        match running.next().await {
            Next::Told(told) => notes.keep(told),
            Next::Output(_) if form == Form::Json => {}
            next @ (Next::Output(_) | Next::Part(_)) => {
                return streamed(Stream::new(runtime, running, form, notes, VecDeque::from([next])));
            }
            Next::End(Ok((_, Outcome::Done))) if form == Form::Raw => {
                return whole(StatusCode::OK, form.content_type(), "");
            }
            Next::End(Ok((answer, outcome))) => {
                // Bytes were asked for, and there are none.
                let status = if form == Form::Raw { StatusCode::CONFLICT } else { StatusCode::OK };
                let mut content = b"{".to_vec();
                content.extend(notes.end(Ok((answer, outcome))));
                return whole(status, Form::Json.content_type(), content);
            }
            Next::End(Err(error)) => return failed(error, notes, is_get),
        }
    }
}

/// Notes so far.
#[derive(Default)]
struct Notes {
    all: Vec<Value>,
    bytes: usize,
}

impl Notes {
    fn keep(&mut self, told: Told) {
        let Told::Note(note) = told else { return };
        let note = as_json(&note);
        self.bytes += note["text"].as_str().map_or(0, str::len);
        if self.bytes <= NOTES_BYTES_MAX {
            self.all.push(note);
        }
    }

    /// The end of a JSON object: answer or error, notes, status.
    fn end(&mut self, done: Result<Json, ControlError>) -> Vec<u8> {
        let notes = Value::Array(std::mem::take(&mut self.all));
        let (mut out, status) = match done {
            Ok((answer, outcome)) => ([b"\"answer\":", &*answer].concat(), outcome.status()),
            Err(error) => (format!("\"error\":{}", text_of(&error)).into_bytes(), error.outcome().status()),
        };
        out.extend(format!(",\"notes\":{notes},\"status\":{status}}}").into_bytes());
        out
    }
}

fn text_of(error: &ControlError) -> Value {
    error.text_about("").into()
}

/// `status`: of a failure that did not end the verb.
fn as_json(note: &Note) -> Value {
    match note {
        Note::Said(text) | Note::Bare(text) | Note::Line(text) => json!({ "text": text }),
        Note::Failed { text, status } => json!({"text": text, "status": status}),
    }
}

/// An answer in progress.
struct Stream {
    runtime: Runtime,
    running: Running,
    form: Form,
    notes: Notes,
    /// Parts begun so far.
    parts: u64,
    is_over: bool,
    /// Read before the answer's format was chosen.
    ahead: VecDeque<Next>,
}

fn streamed(stream: Stream) -> Response<Body> {
    let form = stream.form;
    let frames = stream::unfold(stream, |mut stream| async move {
        let frame = stream.frame().await?;
        Some((frame.map(|bytes| Frame::data(Bytes::from(bytes))), stream))
    });
    with_headers(StatusCode::OK, form.content_type(), StreamBody::new(frames).boxed_unsync())
}

impl Stream {
    fn new(runtime: &Runtime, running: Running, form: Form, notes: Notes, ahead: VecDeque<Next>) -> Stream {
        Stream { runtime: runtime.clone(), running, form, notes, parts: 0, is_over: false, ahead }
    }

    /// Next bytes of the answer; `None` at its end.
    async fn frame(&mut self) -> Option<io::Result<Vec<u8>>> {
        while !self.is_over {
            let next = match self.ahead.pop_front() {
                Some(next) => next,
                None if self.form == Form::Events => {
                    match self.runtime.timeout(HEARTBEAT, self.running.next()).await {
                        Ok(next) => next,
                        Err(_) => return Some(Ok(b":\n\n".to_vec())),
                    }
                }
                None => self.running.next().await,
            };
            let frame = match (self.form, next) {
                (Form::Raw, Next::Output(chunk)) => chunk,
                (Form::Raw, Next::End(Ok((_, Outcome::Done)))) => return None,
                (Form::Raw, Next::End(_)) => {
                    self.is_over = true;
                    return Some(Err(io::Error::other("the command failed")));
                }
                (Form::Events, Next::Told(told)) => event_of(&told),
                (_, Next::Told(told)) => {
                    self.notes.keep(told);
                    continue;
                }
                (Form::Raw, Next::Part(_)) | (Form::Json | Form::Events, Next::Output(_)) => continue,
                (Form::Events, Next::Part(part)) => event("part", &part),
                (Form::Json, Next::Part(part)) => {
                    self.parts += 1;
                    [if self.parts == 1 { &b"{\"parts\":["[..] } else { b"," }, &part].concat()
                }
                (Form::Json, Next::End(done)) => {
                    self.is_over = true;
                    [b"],", &*self.notes.end(done)].concat()
                }
                (Form::Events, Next::End(done)) => {
                    self.is_over = true;
                    end_events(done)
                }
            };
            if !frame.is_empty() {
                return Some(Ok(frame));
            }
        }
        None
    }
}

/// JSON has no raw line feeds, which would end the event.
fn event(name: &str, json: &[u8]) -> Vec<u8> {
    [b"event: ", name.as_bytes(), b"\ndata: ", json, b"\n\n"].concat()
}

fn event_of(told: &Told) -> Vec<u8> {
    let (name, value) = match told {
        Told::Note(note) => ("note", as_json(note)),
        Told::Progress(share) => ("progress", json!(share)),
        Told::Counted(met) => ("counted", json!(met)),
    };
    event(name, value.to_string().as_bytes())
}

fn end_events(done: Result<Json, ControlError>) -> Vec<u8> {
    let (mut out, status) = match done {
        Ok((answer, outcome)) => (event("answer", &answer), outcome.status()),
        Err(error) => (event("error", text_of(&error).to_string().as_bytes()), error.outcome().status()),
    };
    out.extend(event("end", json!({ "status": status }).to_string().as_bytes()));
    out
}
