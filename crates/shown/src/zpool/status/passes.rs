//! Notes after the lines of devices: progress of initializing (`zpool status -i`) and trimming (`-t`).
//!
//! Source: OpenZFS `print_status_initialize`, `print_status_trim`.

use cenote_control::text::ctime;
use cenote_control::zpool::shown::status::passes::{LeafPass, LeafPasses};
use cenote_format::scan::VdevWorkState;

/// The words for done, not done, and in progress.
const INITIALIZE: [&str; 3] = ["initialized", "uninitialized", "initializing"];
const TRIM: [&str; 3] = ["trimmed", "untrimmed", "trimming"];

/// The note after a device's line: details of the requested kinds of work, otherwise only the word for work
/// in progress.
pub fn note(passes: &LeafPasses, initialize: bool, trim: bool) -> String {
    of(passes.initialize, INITIALIZE, initialize) + &of(passes.trim, TRIM, trim)
}

fn of(pass: LeafPass, [done, undone, under_way]: [&str; 3], at_length: bool) -> String {
    let (percent, time) = (pass.percent, ctime(pass.time_s.cast_signed()));
    match pass.state {
        VdevWorkState::Active if !at_length => format!("  ({under_way})"),
        _ if !at_length => String::new(),
        VdevWorkState::Active => format!("  ({percent}% {done}, started at {time})"),
        VdevWorkState::Suspended => format!("  ({percent}% {done}, suspended, started at {time})"),
        VdevWorkState::Complete => format!("  (100% {done}, completed at {time})"),
        _ => format!("  ({undone})"),
    }
}
