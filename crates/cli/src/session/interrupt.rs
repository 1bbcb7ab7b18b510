//! Ctrl-C while files are being written: the work ends in order, and what is left of it is said.

use tokio::signal::unix::{SignalKind, signal};

use crate::outcome::CliError;

/// Waits for an interrupt: Ctrl-C, or what `kill` and service managers send.
pub async fn interrupted() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
    let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    if signals.is_empty() {
        // Signals can't be had here: then an interrupt ends the program as ever.
        std::future::pending::<()>().await;
    }
    futures::future::select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
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
