//! NBD's sessions: the connections of one agreement with a server.
//!
//! Several connections are made if the server answers a flush for all (MULTI_CONN). Each has a task that
//! sends and receives; free ones take the next requests.

use std::sync::Arc;

use bytes::Bytes;
use cenote_disk::Stream;
use cenote_disk::stream::write_pieces;
use cenote_nbd::wire::{Command, Request, can, flag};
use cenote_runtime::{JoinHandle, Runtime};
use futures::future::{join_all, select_all};
use tokio::io::{AsyncWriteExt, WriteHalf};

use super::handshake::{Agreed, negotiate};
use super::replies::Replies;
use crate::dial::Dial;
use crate::error::ServerError;
use crate::requests::{Ask, Kind, Lane, Requests};
use crate::session::lively::Lively;
use crate::session::{CONNECT, GOODBYE, Protocol, silence};

/// Connections of a session.
const CONNECTIONS: usize = 4;

/// Connections ready for requests.
pub(super) struct Session {
    pub(super) agreed: Agreed,
    streams: Vec<Box<dyn Stream>>,
}

/// Makes the connections of a session.
pub(super) async fn connect(
    dial: &dyn Dial,
    export: &str,
    runtime: &Runtime,
) -> Result<Session, ServerError> {
    let one = async || {
        let connecting = async {
            let stream = dial.dial().await.map_err(|error| ServerError::Connect(error.into()))?;
            negotiate(stream, export, dial).await
        };
        runtime.timeout(CONNECT, connecting).await.unwrap_or(Err(ServerError::Silent { since: CONNECT }))
    };
    let (stream, agreed) = one().await?;
    let mut streams = vec![stream];
    if agreed.can(can::MULTI_CONN) {
        // The server may allow fewer.
        let more = join_all((1..CONNECTIONS).map(|_| one())).await.into_iter().flatten();
        streams.extend(more.filter(|(_, same)| *same == agreed).map(|(stream, _)| stream));
    }
    Ok(Session { agreed, streams })
}

/// The protocol, for an export of a server.
pub(super) struct Nbd {
    pub(super) dial: Arc<dyn Dial>,
    pub(super) export: String,
    pub(super) agreed: Agreed,
    pub(super) runtime: Runtime,
}

impl Protocol for Nbd {
    type Session = Session;

    async fn reconnect(&self) -> Result<Session, ServerError> {
        let session = connect(&*self.dial, &self.export, &self.runtime).await?;
        session.agreed.check_as_before(&self.agreed)?;
        Ok(session)
    }

    fn size_bytes(session: &Session) -> u64 {
        session.agreed.size_bytes
    }

    async fn run(&self, session: Session, number: u64, requests: &Arc<Requests>) -> Result<(), ServerError> {
        run(session, number, requests, &self.runtime).await
    }
}

/// Until the device is closed, or a connection ends.
async fn run(
    session: Session,
    number: u64,
    requests: &Arc<Requests>,
    runtime: &Runtime,
) -> Result<(), ServerError> {
    let form = session.agreed.form;
    let lane = |(at, stream): (usize, Box<dyn Stream>)| {
        let stream: Box<dyn Stream> = Box::new(Lively::new(stream, runtime, &requests.alive_ns));
        let (requests, lane) = (requests.clone(), Lane { session: number, number: at });
        runtime.spawn(async move {
            let (reader, writer) = tokio::io::split(stream);
            let sending = send(writer, &requests, lane);
            let receiving = Replies::new(reader, &requests, lane, form).receive();
            tokio::select! {
                biased;
                sent = sending => sent,
                received = receiving => received.map(|never| match never {}),
            }
        })
    };
    let mut lanes: Vec<JoinHandle<_>> = session.streams.into_iter().enumerate().map(lane).collect();
    let (ended, is_ended) = tokio::select! {
        biased;
        (ended, at, _) = select_all(lanes.iter_mut()) => {
            (ended.unwrap_or(Err(ServerError::Protocol("a reply stopped its reader"))), Some(at))
        }
        since = silence(requests, runtime) => (Err(ServerError::Silent { since }), None),
    };
    // The rest must neither send nor take anything more.
    for (_, mut lane) in lanes.into_iter().enumerate().filter(|(at, _)| Some(*at) != is_ended) {
        if ended.is_err() || runtime.timeout(GOODBYE, &mut lane).await.is_err() {
            lane.abort();
            lane.await.ok();
        }
    }
    ended
}

async fn send(
    mut writer: WriteHalf<Box<dyn Stream>>,
    requests: &Requests,
    lane: Lane,
) -> Result<(), ServerError> {
    let impossible = ServerError::Protocol("a request can't be encoded");
    while let Some(batch) = requests.next(lane, usize::MAX).await {
        let mut pieces: Vec<Bytes> = Vec::with_capacity(2 * batch.len());
        for (cookie, ask) in batch {
            let (flags, command, offset) = (flags_of(&ask), command_of(ask.kind), ask.offset);
            let header = Request { flags, command, cookie, offset, len: ask.len.into() }.encode();
            pieces.push(Bytes::copy_from_slice(&header.ok_or(impossible.clone())?));
            if command == Command::Write {
                pieces.extend(ask.data.iter().cloned());
            }
        }
        write_pieces(&mut writer, &mut pieces).await?;
    }
    let (flags, command) = (0, Command::Disconnect);
    if let Some(header) = (Request { flags, command, cookie: 0, offset: 0, len: 0 }).encode() {
        writer.write_all(&header).await?;
        writer.shutdown().await?;
    }
    Ok(())
}

fn command_of(kind: Kind) -> Command {
    match kind {
        Kind::Read => Command::Read,
        Kind::Write => Command::Write,
        Kind::Zeroes => Command::WriteZeroes,
        Kind::Trim => Command::Trim,
        Kind::Flush => Command::Flush,
    }
}

fn flags_of(ask: &Ask) -> u16 {
    if ask.is_through { flag::FUA } else { 0 }
}
