//! Amazon's S3 protocol, as far as [`Store`] needs it.
//!
//! ```text
//!   create     PUT, If-None-Match: *      200, or 412 if it exists
//!   replace    PUT, If-Match: TAG         200, or 412 if it has another tag
//!   read       GET, Range                 200 or 206
//!   list       GET ?list-type=2           XML
//!   delete     DELETE                     204
//! ```
//!
//! Idea: four requests of HTTP/1.1 with a signature each, over hyper, TLS by rustls. `object_store` and
//! `rusty-s3` would add 142 and 62 crates for that, and retries or clocks of their own; here [`crate::log`]
//! and its simulation decide on every repetition.
//!
//! Not supported: multipart uploads (objects have at most 17 MiB), instance roles, SSO.
//!
//! Source: Amazon S3 API reference (PutObject, GetObject, ListObjectsV2, DeleteObject, error responses).

mod answers;
mod connections;
mod credentials;
mod sign;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cenote_runtime::Runtime;
use futures::FutureExt;
use hyper::header::HeaderName;
use hyper::{Method, Request, StatusCode};

use crate::store::{Body, Call, Created, Page, Store, StoreError};
use connections::{Answer, Connections, Pieces};
use credentials::Credentials;
use sign::Signed;

/// Names in one answer to a list.
const PAGE_KEYS: &str = "1000";
/// Largest answer that is no range: a segment with its table, or a list.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Largest content of a register.
const REGISTER_BYTES_MAX: usize = 1 << 20;

/// Why a store can't be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum S3Error {
    /// No credentials, or unusable ones.
    #[error("{0}")]
    Credentials(String),
    /// No TLS.
    #[error("TLS can't be used: {0}")]
    Tls(String),
    /// The endpoint is malformed.
    #[error("the endpoint is no http[s]://HOST[:PORT]")]
    Endpoint,
}

/// Where a disk's objects are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Target {
    /// Bucket.
    pub bucket: String,
    /// Names begin with this and a slash.
    pub prefix: String,
    /// `http[s]://HOST[:PORT]`; `None`: Amazon's.
    pub endpoint: Option<String>,
    /// `None`: that of the environment.
    pub region: Option<String>,
}

/// An S3 object store.
pub struct S3(Arc<Shared>);

struct Shared {
    connections: Connections,
    credentials: Credentials,
    region: String,
    /// `Host` of requests.
    host: String,
    /// Path before an object's name, encoded: empty, or the bucket.
    root: String,
    prefix: String,
    runtime: Runtime,
}

impl S3 {
    /// Prepares a client; connects later. Credentials come from the environment or the file of profiles.
    ///
    /// # Errors
    /// No usable credentials or certificates.
    pub async fn new(target: &S3Target, runtime: &Runtime) -> Result<S3, S3Error> {
        let credentials = runtime.blocking(Credentials::load).await?;
        S3::with(target, credentials, runtime).await
    }

    /// The same with these keys.
    ///
    /// # Errors
    /// No usable certificates.
    pub async fn with_keys(
        target: &S3Target,
        id: &str,
        secret: &str,
        runtime: &Runtime,
    ) -> Result<S3, S3Error> {
        S3::with(target, Credentials::new(id, secret), runtime).await
    }

    async fn with(target: &S3Target, credentials: Credentials, runtime: &Runtime) -> Result<S3, S3Error> {
        let region = target.region.clone().unwrap_or_else(credentials::region);
        let authorities = runtime.blocking(credentials::authorities).await?;
        let bucket = &target.bucket;
        let (is_tls, server, root) = match &target.endpoint {
            // The name of a bucket with dots matches no certificate.
            None if bucket.contains('.') => {
                (true, format!("s3.{region}.amazonaws.com"), format!("/{bucket}"))
            }
            None => (true, format!("{bucket}.s3.{region}.amazonaws.com"), String::new()),
            Some(url) => {
                let (scheme, server) = url.split_once("://").ok_or(S3Error::Endpoint)?;
                (scheme == "https", server.to_owned(), format!("/{bucket}"))
            }
        };
        let connections = Connections::new(&server, is_tls, authorities, runtime)?;
        let prefix = target.prefix.clone();
        let runtime = runtime.clone();
        Ok(S3(Arc::new(Shared { connections, credentials, region, host: server, root, prefix, runtime })))
    }

    /// The server, as the part whose failure takes its disks away.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Whether only this program and the store see and change requests: within TLS, or within this machine.
    pub fn is_private(&self) -> bool {
        self.0.connections.is_tls() || self.0.connections.is_local()
    }

    fn ask<T: Send + 'static>(
        &self,
        wanted: Wanted,
        read: impl FnOnce(&Shared, Answer) -> Result<T, StoreError> + Send + 'static,
    ) -> Call<T> {
        let shared = self.0.clone();
        async move {
            let answer = shared.carry_out(wanted).await?;
            read(&shared, answer)
        }
        .boxed()
    }
}

/// A request, before it is signed.
struct Wanted {
    method: Method,
    /// `None`: the bucket itself.
    key: Option<String>,
    query: Vec<(&'static str, String)>,
    condition: Option<(HeaderName, String)>,
    body: Body,
    /// Largest answer.
    most: usize,
}

impl Wanted {
    fn of(method: Method, key: &str) -> Wanted {
        let (query, body) = (Vec::new(), Vec::new());
        Wanted { method, key: Some(key.into()), query, condition: None, body, most: ANSWER_BYTES_MAX }
    }
}

impl Shared {
    async fn carry_out(&self, wanted: Wanted) -> Result<Answer, StoreError> {
        let path = match &wanted.key {
            Some(key) => format!("{}/{}", self.root, sign::encoded(&format!("{}/{key}", self.prefix), true)),
            None => format!("{}/", self.root),
        };
        let signed = Signed {
            method: wanted.method.as_str(),
            host: &self.host,
            path: &path,
            query: &wanted.query,
            // TLS protects the body.
            body: if self.connections.is_tls() { None } else { Some(&wanted.body) },
            region: &self.region,
            unix_secs: self.runtime.unix_time_ns() / 1_000_000_000,
        };
        let headers = signed.headers(&self.credentials);
        let query = signed.canonical_query();
        let uri = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        let mut request = Request::builder().method(wanted.method).uri(uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some((name, value)) = wanted.condition {
            request = request.header(name, value);
        }
        let request = request.body(Pieces::new(wanted.body));
        let request = request.map_err(|error| StoreError::Refused(error.to_string().into()))?;
        self.connections.ask(request, wanted.most).await
    }

    fn name(&self, key: &str) -> String {
        format!("{}/{key}", self.prefix)
    }
}

fn created(answer: &Answer) -> Result<Created, StoreError> {
    match answer.status {
        StatusCode::PRECONDITION_FAILED => Ok(Created::Refused),
        status if status.is_success() => Ok(Created::New { tag: answer.tag.clone() }),
        _ => Err(answers::error(answer, "")),
    }
}

impl Store for S3 {
    fn create(&self, key: &str, body: Body) -> Call<Created> {
        let condition = Some((hyper::header::IF_NONE_MATCH, "*".into()));
        let wanted = Wanted { condition, body, ..Wanted::of(Method::PUT, key) };
        self.ask(wanted, |_, answer| created(&answer))
    }

    fn replace(&self, key: &str, tag: &str, body: Body) -> Call<Created> {
        let condition = Some((hyper::header::IF_MATCH, tag.to_owned()));
        let wanted = Wanted { condition, body, ..Wanted::of(Method::PUT, key) };
        self.ask(wanted, |_, answer| match answer.status {
            StatusCode::NOT_FOUND => Ok(Created::Refused),
            _ => created(&answer),
        })
    }

    fn read(&self, key: &str, range: Option<Range<u64>>) -> Call<Bytes> {
        let mut wanted = Wanted::of(Method::GET, key);
        if let Some(range) = &range {
            if range.is_empty() {
                return std::future::ready(Ok(Bytes::new())).boxed();
            }
            let value = format!("bytes={}-{}", range.start, range.end - 1);
            wanted.condition = Some((hyper::header::RANGE, value));
        }
        let key = key.to_owned();
        self.ask(wanted, move |_, answer| match (answer.status, range) {
            (StatusCode::PARTIAL_CONTENT, Some(_)) | (StatusCode::OK, None) => Ok(answer.body),
            // The range was ignored.
            (StatusCode::OK, Some(range)) if range.end <= answer.body.len() as u64 => {
                Ok(answer.body.slice(range.start as usize..range.end as usize))
            }
            _ => Err(answers::error(&answer, &key)),
        })
    }

    fn read_tagged(&self, key: &str) -> Call<(Bytes, String)> {
        let wanted = Wanted { most: REGISTER_BYTES_MAX, ..Wanted::of(Method::GET, key) };
        let key = key.to_owned();
        self.ask(wanted, move |_, answer| match answer.status {
            StatusCode::OK if !answer.tag.is_empty() => Ok((answer.body, answer.tag)),
            StatusCode::OK => Err(StoreError::Malformed(format!("{key}: no ETag came").into())),
            _ => Err(answers::error(&answer, &key)),
        })
    }

    fn list(&self, prefix: &str, after: &str) -> Call<Page> {
        let mut query = vec![
            ("list-type", "2".to_owned()),
            ("max-keys", PAGE_KEYS.to_owned()),
            ("prefix", self.0.name(prefix)),
        ];
        if !after.is_empty() {
            query.push(("start-after", self.0.name(after)));
        }
        let wanted = Wanted { key: None, query, ..Wanted::of(Method::GET, "") };
        self.ask(wanted, |shared, answer| match answer.status {
            StatusCode::OK => answers::page(&answer.body, &shared.name("")),
            _ => Err(answers::error(&answer, "")),
        })
    }

    fn delete(&self, key: &str) -> Call<()> {
        self.ask(Wanted::of(Method::DELETE, key), |_, answer| match answer.status {
            status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            _ => Err(answers::error(&answer, "")),
        })
    }
}
