//! The expansion of a RAID-Z in `zpool status`.
//!
//! Source: OpenZFS `print_raidz_expand_status`.

use cenote_control::answers::VdevStatus;
use cenote_control::text::{ctime, days_and_clock, nice_number};
use cenote_control::zpool::shown::status::progress::Expansion;
use cenote_format::scan::ScanState;

use crate::zpool::tree::name_of;

/// The lines `expand:`. `now_s`: the time, if the daemon runs the expansion.
pub fn lines(it: &Expansion, root: &VdevStatus, now_s: Option<u64>) -> String {
    let (name, copied) = (name_of(root, it.vdev), nice_number(it.copied_bytes));
    let time = |seconds: u64| ctime(seconds.cast_signed());
    match it.state {
        ScanState::Finished => {
            let took = days_and_clock(it.end_s.saturating_sub(it.start_s));
            format!("expand: expanded {name} copied {copied} in {took}, on {}\n", time(it.end_s))
        }
        ScanState::Scanning => {
            let (start, all) = (time(it.start_s), nice_number(it.allocated_bytes));
            let percent = 100.0 * it.copied_bytes as f64 / it.allocated_bytes.max(1) as f64;
            let (at, to_go) = pace(it, now_s);
            format!(
                "expand: expansion of {name} in progress since {start}\n\t{copied} / {all} copied{at}, \
                     {percent:.2}% done{to_go}\n"
            )
        }
        _ => String::new(),
    }
}

/// Speed and time left.
fn pace(it: &Expansion, now_s: Option<u64>) -> (String, String) {
    const TOO_LONG_S: u64 = 30 * 24 * 3600;
    let waits = if it.waits { ", paused for resilver or clear" } else { "" };
    let Some(now_s) = now_s else { return (String::new(), waits.into()) };
    let seconds = now_s.saturating_sub(it.start_s).max(1);
    let rate = (it.copied_bytes / seconds).max(1);
    let to_go = match it.allocated_bytes.saturating_sub(it.copied_bytes) / rate {
        _ if it.waits => waits.into(),
        seconds if seconds < TOO_LONG_S => format!(", {} to go", days_and_clock(seconds)),
        _ => ", (copy is slow, no estimated time)".into(),
    };
    (format!(" at {}/s", nice_number(rate)), to_go)
}
