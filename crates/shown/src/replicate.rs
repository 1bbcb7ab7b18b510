//! The result of `cenote replicate`.

use cenote_control::replicate::plan::Stream;
use cenote_control::replicate::report::{Report, State};
use cenote_control::text::nice_bytes;

/// As text, a line for each dataset.
pub fn text(reports: &[Report]) -> String {
    reports.iter().map(line).collect()
}

fn line(report: &Report) -> String {
    let Report { source, target, snapshot, .. } = report;
    let own = snapshot.split_once('@').map_or("", |(_, own)| own);
    let bytes = nice_bytes(report.bytes);
    let state = match (report.state, report.is_resumed) {
        (State::UpToDate, _) => format!("up to date with @{own}"),
        (State::Sent, true) => format!("resumed, {bytes} sent; up to date with @{own}"),
        (State::Sent, false) => format!("{bytes} sent; up to date with @{own}"),
        (State::Planned, true) => format!("would resume, {bytes}"),
        (State::Planned, false) => format!("would send {bytes}"),
    };
    let verified = match report.is_verified {
        None => "",
        Some(true) => "; verified",
        Some(false) => "; DIFFERS",
    };
    let mut text = format!("{source} -> {target}: {state}{verified}\n");
    for Stream { from, to, between } in report.streams.iter().filter(|_| report.state == State::Planned) {
        text += &match (from, between) {
            (None, _) => format!("  full {to}\n"),
            (Some(from), false) => format!("  from {from} to {to}\n"),
            (Some(from), true) => format!("  from {from} to {to}, with those in between\n"),
        };
    }
    text
}
