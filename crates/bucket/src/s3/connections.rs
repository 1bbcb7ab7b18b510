//! Connections to a store's server: HTTP/1.1, a request at a time on each, kept for the next.
//!
//! Locking: one mutex for the idle connections, held to take or return one.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cenote_runtime::Runtime;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::ETAG;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::S3Error;
use crate::store::{Body, StoreError};

const IDLE_MOST: usize = 32;
const HTTPS_PORT: u16 = 443;
const HTTP_PORT: u16 = 80;

/// An answer, whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) tag: String,
    pub(super) body: Bytes,
}

pub(super) struct Connections {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<SendRequest<Pieces>>>,
    runtime: Runtime,
}

impl Connections {
    /// `server`: `HOST[:PORT]`.
    pub(super) fn new(
        server: &str,
        is_tls: bool,
        authorities: Arc<RootCertStore>,
        runtime: &Runtime,
    ) -> Result<Connections, S3Error> {
        let default = if is_tls { HTTPS_PORT } else { HTTP_PORT };
        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| S3Error::Endpoint)?),
            _ => (server, default),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match is_tls {
            false => None,
            true => {
                let name = match host.parse::<IpAddr>() {
                    Ok(address) => ServerName::from(address),
                    Err(_) => ServerName::try_from(host.clone()).map_err(|_| S3Error::Endpoint)?,
                };
                let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
                let config = ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()
                    .map_err(|error| S3Error::Tls(error.to_string()))?
                    .with_root_certificates(authorities)
                    .with_no_client_auth();
                Some((TlsConnector::from(Arc::new(config)), name))
            }
        };
        Ok(Connections { host, port, tls, idle: Mutex::default(), runtime: runtime.clone() })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the server is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    pub(super) async fn ask(&self, request: Request<Pieces>, most: usize) -> Result<Answer, StoreError> {
        let unknown = |error: String| StoreError::Unknown(error.into());
        let mut sender = match self.idle_one() {
            Some(sender) => sender,
            None => self.connect().await.map_err(|error| unknown(error.to_string()))?,
        };
        sender.ready().await.map_err(|error| unknown(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|error| unknown(error.to_string()))?;
        let (head, body) = answer.into_parts();
        let tag = head.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default().to_owned();
        let body = Limited::new(body, most).collect().await.map_err(|error| unknown(error.to_string()))?;
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MOST && !sender.is_closed() {
            idle.push(sender);
        }
        drop(idle);
        Ok(Answer { status: head.status, tag, body: body.to_bytes() })
    }

    fn idle_one(&self) -> Option<SendRequest<Pieces>> {
        let mut idle = self.idle.lock();
        // One that the server has closed meanwhile is of no use, and one still busy is ready soon.
        idle.retain(|sender| !sender.is_closed());
        let ready = idle.iter().rposition(SendRequest::is_ready)?;
        Some(idle.swap_remove(ready))
    }

    async fn connect(&self) -> io::Result<SendRequest<Pieces>> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.set_nodelay(true)?;
        let other = |error: hyper::Error| io::Error::other(error);
        match &self.tls {
            None => {
                let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(other)?;
                self.runtime.spawn(async move { drop(driver.await) }).detach();
                Ok(sender)
            }
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await?;
                let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(other)?;
                self.runtime.spawn(async move { drop(driver.await) }).detach();
                Ok(sender)
            }
        }
    }
}

/// The body of a request.
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    left_bytes: u64,
}

impl Pieces {
    pub(super) fn new(body: Body) -> Pieces {
        let left_bytes = body.iter().map(|piece| piece.len() as u64).sum();
        Pieces { pieces: body.into(), left_bytes }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.left_bytes -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}
