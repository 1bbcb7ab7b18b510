//! Ctrl-C while a command works: see [`cenote_control::Caller`].

use crate::outcome::CliError;
use crate::streams::caller;

/// Waits for an interrupt: Ctrl-C, or a signal from `kill` or a service manager.
pub async fn interrupted() {
    caller().interrupted().await;
}

/// Runs `work` to its end; an interrupt drops it, and `left` describes the state left behind.
pub async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, CliError>>,
    left: impl FnOnce() -> String,
) -> Result<T, CliError> {
    caller().unless_interrupted(work, left).await
}
