//! Transmission: concurrent requests and their replies.
//!
//! ```text
//!   reader: header, payload --> permits --> answer: at once if it is in memory, else a task --> queue
//!   writer: sends all queued replies with one call
//! ```
//!
//! Replies are sent in order of completion. DISC ends reading; earlier requests are still answered. If a
//! client disconnects without DISC, its requests are abandoned: they might wait for a pool whose devices have
//! failed.
//!
//! Memory: permits bound the data of requests in flight ([`Limits`]). Futures may be dropped: the engine
//! completes changes once begun.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use cenote_disk::stream::{PIECES, payload, write_pieces};
use cenote_disk::{Ended, Errno, Failure, Limits, Permits, Result, Share, Stream};
use cenote_runtime::Runtime;
use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use crate::export::{BASE_ALLOCATION, Export, Extent};
use crate::handshake::Chosen;
use crate::wire::{Command, Replies, ReplyForm, Request, flag, invalid};

/// Largest payload of one request, as clients expect it.
pub const MAX_PAYLOAD_BYTES: u32 = 32 << 20;
const EXTENTS_MAX: usize = 4 << 10;
const PREFETCH_BYTES: u64 = 1 << 20;

/// A queued reply, with its request's permits.
struct Waiting {
    pieces: Vec<Bytes>,
    _permits: Permits,
}

/// State shared by all requests of a connection.
struct Session {
    export: Arc<dyn Export>,
    form: ReplyForm,
    contexts: Vec<String>,
}

/// Serves an export until the client ends the connection. `share`: limits of the connection.
///
/// # Errors
/// Protocol error, stall, or disconnect without DISC.
pub async fn transmit(
    stream: Box<dyn Stream>,
    chosen: Chosen,
    runtime: &Runtime,
    limits: &Limits,
    share: Share,
) -> Result<()> {
    let Chosen { export, form, contexts, .. } = chosen;
    let session = Arc::new(Session { export, form, contexts });
    let (reader, writer) = tokio::io::split(stream);
    let (queue, waiting) = mpsc::unbounded_channel();
    let sending = send(writer, waiting, limits, share.clone());
    // The queue closes after the last answer, which ends the writer.
    let receiving = receive(reader, session, queue, runtime, (limits, share));
    let mut receiving = std::pin::pin!(receiving);
    let mut sending = std::pin::pin!(sending);
    tokio::select! {
        biased;
        received = &mut receiving => match received {
            Ok(Reading::Gone) => Ok(()),
            Err(error @ Ended::Io(_)) => Err(error),
            received => {
                let sent = sending.await;
                received.and(sent)
            }
        },
        sent = &mut sending => sent,
    }
}

/// End of a client's requests.
enum Reading {
    /// By DISC.
    Done,
    /// By disconnect.
    Gone,
}

async fn receive(
    mut reader: ReadHalf<Box<dyn Stream>>,
    session: Arc<Session>,
    queue: mpsc::UnboundedSender<Waiting>,
    runtime: &Runtime,
    (limits, share): (&Limits, Share),
) -> Result<Reading> {
    let is_extended = session.form == ReplyForm::Extended;
    let header_bytes = if is_extended { Request::EXTENDED_BYTES } else { Request::BYTES };
    let mut buffer = BytesMut::with_capacity(64 << 10);
    loop {
        if buffer.is_empty() && reader.read_buf(&mut buffer).await? == 0 {
            return Ok(Reading::Gone);
        }
        if buffer.len() < header_bytes {
            let filling = fill(&mut reader, &mut buffer, header_bytes);
            limits.patiently(&share, header_bytes, filling).await?;
        }
        let request = Request::decode(&buffer[..header_bytes], is_extended);
        let request = request.ok_or(Ended::Protocol("a request has the wrong magic"))?;
        buffer.advance(header_bytes);
        let payload_bytes = request.payload_bytes(is_extended);
        if payload_bytes > MAX_PAYLOAD_BYTES.into() {
            return Err(Ended::Protocol("a payload is larger than what was agreed"));
        }
        if request.command == Command::Disconnect {
            return Ok(Reading::Done);
        }
        let carried = match request.command {
            Command::Read => request.len.min(MAX_PAYLOAD_BYTES.into()),
            _ => payload_bytes,
        };
        let Some(permits) = limits.take(&share, carried as u32).await else {
            return Ok(Reading::Done);
        };
        let payload = payload(&mut reader, &mut buffer, payload_bytes as usize);
        let payload = limits.patiently(&share, payload_bytes as usize, payload).await?;
        let (session, queue) = (session.clone(), queue.clone());
        let mut answering = Box::pin(async move {
            tokio::select! {
                biased;
                pieces = session.answer(&request, payload) => {
                    // Fails only while the connection is ending.
                    queue.send(Waiting { pieces, _permits: permits }).ok();
                }
                () = queue.closed() => {}
            }
        });
        // Requests whose data is in memory are answered here, without a task.
        if futures::poll!(&mut answering).is_pending() {
            runtime.spawn(answering).detach();
        }
    }
}

/// Buffers at least `len` bytes.
async fn fill(reader: &mut ReadHalf<Box<dyn Stream>>, buffer: &mut BytesMut, len: usize) -> Result<()> {
    while buffer.len() < len {
        if reader.read_buf(buffer).await? == 0 {
            return Err(Ended::Protocol("a request is cut short"));
        }
    }
    Ok(())
}

async fn send(
    mut writer: WriteHalf<Box<dyn Stream>>,
    mut waiting: mpsc::UnboundedReceiver<Waiting>,
    limits: &Limits,
    share: Share,
) -> Result<()> {
    let mut replies = Vec::with_capacity(PIECES);
    while waiting.recv_many(&mut replies, PIECES).await > 0 {
        let mut pieces: Vec<Bytes> = replies.iter_mut().flat_map(|reply| reply.pieces.drain(..)).collect();
        let bytes = pieces.iter().map(Bytes::len).sum();
        limits.patiently(&share, bytes, write_pieces(&mut writer, &mut pieces)).await?;
        replies.clear();
    }
    writer.shutdown().await.ok();
    Ok(())
}

impl Session {
    async fn answer(&self, request: &Request, payload: Bytes) -> Vec<Bytes> {
        let mut replies = Replies::to(self.form, request);
        // A panic in the engine must neither end the connection nor leave the client without a reply.
        let answered = std::panic::AssertUnwindSafe(self.work(request, payload, &mut replies)).catch_unwind();
        match answered.await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => replies.failed(&failure),
            Err(_) => replies.failed(&Failure::new(Errno::Io, "the server failed at this request")),
        }
        replies.pieces()
    }

    async fn work(
        &self,
        request: &Request,
        payload: Bytes,
        replies: &mut Replies,
    ) -> std::result::Result<(), Failure> {
        let export = &*self.export;
        let is_change = matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
        if is_change && export.is_read_only() {
            return Err(Failure::new(Errno::Perm, "the export is read-only"));
        }
        match request.command {
            Command::Read => return self.read(request, replies).await,
            Command::BlockStatus => return self.block_status(request, replies).await,
            Command::Flush => export.flush().await?,
            Command::Unknown | Command::Disconnect => {
                return Err(Failure::new(Errno::NotSupported, "this server does not know the command"));
            }
            Command::Write => {
                let is_whole = payload.len() as u64 == request.len;
                let range = if is_whole { self.range(request)? } else { return Err(invalid("no payload")) };
                if !range.is_empty() {
                    export.write(range.start, payload).await?;
                }
            }
            Command::Trim | Command::WriteZeroes | Command::Cache => {
                let range = self.range(request)?;
                match request.command {
                    _ if range.is_empty() => {}
                    Command::Trim => export.trim(range).await?,
                    Command::WriteZeroes => export.zero(range).await?,
                    _ => self.prefetch(range).await?,
                }
            }
        }
        if is_change && request.flags & flag::FUA != 0 {
            export.flush().await?;
        }
        replies.done();
        Ok(())
    }

    /// A request's range, checked against the export.
    fn range(&self, request: &Request) -> std::result::Result<Range<u64>, Failure> {
        let end = request.offset.checked_add(request.len).filter(|&end| end <= self.export.size_bytes());
        match (end, request.command) {
            (Some(end), _) => Ok(request.offset..end),
            (None, Command::Write | Command::WriteZeroes) => {
                Err(Failure::new(Errno::NoSpace, "beyond the end of the export"))
            }
            (None, _) => Err(invalid("beyond the end of the export")),
        }
    }

    async fn prefetch(&self, range: Range<u64>) -> std::result::Result<(), Failure> {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + PREFETCH_BYTES);
            self.export.prefetch(at..end).await?;
            at = end;
        }
        Ok(())
    }

    async fn read(&self, request: &Request, replies: &mut Replies) -> std::result::Result<(), Failure> {
        let range = self.range(request)?;
        if request.len > MAX_PAYLOAD_BYTES.into() {
            return Err(Failure::new(Errno::Overflow, "more than what was agreed for one request"));
        }
        if range.is_empty() {
            replies.data(range.start, Bytes::new(), true);
            return Ok(());
        }
        let is_whole = self.form == ReplyForm::Simple || request.flags & flag::DF != 0;
        if is_whole || request.len <= self.export.block_bytes().into() {
            replies.data(range.start, self.export.read(range).await?, true);
            return Ok(());
        }
        // Reads everything before it answers, so that an error is the only reply.
        let mut parts = Vec::new();
        for (part, flags) in self.extents(BASE_ALLOCATION, range.clone()).await? {
            let is_hole = flags & Extent::ZERO != 0;
            parts.push((part.clone(), if is_hole { None } else { Some(self.export.read(part).await?) }));
        }
        for (part, data) in parts {
            let is_last = part.end == range.end;
            match data {
                Some(data) => replies.data(part.start, data, is_last),
                None => replies.hole(part.start, (part.end - part.start) as u32, is_last),
            }
        }
        Ok(())
    }

    /// All extents of a range. Its length bounds their number.
    async fn extents(
        &self,
        context: &str,
        range: Range<u64>,
    ) -> std::result::Result<Vec<(Range<u64>, u32)>, Failure> {
        let (mut at, mut all) = (range.start, Vec::new());
        while at < range.end {
            let more = self.export.extents(context, at..range.end, EXTENTS_MAX).await?;
            let before = at;
            for extent in more {
                let end = range.end.min(at + extent.len_bytes);
                all.push((at..end, extent.flags));
                at = end;
            }
            if at == before {
                return Err(Failure::new(Errno::Io, "the export does not say what it holds there"));
            }
        }
        Ok(all)
    }

    async fn block_status(
        &self,
        request: &Request,
        replies: &mut Replies,
    ) -> std::result::Result<(), Failure> {
        let range = self.range(request)?;
        if self.contexts.is_empty() || range.is_empty() || request.flags & flag::PAYLOAD_LEN != 0 {
            return Err(invalid("block status needs a context that was agreed on, and a range"));
        }
        let most = if request.flags & flag::REQ_ONE != 0 { 1 } else { EXTENTS_MAX };
        let mut all = Vec::with_capacity(self.contexts.len());
        for context in &self.contexts {
            let mut extents = self.export.extents(context, range.clone(), most).await?;
            extents.truncate(most);
            if extents.is_empty() {
                return Err(Failure::new(Errno::Io, "the export does not say what it holds there"));
            }
            all.push(extents);
        }
        for (id, extents) in all.iter().enumerate() {
            replies.status(id as u32, extents, id + 1 == all.len());
        }
        Ok(())
    }
}
