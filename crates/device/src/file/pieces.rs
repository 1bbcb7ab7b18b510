//! Several ranges in one call, each in its own memory, without copies.
//!
//! Direct I/O needs each piece aligned. If one is not, the generic path is used ([`crate::pieces`]).

use std::io::{Error, Result as IoResult};

use bytes::Bytes;

use super::buffer::Buffer;
use super::uring::{Transfer, Vectors};
use super::{FileDevice, Range, Shared, WritePath, interrupted, read_to_end};
use crate::error::{Op, Result};
use crate::io::Io;
use crate::pieces;

impl FileDevice {
    pub(super) fn read_pieces_at(&self, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
        let of = &self.0;
        let bytes = lens.iter().map(|len| *len as u64).sum();
        if let Err(error) = of.info.check_range(Op::Read, offset, bytes) {
            return Io::done(Err(error));
        }
        let align = of.direct_align.unwrap_or(1);
        if !of.is_aligned(offset) || lens.iter().any(|len| !len.is_multiple_of(align)) {
            return pieces::read(self, offset, lens);
        }
        let mut buffers: Vec<Buffer> = lens.iter().map(|len| Buffer::new(*len, align)).collect();
        if of.may_be_cached() {
            let mut at = offset;
            let is_cached = buffers.iter_mut().zip(&lens).all(|(buffer, len)| {
                at += *len as u64;
                of.read_cached(buffer, at - *len as u64)
            });
            if is_cached {
                return Io::done(of.finish_pieces(buffers, offset, &lens));
            }
        }
        let of = of.clone();
        Io::pending(&self.0.runtime, async move {
            let mut buffers = Some(buffers);
            let outcome = interrupted::transfer(&of.runtime, || {
                // After an interruption the buffers are gone, with everything read so far.
                let new = || lens.iter().map(|len| Buffer::new(*len, align)).collect();
                of.fill_all(buffers.take().unwrap_or_else(new), offset)
            });
            let buffers = outcome.await.map_err(|why| of.info.io_error(Op::Read, offset, bytes, why))?;
            of.finish_pieces(buffers, offset, &lens)
        })
    }

    pub(super) fn write_pieces_at(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        let of = &self.0;
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        if let Err(error) = of.info.check_writable(Op::Write, offset, bytes) {
            return Io::done(Err(error));
        }
        if !of.is_aligned(offset) || pieces.iter().any(|piece| !of.is_aligned(piece.len() as u64)) {
            return pieces::write(self, offset, pieces);
        }
        self.change(offset, bytes, move |of| async move { of.put_pieces(offset, bytes, pieces).await })
    }
}

impl Shared {
    async fn fill_all(&self, mut buffers: Vec<Buffer>, offset: u64) -> IoResult<Vec<Buffer>> {
        let file = self.file.clone();
        let Some(ring) = &self.ring else {
            let fill = move || {
                let mut at = offset;
                for buffer in &mut buffers {
                    read_to_end(&file, buffer, at)?;
                    at += buffer.filled() as u64;
                }
                Ok(buffers)
            };
            return self.runtime.blocking(fill).await;
        };
        match ring.transfer(file, offset, Transfer::ReadPieces(buffers, Vectors::default())).await? {
            Transfer::ReadPieces(buffers, _) => Ok(buffers),
            _ => Err(Error::other("io_uring answered another request")),
        }
    }

    fn finish_pieces(&self, buffers: Vec<Buffer>, offset: u64, lens: &[usize]) -> Result<Vec<Bytes>> {
        let mut at = offset;
        let finish = |(buffer, len): (Buffer, &usize)| {
            at += *len as u64;
            self.finish_read(buffer, Range { start: at - *len as u64, skip: 0, len: *len })
        };
        buffers.into_iter().zip(lens).map(finish).collect()
    }

    async fn put_pieces(&self, offset: u64, bytes: u64, pieces: Vec<Bytes>) -> Result<()> {
        let pieces: Vec<Bytes> = pieces.into_iter().map(|piece| self.aligned(piece)).collect();
        let put = async || match &self.writes {
            WritePath::Ring(ring) => ring.write_pieces(self.file.clone(), offset, pieces.clone()).await,
            WritePath::Queue(queue) => queue.write_pieces(&self.runtime, offset, pieces.clone()).await,
        };
        let outcome = interrupted::transfer(&self.runtime, put).await;
        outcome.map_err(|error| self.info.io_error(Op::Write, offset, bytes, error))?;
        self.written(bytes);
        Ok(())
    }

    fn is_aligned(&self, at: u64) -> bool {
        at.is_multiple_of(self.direct_align.unwrap_or(1) as u64)
    }
}
