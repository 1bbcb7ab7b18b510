//! Ctrl-C during writes: the work stops in an orderly way, and the message says what it leaves behind.

use tokio::signal::unix::{SignalKind, signal};

use crate::outcome::CliError;
use crate::streams::{Client, streams};

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

/// Runs a client's command, or a part of it; if it is cancelled and does not end by itself, it is dropped.
pub async fn until_cancelled<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let streams = streams();
    let Some(Client { cancel, .. }) = &streams.client else { return work.await };
    let around = cancel.heeding();
    let cancelled = async {
        cancel.cancelled().await;
        if cancel.heeding() > around {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = cancelled => Err(CliError::Stopped("interrupted".into())),
    }
}

/// Takes steps that belong together: a client's command is not dropped in their midst, though the client may
/// have gone.
pub async fn whole<T>(steps: impl Future<Output = T>) -> T {
    let streams = streams();
    let _heeding = streams.client.as_ref().map(|client| client.cancel.heed());
    steps.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::{Streams, with_streams};
    use cenote_dataset::Credentials;
    use cenote_host::cancel::Cancel;
    use cenote_runtime::Runtime;
    use std::fs::File;
    use std::sync::Arc;

    #[test]
    fn what_follows_is_done_though_the_client_has_gone() {
        let null = || Arc::new(File::open("/dev/null").unwrap());
        let cancel = Cancel::default();
        let client = Client {
            cwd: "/".into(),
            who: Credentials { uid: 0, gids: Vec::new() },
            is_admin: true,
            env: Vec::new(),
            screens: None,
            cancel: cancel.clone(),
        };
        let (stdin, stdout, stderr) = (null(), null(), null());
        let streams = Streams { stdin, stdout, stderr, json: false.into(), client: Some(client) };
        let mut followed = false;
        let endless = async {
            cancel.cancel();
            std::future::pending::<Result<(), CliError>>().await
        };
        let command = until_cancelled(whole(async {
            let done = until_cancelled(endless).await;
            tokio::task::yield_now().await;
            followed = true;
            done
        }));
        let done = with_streams(Arc::new(streams), || Runtime::real(Some(1)).block_on(command));
        assert!(matches!(done, Err(CliError::Stopped(_))));
        assert!(followed);
    }
}
