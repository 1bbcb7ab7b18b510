//! Signs of life: when a connection last moved bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use cenote_disk::Stream;
use cenote_runtime::Runtime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that notes its signs of life.
pub(crate) struct Lively {
    inner: Box<dyn Stream>,
    runtime: Runtime,
    /// Nanoseconds since the runtime began.
    last_ns: Arc<AtomicU64>,
}

impl Lively {
    pub(crate) fn new(inner: Box<dyn Stream>, runtime: &Runtime, last_ns: &Arc<AtomicU64>) -> Lively {
        Lively { inner, runtime: runtime.clone(), last_ns: last_ns.clone() }
    }

    fn note<T>(&self, moved: bool, polled: Poll<T>) -> Poll<T> {
        if moved {
            self.last_ns.fetch_max(self.runtime.coarse_now().as_ns(), Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncRead for Lively {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut *self.inner).poll_read(context, buffer);
        self.note(buffer.filled().len() > before, polled)
    }
}

impl AsyncWrite for Lively {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.inner).poll_write(context, data);
        self.note(matches!(polled, Poll::Ready(Ok(_))), polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.inner).poll_write_vectored(context, slices);
        self.note(matches!(polled, Poll::Ready(Ok(_))), polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_shutdown(context)
    }
}
