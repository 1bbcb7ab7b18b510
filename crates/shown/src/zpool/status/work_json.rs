//! Long-running work in `zpool status -j`: `scan_stats`, `removal_stats`, `checkpoint_stats`,
//! `raidz_expand_stats`.
//!
//! Source: OpenZFS `scan_status_nvlist`, `removal_status_nvlist`, `checkpoint_status_nvlist`,
//! `raidz_expand_status_nvlist`.

use cenote_control::answers::VdevStatus;
use cenote_control::text::date;
use cenote_control::zpool::shown::status::progress::PoolProgress;
use cenote_format::scan::{ScanFunc, ScanState};
use serde_json::{Map, Value, json};

use crate::numbers::Numbers;
use crate::zpool::tree::name_of;

fn time(seconds: u64, numbers: Numbers) -> Value {
    match seconds {
        seconds if numbers.exact => numbers.whole(seconds),
        0 => "-".into(),
        seconds => date(seconds.cast_signed()).into(),
    }
}

/// The members about all finished and unfinished work.
pub fn members(work: &PoolProgress, root: &VdevStatus, numbers: Numbers) -> Map<String, Value> {
    let bytes = |bytes: u64| numbers.value(&numbers.bytes(bytes));
    let count = |count: u64| numbers.value(&numbers.count(count));
    let time = |seconds| time(seconds, numbers);
    let mut members = Map::new();
    if let Some(scan) = work.scan {
        let pace = work.pace;
        let pass_bytes = pace.map_or(0, |pace| pace.done_bytes);
        let mut stats = json!({
            "function": function(ScanFunc::from(scan.func)),
            "state": state(ScanState::from(scan.state)),
            "start_time": time(scan.start_time_s),
            "end_time": time(scan.end_time_s),
            "to_examine": bytes(scan.to_examine_bytes),
            "examined": bytes(scan.examined_bytes),
            "skipped": bytes(scan.skipped_bytes),
            "processed": bytes(scan.processed_bytes),
            "errors": count(scan.errors),
            "bytes_per_scan": bytes(pass_bytes),
            "pass_start": numbers.whole(pace.map_or(scan.start_time_s, |pace| pace.since_s)),
            // The time of the pause is not on disk.
            "scrub_pause": time(0),
            "scrub_spent_paused": numbers.whole(0),
            "issued_bytes_per_scan": bytes(pass_bytes),
            "issued": bytes(scan.examined_bytes),
        });
        let errors = work.error_scrub.filter(|it| it.start_time_s > scan.start_time_s);
        if let (Some(errors), Some(stats)) = (errors, stats.as_object_mut()) {
            stats.extend([
                ("err_scrub_func".into(), function(ScanFunc::from(errors.func)).into()),
                ("err_scrub_state".into(), state(ScanState::from(errors.state)).into()),
                ("err_scrub_start_time".into(), time(errors.start_time_s)),
                ("err_scrub_end_time".into(), time(errors.end_time_s)),
                ("err_scrub_examined".into(), count(errors.examined)),
                ("err_scrub_to_examine".into(), count(errors.to_examine)),
                ("err_scrub_pause".into(), numbers.whole(0)),
            ]);
        }
        members.insert("scan_stats".into(), stats);
    }
    if let Some(removal) = work.removal {
        let removing = removal.recorded;
        let stats = json!({
            "state": state(ScanState::from(removing.state)),
            "removing_vdev": numbers.whole(removing.removing_vdev.0),
            "start_time": time(removing.start_time_s),
            "end_time": time(removing.end_time_s),
            "to_copy": bytes(removing.to_copy_bytes),
            "copied": bytes(removing.copied_bytes),
            "mapping_memory": bytes(removal.mapping_bytes),
        });
        members.insert("removal_stats".into(), stats);
    }
    if let Some(checkpoint) = work.checkpoint {
        let stats = json!({
            "state": "EXISTS",
            "start_time": time(checkpoint.timestamp_s),
            "space": bytes(checkpoint.space_bytes),
        });
        members.insert("checkpoint_stats".into(), stats);
    }
    if let Some(expansion) = work.expansion {
        let stats = json!({
            "name": name_of(root, expansion.vdev),
            "state": state(expansion.state),
            "expanding_vdev": numbers.whole(expansion.vdev.0),
            "start_time": time(expansion.start_s),
            "end_time": time(expansion.end_s),
            "to_reflow": bytes(expansion.allocated_bytes),
            "reflowed": bytes(expansion.copied_bytes),
            "waiting_for_resilver": numbers.whole(u64::from(expansion.waits)),
        });
        members.insert("raidz_expand_stats".into(), stats);
    }
    members
}

fn function(function: ScanFunc) -> &'static str {
    match function {
        ScanFunc::Scrub => "SCRUB",
        ScanFunc::Resilver => "RESILVER",
        ScanFunc::ErrorScrub => "ERRORSCRUB",
        ScanFunc::None | ScanFunc::Other(_) => "NONE",
    }
}

fn state(state: ScanState) -> &'static str {
    match state {
        ScanState::Scanning => "SCANNING",
        ScanState::Finished => "FINISHED",
        ScanState::Canceled => "CANCELED",
        ScanState::ErrorScrubbing => "ERRORSCRUBBING",
        ScanState::None | ScanState::Other(_) => "NONE",
    }
}
