//! Ctrl-C during writes: the work stops in an orderly way, and the message says what it leaves behind.

use tokio::signal::unix::{SignalKind, signal};

use crate::outcome::CliError;
use crate::streams::streams;

/// Waits for an interrupt: Ctrl-C, or the signals that `kill` and service managers send.
pub async fn interrupted() {
    if let Some(client) = &streams().client {
        let _heeding = client.cancel.heed();
        return client.cancel.cancelled().await;
    }
    let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
    let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    if signals.is_empty() {
        // No signal handler can be installed: an interrupt then ends the program as usual.
        std::future::pending::<()>().await;
    }
    futures::future::select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
}

/// Runs `work` to its end; an interrupt drops it, and `left` says what it leaves behind.
pub async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, CliError>>,
    left: impl FnOnce() -> String,
) -> Result<T, CliError> {
    tokio::select! {
        biased; // handle interrupts before the work begins
        () = interrupted() => Err(CliError::Stopped(format!("interrupted; {}", left()))),
        done = work => done,
    }
}
