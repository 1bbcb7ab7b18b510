//! Sessions: the connections of one agreement with a server, and the task that makes them.
//!
//! ```text
//!   drive:  connect --> up --> connections, until one ends --> down --> connect, at growing intervals
//!             |                                                           '-- DEADLINE: the end
//!             '-- until the device is closed and nothing waits
//! ```
//!
//! Idea: connections of a session live and end together. Only then is it sure that a repeated write does not
//! overtake a newer one on another connection.
//!
//! Several connections are made if the server answers a flush for all (MULTI_CONN). Each has a task that
//! sends and receives; free ones take the next requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_disk::Stream;
use cenote_disk::stream::write_pieces;
use cenote_nbd::wire::{Command, Request, can};
use cenote_runtime::{JoinHandle, Runtime};
use futures::future::{join_all, select_all};
use tokio::io::{AsyncWriteExt, WriteHalf};

use super::handshake::{Agreed, negotiate};
use super::lively::Lively;
use super::replies::Replies;
use super::requests::{Lane, Requests};
use crate::dial::Dial;
use crate::error::NbdError;

/// Time for a connection and its negotiation.
const CONNECT: Duration = Duration::from_secs(3);
/// Connections of a session.
const CONNECTIONS: usize = 4;
/// Pauses between attempts grow from one to the other.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Sessions that end within this time do not reset the pause.
const SHORT: Duration = Duration::from_secs(2);
/// Time for telling a server that a connection ends.
const GOODBYE: Duration = Duration::from_secs(1);
/// Interval of looks at the time.
const TICK: Duration = Duration::from_millis(250);

/// Connections ready for requests.
pub(super) struct Session {
    pub(super) agreed: Agreed,
    streams: Vec<Box<dyn Stream>>,
}

/// Makes the connections of a session.
pub(super) async fn connect(dial: &dyn Dial, export: &str, runtime: &Runtime) -> Result<Session, NbdError> {
    let one = async || {
        let connecting = async {
            let stream = dial.dial().await.map_err(|error| NbdError::Connect(error.into()))?;
            negotiate(stream, export, dial).await
        };
        runtime.timeout(CONNECT, connecting).await.unwrap_or(Err(NbdError::Silent { since: CONNECT }))
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

/// Keeps connections to a server until the device is closed and nothing waits.
pub(super) async fn drive(
    requests: Arc<Requests>,
    dial: Arc<dyn Dial>,
    export: String,
    first: Session,
    runtime: Runtime,
) {
    let agreed = first.agreed.clone();
    let (mut next, mut pause) = (Some(first), FIRST_PAUSE);
    loop {
        let session = match next.take() {
            Some(session) => session,
            None => {
                let again = reconnect(&requests, (&*dial, &export), &agreed, &runtime, &mut pause);
                tokio::select! {
                    biased;
                    () = requests.closed() => return,
                    session = again => session,
                    () = expire(&requests, &runtime) => return,
                }
            }
        };
        let begun = runtime.now();
        match run(session, &requests, &runtime).await {
            Ok(()) => return,
            Err(why) => requests.down(why),
        }
        if runtime.now().since(begun) > SHORT {
            pause = FIRST_PAUSE;
        }
    }
}

async fn reconnect(
    requests: &Requests,
    (dial, export): (&dyn Dial, &str),
    before: &Agreed,
    runtime: &Runtime,
    pause: &mut Duration,
) -> Session {
    loop {
        runtime.sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        let session = connect(dial, export, runtime).await;
        match session.and_then(|session| session.agreed.check_as_before(before).map(|()| session)) {
            Ok(session) => return session,
            Err(why) => requests.still_down(why),
        }
    }
}

/// Until the deadline has passed.
async fn expire(requests: &Requests, runtime: &Runtime) {
    while !requests.expire() {
        runtime.sleep(TICK).await;
    }
}

/// Until the device is closed, or a connection ends.
async fn run(session: Session, requests: &Arc<Requests>, runtime: &Runtime) -> Result<(), NbdError> {
    let form = session.agreed.form;
    let number = requests.up(&session.agreed);
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
            (ended.unwrap_or(Err(NbdError::Protocol("a reply stopped its reader"))), Some(at))
        }
        since = silence(requests, runtime) => (Err(NbdError::Silent { since }), None),
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

async fn silence(requests: &Requests, runtime: &Runtime) -> Duration {
    loop {
        runtime.sleep(TICK).await;
        if let Some(since) = requests.silence() {
            return since;
        }
    }
}

async fn send(
    mut writer: WriteHalf<Box<dyn Stream>>,
    requests: &Requests,
    lane: Lane,
) -> Result<(), NbdError> {
    let impossible = NbdError::Protocol("a request can't be encoded");
    while let Some(batch) = requests.next(lane).await {
        let mut pieces: Vec<Bytes> = Vec::with_capacity(2 * batch.len());
        for (cookie, ask) in batch {
            let (flags, command, offset) = (ask.flags, ask.command, ask.offset);
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
