//! Ctrl-C while files are being written: the work ends in order, and what is left of it is said.

use crate::outcome::CliError;

/// Waits for an interrupt.
pub async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Signals can't be had here: then an interrupt ends the program as ever.
        std::future::pending::<()>().await;
    }
}

/// Does `work` to its end; at an interrupt drops it, and `left` says what is left of it.
pub async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, CliError>>,
    left: impl FnOnce() -> String,
) -> Result<T, CliError> {
    tokio::select! {
        biased; // interrupts are ours before the work begins
        () = interrupted() => Err(CliError::Stopped(format!("interrupted; {}", left()))),
        done = work => done,
    }
}
