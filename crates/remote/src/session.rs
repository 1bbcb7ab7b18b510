//! Sessions with a server, one after the other, and the task that makes them.
//!
//! ```text
//!   drive:  connect --> up --> connections, until one ends --> down --> connect, at growing intervals
//!             |                                                           '-- DEADLINE: the end
//!             '-- until the device is closed and nothing waits
//! ```
//!
//! Idea: connections of a session live and end together. Only then is it sure that a repeated write does not
//! overtake a newer one on another connection. A [`Protocol`] makes sessions and carries requests over one.

pub(crate) mod lively;

use std::sync::Arc;
use std::time::Duration;

use cenote_runtime::Runtime;

use crate::error::ServerError;
use crate::requests::Requests;

/// Time for a connection and its negotiation.
pub(crate) const CONNECT: Duration = Duration::from_secs(3);
/// Time for telling a server that a connection ends.
pub(crate) const GOODBYE: Duration = Duration::from_secs(1);
/// Pauses between attempts grow from one to the other.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Sessions that end within this time do not reset the pause.
const SHORT: Duration = Duration::from_secs(2);
/// Interval of looks at the time.
const TICK: Duration = Duration::from_millis(250);

/// A way to talk to a server.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// Connections ready for requests.
    type Session: Send;

    /// Makes the connections of a session, which offers no less than the first one.
    fn reconnect(&self) -> impl Future<Output = Result<Self::Session, ServerError>> + Send;

    /// Size of the disk.
    fn size_bytes(session: &Self::Session) -> u64;

    /// Carries requests until the device is closed and nothing waits, or a connection ends. `number`: the
    /// session's, see [`Requests::up`].
    fn run(
        &self,
        session: Self::Session,
        number: u64,
        requests: &Arc<Requests>,
    ) -> impl Future<Output = Result<(), ServerError>> + Send;
}

/// Keeps connections to a server until the device is closed and nothing waits.
pub(crate) async fn drive<P: Protocol>(
    requests: Arc<Requests>,
    protocol: P,
    first: P::Session,
    runtime: Runtime,
) {
    let (mut next, mut pause) = (Some(first), FIRST_PAUSE);
    loop {
        let session = match next.take() {
            Some(session) => session,
            None => {
                let again = reconnect(&requests, &protocol, &runtime, &mut pause);
                tokio::select! {
                    biased;
                    () = requests.closed() => return,
                    session = again => match session {
                        Some(session) => session,
                        None => return,
                    },
                    () = expire(&requests, &runtime) => return,
                }
            }
        };
        let begun = runtime.now();
        let number = requests.up(P::size_bytes(&session));
        match protocol.run(session, number, &requests).await {
            Ok(()) => return,
            Err(error @ ServerError::Fenced { .. }) => return requests.end(error),
            Err(why) => requests.down(why),
        }
        if runtime.now().since(begun) > SHORT {
            pause = FIRST_PAUSE;
        }
    }
}

/// `None`: the device has ended.
async fn reconnect<P: Protocol>(
    requests: &Requests,
    protocol: &P,
    runtime: &Runtime,
    pause: &mut Duration,
) -> Option<P::Session> {
    loop {
        runtime.sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        match protocol.reconnect().await {
            Ok(session) => return Some(session),
            Err(error @ ServerError::Fenced { .. }) => {
                requests.end(error);
                return None;
            }
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

/// Until the server has been silent for too long.
pub(crate) async fn silence(requests: &Requests, runtime: &Runtime) -> Duration {
    loop {
        runtime.sleep(TICK).await;
        if let Some(since) = requests.silence() {
            return since;
        }
    }
}
