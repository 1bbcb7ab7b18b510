//! Connections: streams, and batched reading and sending.

use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Most pieces per system call.
pub const PIECES: usize = 64;

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why a connection ended without a goodbye.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum Ended {
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the client does not speak the protocol: {0}")]
    Protocol(&'static str),
    #[error("the client stalled in the middle of a message")]
    Stalled,
}

/// Result on a connection.
pub type Result<T> = std::result::Result<T, Ended>;

/// Reads bytes: buffered ones, then the rest directly.
///
/// # Errors
/// The connection ends first.
pub async fn payload<R: AsyncRead + Unpin>(
    reader: &mut R,
    buffer: &mut BytesMut,
    len: usize,
) -> Result<Bytes> {
    if len <= buffer.len() {
        return Ok(buffer.split_to(len).freeze());
    }
    let mut whole = BytesMut::with_capacity(len);
    append(reader, buffer, &mut whole, len).await?;
    Ok(whole.freeze())
}

/// Like [`payload`], but appends.
///
/// # Errors
/// The connection ends first.
pub async fn append<R: AsyncRead + Unpin>(
    reader: &mut R,
    buffer: &mut BytesMut,
    whole: &mut BytesMut,
    len: usize,
) -> Result<()> {
    let there = len.min(buffer.len());
    whole.extend_from_slice(&buffer[..there]);
    buffer.advance(there);
    let end = whole.len() + len - there;
    let mut rest = reader.take((len - there) as u64);
    while whole.len() < end {
        if rest.read_buf(whole).await? == 0 {
            return Err(Ended::Protocol("a message is cut short"));
        }
    }
    Ok(())
}

/// Sends pieces, batched.
///
/// # Errors
/// The connection fails.
pub async fn write_pieces(writer: &mut (impl AsyncWrite + Unpin), pieces: &mut [Bytes]) -> Result<()> {
    let mut first = 0;
    while first < pieces.len() {
        let slices: Vec<IoSlice<'_>> =
            pieces[first..].iter().take(PIECES).map(|piece| IoSlice::new(piece)).collect();
        let mut written = writer.write_vectored(&slices).await?;
        if written == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            return Err(Ended::Io(io::ErrorKind::WriteZero.into()));
        }
        while first < pieces.len() && written >= pieces[first].len() {
            written -= pieces[first].len();
            first += 1;
        }
        if written > 0 {
            pieces[first].advance(written);
        }
    }
    Ok(writer.flush().await?)
}
