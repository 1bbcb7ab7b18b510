//! Ctrl-C while a command works: see [`cenote_control::Caller`].

use crate::outcome::CliError;
use crate::streams::caller;

/// Waits for an interrupt: Ctrl-C, or the signals that `kill` and service managers send.
pub async fn interrupted() {
    caller().interrupted().await;
}

/// Runs `work` to its end; an interrupt drops it, and `left` says what it leaves behind.
pub async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, CliError>>,
    left: impl FnOnce() -> String,
) -> Result<T, CliError> {
    caller().unless_interrupted(work, left).await
}

/// Runs a client's command, or a part of it; if it is cancelled and does not end by itself, it is dropped.
pub async fn until_cancelled<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    caller().until_cancelled(work).await
}
