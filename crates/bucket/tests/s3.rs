//! The client against a small server of the protocol, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cenote_bucket::{Created, LogDevice, OpenError, Options, S3, S3Target, Store, StoreError};
use cenote_device::Device;
use cenote_runtime::Runtime;
use common::block;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

/// A bucket `b` in memory.
#[derive(Default)]
struct Server {
    objects: Mutex<BTreeMap<String, (Bytes, u64)>>,
    requests: AtomicU64,
    connections: AtomicU64,
    /// Carries out conditional requests whatever their condition says.
    lies: bool,
    /// Is busy at each request whose number is a multiple of it.
    busy_each: u64,
}

fn answer(status: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(body.into())).unwrap()
}

fn error(status: u16, code: &str) -> Response<Full<Bytes>> {
    answer(status, format!("<Error><Code>{code}</Code><Message>m</Message></Error>"))
}

impl Server {
    async fn serve(self: Arc<Server>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let (head, body) = request.into_parts();
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let (none_match, matches) = (header("if-none-match"), header("if-match"));
        let signed = header("authorization").is_some_and(|value| {
            value.starts_with("AWS4-HMAC-SHA256 Credential=id/") && !value.contains("secret")
        });
        let body = body.collect().await.unwrap().to_bytes();
        if !signed || header("x-amz-content-sha256").is_none_or(|hash| hash.len() != 64) {
            return error(403, "SignatureDoesNotMatch");
        }
        if self.busy_each != 0 && number.is_multiple_of(self.busy_each) {
            return error(503, "SlowDown");
        }
        let path = head.uri.path().strip_prefix("/b/").unwrap_or_default().to_owned();
        let mut objects = self.objects.lock();
        match head.method {
            Method::PUT => {
                let tag = objects.get(&path).map(|(_, tag)| tag.to_string());
                let is_allowed = none_match.is_none_or(|_| tag.is_none())
                    && matches.is_none_or(|wanted| tag.as_deref() == Some(wanted));
                if !is_allowed && !self.lies {
                    return error(412, "PreconditionFailed");
                }
                objects.insert(path, (body, number));
                let made = Response::builder().header("etag", number.to_string());
                made.body(Full::default()).unwrap()
            }
            Method::GET if path.is_empty() => {
                let query = head.uri.query().unwrap_or_default().replace("%2F", "/");
                let value = |name: &str| {
                    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or("")
                };
                let (prefix, after) = (value("prefix"), value("start-after"));
                let found = objects.keys().filter(|key| key.starts_with(prefix) && key.as_str() > after);
                let mut found: Vec<String> =
                    found.map(|key| format!("<Contents><Key>{key}</Key></Contents>")).collect();
                let has_more = found.len() > 3;
                found.truncate(3);
                let list = found.concat();
                answer(
                    200,
                    format!(
                        "<ListBucketResult><IsTruncated>{has_more}</IsTruncated>{list}</ListBucketResult>"
                    ),
                )
            }
            Method::GET => match (objects.get(&path), header("range")) {
                (None, _) => error(404, "NoSuchKey"),
                (Some((body, _)), None) => answer(200, body.clone()),
                (Some((body, _)), Some(range)) => {
                    let range = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).unwrap();
                    let (first, last): (usize, usize) = (range.0.parse().unwrap(), range.1.parse().unwrap());
                    answer(206, body.slice(first..body.len().min(last + 1)))
                }
            },
            Method::DELETE => {
                objects.remove(&path);
                answer(204, "")
            }
            _ => error(405, "MethodNotAllowed"),
        }
    }

    /// Begins to serve. Returns the endpoint.
    async fn start(self: &Arc<Server>, runtime: &Runtime) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (server, tasks) = (self.clone(), runtime.clone());
        let accepting = async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.connections.fetch_add(1, Ordering::Relaxed);
                let server = server.clone();
                let service = service_fn(move |request| {
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.serve(request).await) }
                });
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tasks.spawn(async move { drop(connection.await) }).detach();
            }
        };
        runtime.spawn(accepting).detach();
        endpoint
    }
}

/// Runs with a server and a client.
fn with(server: Server, test: impl AsyncFnOnce(Arc<Server>, Arc<S3>, Runtime)) {
    let runtime = Runtime::real(Some(2));
    let server = Arc::new(server);
    runtime.block_on(async {
        let endpoint = Some(server.start(&runtime).await);
        let target = S3Target { bucket: "b".into(), prefix: "p".into(), endpoint, region: None };
        let client = S3::with_keys(&target, "id", "secret", &runtime).await.unwrap();
        test(server.clone(), Arc::new(client), runtime.clone()).await;
    });
}

#[test]
fn each_request_has_its_answer() {
    with(Server::default(), async |server, s3, _| {
        let body = vec![Bytes::from_static(b"hello "), Bytes::from_static(b"world")];
        let Created::New { tag } = s3.create("x/1", body.clone()).await.unwrap() else { panic!("exists") };
        assert_eq!(s3.create("x/1", body.clone()).await.unwrap(), Created::Refused);
        assert_eq!(s3.replace("x/1", "other", Vec::new()).await.unwrap(), Created::Refused);
        assert_eq!(s3.read("x/1", None).await.unwrap(), "hello world");
        assert_eq!(s3.read("x/1", Some(4..7)).await.unwrap(), "o w");
        assert_eq!(s3.read("x/1", Some(4..4)).await.unwrap(), "");
        assert!(matches!(s3.replace("x/1", &tag, Vec::new()).await.unwrap(), Created::New { .. }));
        assert_eq!(s3.read("x/1", None).await.unwrap(), "");
        assert!(matches!(s3.read("x/2", None).await, Err(StoreError::Missing(_))));
        for name in 2..6 {
            s3.create(&format!("x/{name}"), body.clone()).await.unwrap();
        }
        let page = s3.list("x/", "").await.unwrap();
        assert_eq!((page.keys, page.has_more), (vec!["x/1".into(), "x/2".into(), "x/3".into()], true));
        let page = s3.list("x/", "x/3").await.unwrap();
        assert_eq!((page.keys, page.has_more), (vec!["x/4".into(), "x/5".into()], false));
        s3.delete("x/4").await.unwrap();
        s3.delete("x/4").await.unwrap();
        assert!(matches!(s3.read("x/4", Some(0..1)).await, Err(StoreError::Missing(_))));
        let connections = server.connections.load(Ordering::Relaxed);
        assert!(connections <= 3, "{connections} connections for requests one after another");
    });
}

#[test]
fn a_disk_works_over_sockets_and_a_busy_server() {
    let busy = Server { busy_each: 7, ..Server::default() };
    with(busy, async |_, s3, runtime| {
        let options = Options { create_bytes: Some(1 << 30), ..Options::new("disk") };
        let disk = LogDevice::open(s3.clone(), options, &runtime, ()).await.unwrap();
        let data = block(7).repeat(1000);
        disk.write_at(0, data.clone().into()).await.unwrap();
        disk.write_at(512 << 20, block(8)).await.unwrap();
        disk.flush().await.unwrap();
        assert!(disk.requests().repeated > 0);
        let again = LogDevice::open(s3, Options::new("disk"), &runtime, ()).await.unwrap();
        assert_eq!(again.read_at(0, data.len()).await.unwrap(), data);
        assert_eq!(again.read_at(512 << 20, 4096).await.unwrap(), block(8));
        assert_eq!(again.info().size_bytes, 1 << 30);
    });
}

#[test]
fn a_server_that_ignores_conditions_is_refused_before_it_has_a_disk() {
    let liar = Server { lies: true, ..Server::default() };
    with(liar, async |server, s3, runtime| {
        let options = Options { create_bytes: Some(1 << 30), ..Options::new("disk") };
        let opened = LogDevice::open(s3, options, &runtime, ()).await;
        let Err(OpenError::Store(StoreError::Refused(why))) = opened else { panic!("not refused") };
        assert!(why.contains("conditional"), "{why}");
        assert!(!server.objects.lock().contains_key("p/device"));
    });
}
