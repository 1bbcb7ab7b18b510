//! Progress of long operations on standard error. Silent if that is not a terminal.

use std::time::Duration;

use cenote_runtime::Runtime;
use cenote_shown::progress::Place;

pub use cenote_shown::progress::Progress;

use crate::streams::streams;

/// How often progress is polled.
const TICK: Duration = Duration::from_millis(250);

/// Awaits `work` and periodically passes the elapsed seconds to `show`.
pub async fn watch<T>(runtime: &Runtime, work: impl Future<Output = T>, show: impl Fn(f64)) -> T {
    let start = runtime.now();
    let mut work = std::pin::pin!(work);
    loop {
        match runtime.timeout(TICK, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => show((runtime.now() - start).as_secs_f64()),
        }
    }
}

/// A line about `total` bytes; with `force`, also if standard error is no terminal.
pub fn bytes_line(total: u64, force: bool) -> Progress {
    Progress::bytes(total, place(force))
}

/// A line about a number of files that is not known in advance.
pub fn files_line() -> Progress {
    Progress::files(place(false))
}

/// A line with a free text.
pub fn text_line() -> Progress {
    Progress::text(place(false))
}

fn place(force: bool) -> Place {
    let streams = streams();
    let has_screen = streams.stderr_screen().is_some();
    match force || streams.progress.get().copied().unwrap_or(has_screen) {
        true if has_screen => Place::Terminal,
        true => Place::File(streams.stderr.clone()),
        false => Place::Hidden,
    }
}
