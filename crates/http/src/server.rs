//! The server: from connections to answers.
//!
//! Limits: a client has [`PATIENCE`] for each request's head and for a verb's request, whose size is at most
//! [`REQUEST_BYTES_MAX`]. At most [`COMMANDS_MAX`] commands run at a time, half of that for one user or
//! address ([`room`](crate::room)). A client that reads slowly holds one pipe buffer of output; one that
//! stops reading is disconnected ([`Patient`]).

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_control::Rights;
use cenote_disk::{Origin, Stream};
use cenote_host::pools::Pools;
use cenote_runtime::Runtime;
use cenote_serve::listen::NO_ROOM;
use cenote_serve::run::Call;
use cenote_serve::socket::Serving;
use cenote_serve::tls::Tls;
use futures::future::{Either, select};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;

use crate::access::{Access, Tokens};
use crate::answer::{Body, Form, of_verb, refusal, refused, whole};
use crate::catalogue::{Catalogue, Verb};
use crate::metrics::Format;
use crate::patient::Patient;
use crate::room::{COMMANDS_MAX, Connection, Rooms};
use crate::{fields, metrics, openapi, page};

/// Time limit for the head of a request, and for its content.
const PATIENCE: Duration = Duration::from_secs(20);
const REQUEST_BYTES_MAX: usize = 8 << 20;
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Tells the page the token's role, so that it offers only permitted actions.
const ACCESS: HeaderName = HeaderName::from_static("cenote-access");

/// The HTTP server.
pub struct HttpServer {
    commands: Arc<dyn Serving>,
    pools: Arc<Pools>,
    catalogue: Catalogue,
    document: Bytes,
    tokens: Tokens,
    tls: Option<Tls>,
    rooms: Arc<Rooms>,
}

/// Client class of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// A client that needs a token.
    Anybody,
    /// The daemon's user or root, on a socket that only they can open.
    Owner,
}

impl HttpServer {
    /// Creates a server of these verbs and pools.
    pub fn new(
        commands: Arc<dyn Serving>,
        pools: Arc<Pools>,
        tokens: Tokens,
        tls: Option<Tls>,
    ) -> HttpServer {
        let catalogue = Catalogue::new();
        let document = openapi::document(&catalogue).to_string().into();
        let rooms = Rooms::new(COMMANDS_MAX);
        HttpServer { commands, pools, catalogue, document, tokens, tls, rooms }
    }

    /// Serves one connection to its end. `stranger`: origin of the client; `None` for root and the daemon's
    /// user.
    ///
    /// # Errors
    /// The client violates HTTP, stalls, or disconnects.
    pub async fn serve(
        self: Arc<Self>,
        runtime: &Runtime,
        stream: Box<dyn Stream>,
        client: Client,
        stranger: Option<Origin>,
    ) -> Result<(), String> {
        let stream = match (&self.tls, client) {
            (Some(tls), Client::Anybody) => {
                let started = runtime.timeout(PATIENCE, tls.start(stream)).await;
                let started = started.map_err(|_| "the TLS handshake takes too long".to_owned())?;
                started.map_err(|error| error.to_string())?
            }
            _ => stream,
        };
        let connection = Connection::new(stranger);
        let answer = service_fn(|request| {
            let (server, runtime, connection) = (self.clone(), runtime.clone(), connection.clone());
            async move { Ok::<_, Infallible>(server.answer(&runtime, request, client, &connection).await) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD_BYTES_MAX);
        let (stream, ahead) = Patient::new(stream, runtime, connection.clone());
        let served = pin!(http.serve_connection(TokioIo::new(stream), answer));
        match select(served, pin!(ahead.gone())).await {
            Either::Left((served, _)) => served.map_err(|error| error.to_string()),
            Either::Right(_) => Err("the client has gone, and a request of it waited".into()),
        }
    }

    async fn answer(
        &self,
        runtime: &Runtime,
        request: Request<Incoming>,
        client: Client,
        connection: &Arc<Connection>,
    ) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let is_get = request.method() == Method::GET;
        if let Some(file) = page::file(&path).filter(|_| is_get) {
            return whole(StatusCode::OK, file.content_type, Bytes::from_static(file.content));
        }
        if path == "/v1/openapi.json" && is_get {
            return whole(StatusCode::OK, "application/json", self.document.clone());
        }
        let header = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
        let access = match client {
            Client::Owner if !is_of_a_browser(request.headers()) => Some(Access::Change),
            _ => header(AUTHORIZATION).and_then(|header| self.tokens.access(header)),
        };
        let Some(access) = access else {
            let mut refused =
                refusal(StatusCode::UNAUTHORIZED, "a token is needed: `Authorization: Bearer TOKEN`");
            refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return refused;
        };
        let mut answer = self.answer_with(runtime, &path, request, access, connection).await;
        answer.headers_mut().insert(ACCESS, HeaderValue::from_static(access.name()));
        answer
    }

    /// Answers a client whose role is known.
    async fn answer_with(
        &self,
        runtime: &Runtime,
        path: &str,
        request: Request<Incoming>,
        access: Access,
        connection: &Arc<Connection>,
    ) -> Response<Body> {
        let is_get = request.method() == Method::GET;
        let accept = || request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
        if path == "/metrics" && is_get {
            let Some(_room) = self.rooms.enter(runtime, connection).await else { return too_many() };
            let format = Format::accepted(accept().unwrap_or_default());
            let now_s = runtime.unix_time_ns() / 1_000_000_000;
            let all = metrics::all(&self.pools, &self.commands, format, now_s).await;
            return whole(StatusCode::OK, format.content_type(), all);
        }
        if path == "/metrics/influx" && is_get {
            let Some(_room) = self.rooms.enter(runtime, connection).await else { return too_many() };
            let lines = metrics::influx(&self.pools, runtime.unix_time_ns()).await;
            return whole(StatusCode::OK, "text/plain; charset=utf-8", lines);
        }
        let Some(verb) = path.strip_prefix("/v1/").and_then(|path| self.catalogue.get(path)) else {
            return refusal(StatusCode::NOT_FOUND, "nothing is here; /v1/openapi.json lists what there is");
        };
        if !is_get && request.method() != Method::POST || is_get && !verb.may_look() {
            return by_post();
        }
        self.run(runtime, verb, request, access, connection).await
    }

    /// Runs a verb. A request by GET must change nothing, whatever its token may do.
    async fn run(
        &self,
        runtime: &Runtime,
        verb: &Verb,
        request: Request<Incoming>,
        access: Access,
        connection: &Arc<Connection>,
    ) -> Response<Body> {
        let is_get = request.method() == Method::GET;
        let header = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
        let form = Form::accepted(header(ACCEPT).unwrap_or_default());
        let has_input = header(CONTENT_TYPE).unwrap_or_default().starts_with("application/octet-stream");
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (mut asked, mut input) = (Vec::new(), None);
        if has_input {
            input = Some(request.into_body());
        } else {
            let limited = Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect();
            let Ok(Ok(content)) = runtime.timeout(PATIENCE, limited).await else {
                let why = "the request is too long, or comes too slowly";
                return refusal(StatusCode::PAYLOAD_TOO_LARGE, why);
            };
            asked = content.to_bytes().to_vec();
        }
        if asked.is_empty() {
            match fields::request(&verb.request, &query) {
                Ok(fields) => asked = fields.to_string().into_bytes(),
                Err(why) => return refusal(StatusCode::BAD_REQUEST, &why.to_string()),
            }
        } else if !query.is_empty() {
            let why = "the request is both in the query and in the content";
            return refusal(StatusCode::BAD_REQUEST, why);
        }
        let rights = if is_get || access < Access::Change { Rights::Look } else { Rights::All };
        // Before the answer's form: events would begin with status 200.
        if rights == Rights::Look
            && let Err(error) = verb.row.only_looks(&asked)
        {
            return refused(error, is_get);
        }
        let call = Call {
            verb: verb.row,
            command: format!("{} {}", verb.row.name, String::from_utf8_lossy(&asked)),
            request: asked,
            rights,
            has_input,
            has_output: form == Form::Raw,
        };
        let Some(room) = self.rooms.enter(runtime, connection).await else { return too_many() };
        let (running, stdin) = match call.start(&self.commands, room) {
            Ok(started) => started,
            Err(error) => return refusal(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        };
        if let (Some(input), Some(stdin)) = (input, stdin) {
            runtime.spawn(feed(input, stdin)).detach();
        }
        of_verb(runtime, running, form, is_get).await
    }
}

/// Refuses a connection: too many clients.
///
/// # Errors
/// The connection is lost.
pub async fn turn_away(mut stream: Box<dyn Stream>) -> io::Result<()> {
    let content = json!({ "error": NO_ROOM }).to_string();
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 10\r\n";
    let answer = format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{content}", content.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing with unread data would discard the answer (TCP reset).
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
}

fn by_post() -> Response<Body> {
    refusal(StatusCode::METHOD_NOT_ALLOWED, "send it by POST")
}

fn too_many() -> Response<Body> {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "too many commands are under way")
}

/// Whether a request may come from a browser. That means the socket's owner runs a proxy in front of it, and
/// any web page could have sent the request. Host names that could be rebound to this machine contain a dot.
fn is_of_a_browser(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_address = host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok();
    let has = |name: &str| headers.contains_key(name);
    has("origin") || has("sec-fetch-site") || host.contains('.') && !is_address
}

async fn feed(mut body: Incoming, mut stdin: Sender) {
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(bytes) = frame.into_data() else { continue };
        // The command may end before it has read everything.
        if stdin.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
