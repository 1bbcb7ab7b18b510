//! A connection that detects clients that stop reading or disconnect.
//!
//! Ideas: each write must make progress within [`PATIENCE`], or sooner if other clients need the room of the
//! client's command ([`room`](crate::room)). Otherwise a client that does not read would hold its connection
//! and its command.
//!
//! An HTTP server does not read while it processes a request, so a disconnected client's silent command
//! (waiting for events) would stay. So [`Ahead`] reads up to [`AHEAD_BYTES_MAX`] ahead.
//!
//! Locking: one task polls both halves of a connection, so their mutex is never contended.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cenote_disk::Stream;
use cenote_runtime::Runtime;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::room::Connection;

/// Time limit for a write without progress.
const PATIENCE: Duration = Duration::from_secs(60);

/// Limit of read-ahead.
const AHEAD_BYTES_MAX: usize = 16 << 10;

/// The stream and the data read ahead.
struct Half {
    stream: Box<dyn Stream>,
    ahead: Vec<u8>,
    is_over: bool,
    /// The server waits for data.
    is_awaited: bool,
    /// The server was told that no more data come.
    is_told: bool,
}

impl Half {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let taken = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..taken]);
            self.ahead.drain(..taken);
            return Poll::Ready(Ok(()));
        }
        if self.is_over {
            self.is_told = true;
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.is_awaited = read.is_pending();
        read
    }

    /// Ready once the client has closed its end and the server does not learn it: it reads no more while it
    /// processes a request and has the next ones, here or in its own buffer.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_over && self.ahead.len() < AHEAD_BYTES_MAX {
            let mut bytes = [0; 1 << 10];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            self.is_over = read.is_err() || buffer.filled().is_empty();
            self.ahead.extend_from_slice(buffer.filled());
            if std::mem::take(&mut self.is_awaited) {
                cx.waker().wake_by_ref();
                // The server reads first.
                return Poll::Pending;
            }
        }
        if self.is_over && !self.is_told { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Reads ahead of the server. Polled after the server, by the same task.
pub struct Ahead(Arc<Mutex<Half>>);

impl Ahead {
    /// Returns once the client has disconnected while one of its requests is processed.
    pub async fn gone(self) {
        std::future::poll_fn(|cx| self.0.lock().poll_gone(cx)).await;
    }
}

/// A connection with a time limit on writes.
pub struct Patient {
    half: Arc<Mutex<Half>>,
    runtime: Runtime,
    connection: Arc<Connection>,
    /// Deadline of the pending write.
    until: Option<BoxFuture<'static, ()>>,
}

impl Patient {
    /// Wraps a stream.
    pub fn new(stream: Box<dyn Stream>, runtime: &Runtime, connection: Arc<Connection>) -> (Patient, Ahead) {
        let half = Half { stream, ahead: Vec::new(), is_over: false, is_awaited: false, is_told: false };
        let half = Arc::new(Mutex::new(half));
        let ahead = Ahead(half.clone());
        (Patient { half, runtime: runtime.clone(), connection, until: None }, ahead)
    }

    /// The result of a write, or an error once it has waited too long.
    fn waited<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.until = None;
            self.connection.reads();
            return written;
        }
        if self.connection.poll_stalls(cx, self.runtime.now()).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let runtime = &self.runtime;
        let until = self.until.get_or_insert_with(|| {
            let runtime = runtime.clone();
            async move { runtime.sleep(PATIENCE).await }.boxed()
        });
        ready!(until.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.half.lock().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.half.lock().stream).poll_write(cx, data);
        self.waited(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.half.lock().stream).poll_write_vectored(cx, pieces);
        self.waited(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.half.lock().stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.half.lock().stream).poll_flush(cx);
        self.waited(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.half.lock().stream).poll_shutdown(cx);
        self.waited(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use cenote_runtime::SimConfig;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_write_waits_for_a_slow_reader_but_not_for_one_that_does_not_read() {
        let work = |runtime: Runtime| async move {
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let (mut server, _) = Patient::new(Box::new(server), &runtime, Connection::new(None));
            let reads_slowly = async {
                for _ in 0..3 {
                    runtime.sleep(PATIENCE * 9 / 10).await;
                    client.read_exact(&mut [0; 1 << 10]).await.unwrap();
                }
            };
            let begun = runtime.now();
            let (written, ()) = futures::join!(server.write_all(&[0; 5 << 10]), reads_slowly);
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(runtime.now().since(begun).as_secs(), 3 * 54 + 60);
        };
        Runtime::simulate(SimConfig::default(), work);
    }

    #[test]
    fn a_client_that_goes_is_noticed_while_a_request_of_it_waits() {
        let work = |runtime: Runtime| async move {
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let (mut server, ahead) = Patient::new(Box::new(server), &runtime, Connection::new(None));
            let mut gone = Box::pin(ahead.gone());
            client.write_all(b"one, two").await.unwrap();
            let mut first = [0; 3];
            server.read_exact(&mut first).await.unwrap();
            assert!((&mut gone).now_or_never().is_none(), "it is there, and a request waits");
            drop(client);
            gone.await;
            let mut rest = String::new();
            server.read_to_string(&mut rest).await.unwrap();
            assert_eq!((&first, &*rest), (b"one", ", two"), "nothing is lost");
        };
        Runtime::simulate(SimConfig::default(), work);
    }

    #[test]
    fn a_client_that_goes_is_noticed_while_the_server_has_its_next_request() {
        let work = |runtime: Runtime| async move {
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let (mut server, ahead) = Patient::new(Box::new(server), &runtime, Connection::new(None));
            let mut gone = Box::pin(ahead.gone());
            client.write_all(b"one, two").await.unwrap();
            server.read_exact(&mut [0; 8]).await.unwrap();
            assert!((&mut gone).now_or_never().is_none(), "it is there");
            drop(client);
            gone.await;
        };
        Runtime::simulate(SimConfig::default(), work);
    }

    #[test]
    fn a_server_that_waits_for_the_next_request_sees_the_end_itself() {
        let work = |runtime: Runtime| async move {
            let (client, server) = tokio::io::duplex(1 << 10);
            let (mut server, ahead) = Patient::new(Box::new(server), &runtime, Connection::new(None));
            let mut gone = Box::pin(ahead.gone());
            let mut next = [0; 3];
            let mut reads = Box::pin(server.read(&mut next));
            assert!((&mut reads).now_or_never().is_none(), "nothing has come");
            drop(client);
            assert!((&mut gone).now_or_never().is_none(), "the server reads first");
            assert_eq!(reads.await.unwrap(), 0);
            assert!((&mut gone).now_or_never().is_none(), "it may still answer");
        };
        Runtime::simulate(SimConfig::default(), work);
    }
}
