//! Command output as an HTTP answer.
//!
//! ```text
//!   JSON     {"output": [DOCUMENT, ...], "messages": [...], "status": 0}    the default
//!   events   text/event-stream: `output` and `message` as they arrive, `end` with the status
//!   raw      application/octet-stream: the bytes of standard output
//! ```
//!
//! Idea: output is passed on as it arrives, so a list of millions of files takes no memory here. The HTTP
//! status reports only commands that fail before any output. After output, the command's own status follows
//! at the end.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::documents::{Documents, Part};
use cenote_serve::run::{Next, Running, keep};

/// Answer body.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

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

/// HTTP status of a command that ended without output.
fn http_status(status: u8) -> StatusCode {
    match status {
        0 => StatusCode::OK,
        2 => StatusCode::BAD_REQUEST,
        _ => StatusCode::CONFLICT,
    }
}

/// Answers with a command's output, until the command or the connection ends.
pub async fn of_command(mut running: Running, form: Form) -> Response<Body> {
    let mut messages = Vec::new();
    if form == Form::Events {
        return streamed(Stream::new(running, form, messages, VecDeque::new()));
    }
    loop {
        match running.next().await {
            Next::Message(chunk) => keep(&mut messages, &chunk),
            Next::Output(chunk) => {
                let ahead = VecDeque::from([Next::Output(chunk)]);
                return streamed(Stream::new(running, form, messages, ahead));
            }
            Next::End(0) if form == Form::Raw => return whole(StatusCode::OK, form.content_type(), ""),
            Next::End(status) => {
                let answer = json!({"output": [], "messages": lines(&messages), "status": status});
                return whole(http_status(status), Form::Json.content_type(), answer.to_string());
            }
        }
    }
}

/// An answer in progress.
struct Stream {
    running: Running,
    form: Form,
    messages: Vec<u8>,
    documents: Documents,
    /// Documents begun so far.
    count: u64,
    is_over: bool,
    /// Output read before the answer's format was chosen.
    ahead: VecDeque<Next>,
}

fn streamed(stream: Stream) -> Response<Body> {
    let form = stream.form;
    let frames = stream::unfold(stream, |mut stream| async move {
        let frame = stream.frame().await?;
        Some((Ok(Frame::data(Bytes::from(frame))), stream))
    });
    with_headers(StatusCode::OK, form.content_type(), StreamBody::new(frames).boxed_unsync())
}

impl Stream {
    fn new(running: Running, form: Form, messages: Vec<u8>, ahead: VecDeque<Next>) -> Stream {
        Stream { running, form, messages, documents: Documents::default(), count: 0, is_over: false, ahead }
    }

    /// Next bytes of the answer; `None` at its end.
    async fn frame(&mut self) -> Option<Vec<u8>> {
        while !self.is_over {
            let next = match self.ahead.pop_front() {
                Some(next) => next,
                None => self.running.next().await,
            };
            let frame = match (self.form, next) {
                (Form::Raw, Next::Output(chunk)) => chunk,
                (Form::Raw, Next::End(_)) => return None,
                (_, Next::Output(chunk)) => self.documents(&chunk),
                (Form::Events, Next::Message(chunk)) => self.messages_so_far(&chunk),
                (_, Next::Message(chunk)) => {
                    keep(&mut self.messages, &chunk);
                    continue;
                }
                (Form::Json, Next::End(status)) => self.end_document(status),
                (Form::Events, Next::End(status)) => self.end_events(status),
            };
            if !frame.is_empty() {
                return Some(frame);
            }
        }
        None
    }

    /// Formats documents as array elements or as events.
    fn documents(&mut self, chunk: &[u8]) -> Vec<u8> {
        let (form, count) = (self.form, &mut self.count);
        let mut out = Vec::with_capacity(chunk.len() + 64);
        self.documents.read(chunk, |part| match (part, form) {
            (Part::Begin, Form::Events) => out.extend(b"event: output\ndata: "),
            (Part::Begin, _) => {
                out.extend(if *count == 0 { &b"{\"output\":["[..] } else { b"," });
                *count += 1;
            }
            (Part::Text(text), _) => out.extend(text),
            (Part::End, Form::Events) => out.extend(b"\n\n"),
            (Part::End, _) => {}
        });
        out
    }

    fn end_document(&mut self, status: u8) -> Vec<u8> {
        self.is_over = true;
        let begun = if self.count == 0 { "{\"output\":[" } else { "" };
        format!("{begun}],\"messages\":{},\"status\":{status}}}", Value::from(lines(&self.messages)))
            .into_bytes()
    }

    /// Emits complete messages between documents. Messages within a document wait for its end.
    fn messages_so_far(&mut self, chunk: &[u8]) -> Vec<u8> {
        keep(&mut self.messages, chunk);
        let whole = self.messages.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if self.documents.is_within() || whole == 0 {
            return Vec::new();
        }
        let said: Vec<u8> = self.messages.drain(..whole).collect();
        message_events(&said)
    }

    fn end_events(&mut self, status: u8) -> Vec<u8> {
        self.is_over = true;
        let mut out = if self.documents.is_within() { b"\n\n".to_vec() } else { Vec::new() };
        out.extend(message_events(&self.messages));
        out.extend(format!("event: end\ndata: {}\n\n", json!({ "status": status })).into_bytes());
        out
    }
}

fn message_events(messages: &[u8]) -> Vec<u8> {
    let event = |said: Value| format!("event: message\ndata: {said}\n\n");
    lines(messages).into_iter().map(event).collect::<String>().into_bytes()
}

/// Parses each line as JSON, else keeps it as text.
fn lines(text: &[u8]) -> Vec<Value> {
    let lines = String::from_utf8_lossy(text);
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| line.into());
    lines.lines().filter(|line| !line.trim().is_empty()).map(read).collect()
}
