//! Retries calls that a signal interrupts (`EINTR`) or that the kernel defers (`EAGAIN`), within bounds.
//!
//! Idea: a call is first retried at once; then the transfer retries after doubling pauses. A device that
//! still fails so after a second is at fault (a driver, a stuck file server), and its pool must learn of it:
//! waiting longer would hang every txg.

use cenote_runtime::Runtime;
use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

/// Attempts without a pause.
pub(super) const CALLS: u32 = 16;
/// The first and the last pause, about a second together.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(512)];

fn is_interruption(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

/// Repeats an interrupted call, up to [`CALLS`] times.
pub(super) fn call<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let mut outcome = call();
    for _ in 1..CALLS {
        match &outcome {
            Err(error) if is_interruption(error) => outcome = call(),
            _ => break,
        }
    }
    outcome
}

/// Repeats an interrupted transfer after [`PAUSES`].
pub(super) async fn transfer<T, F: Future<Output = Result<T>>>(
    runtime: &Runtime,
    mut transfer: impl FnMut() -> F,
) -> Result<T> {
    let [mut pause, last] = PAUSES;
    loop {
        match transfer().await {
            Err(error) if is_interruption(&error) && pause <= last => runtime.sleep(pause).await,
            outcome => return outcome,
        }
        pause *= 2;
    }
}
