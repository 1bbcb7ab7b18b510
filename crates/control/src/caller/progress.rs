//! Progress reports of work on bytes.

use std::time::Duration;

use crate::caller::Progress;
use crate::session::Session;

const TELL_INTERVAL: Duration = Duration::from_millis(250);

/// Awaits `work` and reports progress meanwhile. `now` returns the operation, the bytes done, and the total
/// or 0.
pub(crate) async fn telling<T>(
    session: &Session,
    work: impl Future<Output = T>,
    now: impl Fn() -> (String, u64, u64),
) -> T {
    let console = &session.caller().console;
    let mut work = std::pin::pin!(work);
    let done = loop {
        if let Ok(done) = session.runtime().timeout(TELL_INTERVAL, work.as_mut()).await {
            break done;
        }
        let (what, done_bytes, total_bytes) = now();
        console.progress(Some(Progress { what: &what, done_bytes, total_bytes }));
    };
    console.progress(None);
    done
}
