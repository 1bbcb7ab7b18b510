//! A connection on which a client can't keep an answer waiting for ever.
//!
//! Idea: every write has [`PATIENCE`] until the system takes some of it, and less if others want the room of
//! the client's command ([`room`](crate::room)). A client that does not read would otherwise keep its
//! connection, and the command whose output it does not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cenote_disk::Stream;
use cenote_runtime::Runtime;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::room::Connection;

/// How long a client may take nothing of what is sent.
const PATIENCE: Duration = Duration::from_secs(60);

/// The connection.
pub struct Patient {
    stream: Box<dyn Stream>,
    runtime: Runtime,
    connection: Arc<Connection>,
    /// The end of patience, while a write waits.
    until: Option<BoxFuture<'static, ()>>,
}

impl Patient {
    /// Wraps one.
    pub fn new(stream: Box<dyn Stream>, runtime: &Runtime, connection: Arc<Connection>) -> Patient {
        Patient { stream, runtime: runtime.clone(), connection, until: None }
    }

    /// What a write came to, or that it has waited for too long.
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
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.waited(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.waited(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.waited(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
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
            let mut server = Patient::new(Box::new(server), &runtime, Connection::new(None));
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
}
