//! Long-running work recorded in the pool: the lines `scan:`, `remove:`, `checkpoint:` and `expand:` of
//! `zpool status`.
//!
//! Work that the daemon is doing is shown with its speed and the time left. For work in progress when the
//! pool was last written, the disk holds only the progress.
//!
//! Source: OpenZFS `print_scan_scrub_resilver_status`, `print_err_scrub_status`, `print_rebuild_status_impl`,
//! `print_removal_status`, `print_checkpoint_status`.

use cenote_control::answers::VdevStatus;
use cenote_control::text::{ctime, days_and_clock, nice_bytes, nice_number};
use cenote_control::zpool::shown::status::progress::{Pace, PoolProgress, Rebuild, Removal};
use cenote_format::scan::{
    ErrorScrubPhys, RebuildPhys, RemovingPhys, ScanFunc, ScanPhys, ScanState, VdevWorkState,
};
use cenote_format::units::VdevId;

use super::expansion;
use crate::zpool::tree::name_of;

/// For slower rebuilds, no time left is shown.
const LEAST_RATE: u64 = 10 << 20;

fn bytes_per_second(pace: Pace) -> Option<u64> {
    pace.done_bytes.checked_div(pace.seconds).filter(|rate| *rate > 0)
}

/// The lines about all finished and unfinished work.
pub fn lines(work: &PoolProgress, root: &VdevStatus) -> String {
    let (scan, now_s) = (work.scan.as_ref(), work.now_s);
    let is_newer = |it: &&ErrorScrubPhys| scan.is_none_or(|scan| it.start_time_s >= scan.start_time_s);
    let errors = work.error_scrub.as_ref().filter(is_newer);
    let mut out = errors.map_or_else(String::new, error_scrub_lines);
    // Of two scrubs, the newer one is shown.
    let scan = scan.filter(|scan| errors.is_none() || !scan.is_scrub());
    out += &scan_lines(scan, &work.rebuilds, root, work.pace, now_s.is_some());
    out += &work.removal.map_or_else(String::new, |it| removal(&it, root, now_s));
    if let Some(checkpoint) = work.checkpoint {
        let (since, space) = (time(checkpoint.timestamp_s), checkpoint.space_bytes);
        out += &format!("checkpoint: created {since}, consumes {}\n", nice_number(space));
    }
    out + &work.expansion.map_or_else(String::new, |it| expansion::lines(&it, root, now_s))
}

fn time(seconds: u64) -> String {
    ctime(seconds.cast_signed())
}

/// A scrub is always shown; of resilvers and rebuilds, the newest or the one in progress.
fn scan_lines(
    scan: Option<&ScanPhys>,
    rebuilds: &[Rebuild],
    root: &VdevStatus,
    pace: Option<Pace>,
    is_done_now: bool,
) -> String {
    let func = scan.map_or(ScanFunc::None, |scan| ScanFunc::from(scan.func));
    let newest_rebuild = rebuilds.iter().map(|it| it.recorded.end_time_s).max().unwrap_or(0);
    let mut out = String::new();
    match (func, scan) {
        (ScanFunc::Scrub, Some(scan)) if scan.is_thorough() => {
            out += &scan_line(scan, "thorough scrub", pace);
        }
        (ScanFunc::Scrub, Some(scan)) => out += &scan_line(scan, "scrub", pace),
        (ScanFunc::Resilver, Some(scan)) if scan.is_running() || scan.end_time_s > newest_rebuild => {
            return scan_line(scan, "resilver", pace);
        }
        _ => {}
    }
    for Rebuild { vdev, recorded } in rebuilds {
        out += &rebuild_line(&name_of(root, *vdev), recorded, is_done_now);
    }
    out
}

/// The label is `scrub`, one column to the right, as in OpenZFS.
fn error_scrub_lines(scrub: &ErrorScrubPhys) -> String {
    let (start, end) = (time(scrub.start_time_s), time(scrub.end_time_s));
    let examined = scrub.examined;
    match ScanState::from(scrub.state) {
        ScanState::Finished => {
            let took = scrub.end_time_s.saturating_sub(scrub.start_time_s);
            let (days, clock) = (took / 86_400, days_and_clock(took % 86_400));
            format!(" scrub: scrubbed {examined} error blocks in {days} days {clock} on {end}\n")
        }
        ScanState::Canceled => format!(" scrub: error scrub canceled on {end}\n"),
        ScanState::ErrorScrubbing => {
            let percent = 100.0 * examined as f64 / examined.saturating_add(scrub.to_examine).max(1) as f64;
            let state = match scrub.is_paused() {
                // The time of the pause is not on disk.
                true => format!("error scrub paused\n\terror scrub started on {start}"),
                false => format!("error scrub in progress since {start}"),
            };
            format!(" scrub: {state}\n\t{percent:.2}% done, issued I/O for {examined} error blocks\n")
        }
        _ => String::new(),
    }
}

fn scan_line(scan: &ScanPhys, what: &str, pace: Option<Pace>) -> String {
    let (start, end) = (time(scan.start_time_s), time(scan.end_time_s));
    let processed = nice_bytes(scan.processed_bytes);
    let (done, verb) = match what {
        "scrub" => ("scrub repaired", "repaired"),
        "thorough scrub" => ("thorough scrub repaired", "repaired"),
        _ => ("resilvered", "resilvered"),
    };
    match ScanState::from(scan.state) {
        ScanState::Finished => {
            let took = days_and_clock(scan.end_time_s.saturating_sub(scan.start_time_s));
            format!("  scan: {done} {processed} in {took} with {} errors on {end}\n", scan.errors)
        }
        ScanState::Canceled => format!("  scan: {what} canceled on {end}\n"),
        ScanState::Scanning => {
            let all = nice_bytes(scan.to_examine_bytes);
            let to_issue = scan.to_examine_bytes.saturating_sub(scan.skipped_bytes);
            let examined = nice_bytes(scan.examined_bytes);
            // Data written since the start adds to the data examined.
            let percent = (100.0 * scan.examined_bytes as f64 / to_issue.max(1) as f64).min(100.0);
            let progress = if scan.is_paused() { "paused, started" } else { "in progress since" };
            let rate = pace.and_then(bytes_per_second).filter(|_| !scan.is_paused());
            let at = rate.map_or_else(String::new, |rate| format!(" at {}/s", nice_bytes(rate)));
            let left = to_issue.saturating_sub(scan.examined_bytes);
            let estimate = match rate {
                _ if scan.is_paused() => String::new(),
                Some(rate) => format!(", {} to go", days_and_clock(left / rate)),
                None => ", no estimated completion time".into(),
            };
            format!(
                "  scan: {what} {progress} {start}\n\t{examined} / {all} scanned{at}, {examined} / {} \
                 issued{at}\n\t{processed} {verb}, {percent:.2}% done{estimate}\n",
                nice_bytes(to_issue)
            )
        }
        _ => String::new(),
    }
}

/// Its speed is the average since its start.
fn rebuild_line(name: &str, rebuild: &RebuildPhys, is_done_now: bool) -> String {
    let (start, end) = (time(rebuild.start_time_s), time(rebuild.end_time_s));
    let rebuilt = nice_bytes(rebuild.rebuilt_bytes);
    match VdevWorkState::of_rebuild(rebuild.state) {
        VdevWorkState::Complete => {
            let took = days_and_clock(rebuild.scan_time_ms / 1000);
            format!(
                "  scan: resilvered ({name}) {rebuilt} in {took} with {} errors on {end}\n",
                rebuild.errors
            )
        }
        VdevWorkState::Canceled => format!("  scan: resilver ({name}) canceled on {end}\n"),
        VdevWorkState::Active => {
            let all = nice_bytes(rebuild.estimated_bytes);
            let (scanned, issued) = (nice_bytes(rebuild.scanned_bytes), nice_bytes(rebuild.issued_bytes));
            let percent = 100.0 * rebuild.scanned_bytes as f64 / rebuild.estimated_bytes.max(1) as f64;
            let rate = |bytes: u64| (bytes / (rebuild.scan_time_ms + 1)) * 1000;
            let at = |bytes: u64| match rate(bytes) {
                rate if is_done_now && rate > 0 => format!(" at {}/s", nice_bytes(rate)),
                _ => String::new(),
            };
            let left = rebuild.estimated_bytes.saturating_sub(rebuild.scanned_bytes);
            let estimate = match rate(rebuild.scanned_bytes) {
                rate @ LEAST_RATE.. if is_done_now => format!("{} to go", days_and_clock(left / rate)),
                _ => "no estimated completion time".into(),
            };
            format!(
                "  scan: resilver ({name}) in progress since {start}\n\
                 \t{scanned} / {all} scanned{}, {issued} / {all} issued{}\n\
                 \t{rebuilt} resilvered, {:.2}% done, {estimate}\n",
                at(rebuild.scanned_bytes),
                at(rebuild.issued_bytes),
                percent.min(100.0)
            )
        }
        _ => String::new(),
    }
}

/// The full path, for a single disk.
fn path_of(root: &VdevStatus, id: VdevId) -> String {
    let path = root.children.iter().find(|top| top.id == id.0).and_then(|top| top.path.clone());
    path.unwrap_or_else(|| name_of(root, id))
}

fn removal(removal: &Removal, root: &VdevStatus, now_s: Option<u64>) -> String {
    let removing = &removal.recorded;
    let copied = nice_number(removing.copied_bytes);
    let (start, end) = (time(removing.start_time_s), time(removing.end_time_s));
    let vdev = removing.removing_vdev;
    let mut out = match ScanState::from(removing.state) {
        ScanState::Finished => {
            let minutes = removing.end_time_s.saturating_sub(removing.start_time_s) / 60;
            let (hours, minutes) = (minutes / 60, minutes % 60);
            format!(
                "remove: Removal of vdev {vdev} copied {copied} in {hours}h{minutes}m, completed on {end}\n"
            )
        }
        ScanState::Canceled => format!("remove: Removal of {} canceled on {end}\n", path_of(root, vdev)),
        ScanState::Scanning => {
            let percent = 100.0 * removing.copied_bytes as f64 / removing.to_copy_bytes.max(1) as f64;
            let (name, all) = (path_of(root, vdev), nice_number(removing.to_copy_bytes));
            let (at, to_go) = removal_pace(removing, now_s).unwrap_or_default();
            format!(
                "remove: Evacuation of {name} in progress since {start}\n\t{copied} copied out of {all}{at}, \
                 {percent:.2}% done{to_go}\n"
            )
        }
        _ => return String::new(),
    };
    if removal.mapping_bytes > 0 {
        let memory = nice_number(removal.mapping_bytes);
        out += &format!("\t{memory} memory used for removed device mappings\n");
    }
    out
}

/// Speed and time left of a removal that the daemon runs.
fn removal_pace(removing: &RemovingPhys, now_s: Option<u64>) -> Option<(String, String)> {
    const TOO_LONG_HOURS: u64 = 30 * 24;
    let seconds = now_s?.saturating_sub(removing.start_time_s).max(1);
    let rate = (removing.copied_bytes / seconds).max(1);
    let minutes = removing.to_copy_bytes.saturating_sub(removing.copied_bytes) / rate / 60;
    let to_go = match minutes / 60 {
        hours if hours < TOO_LONG_HOURS => format!(", {hours}h{}m to go", minutes % 60),
        _ => ", (copy is slow, no estimated time)".into(),
    };
    Some((format!(" at {}/s", nice_number(rate)), to_go))
}
