//! An alert of `lab advise --watch`, as a line.

use cenote_control::text::iso_utc;
use cenote_lab::advice::watch::{Event, EventKind};

/// `2026-11-22T03:10:00Z raised warning tank: The pool is 91.5% full. (fill-90)`
pub fn line(event: &Event) -> String {
    let what = match event.event {
        EventKind::Raised => "raised",
        EventKind::Worsened => "worsened",
        EventKind::Cleared => "cleared",
    };
    let alert = &event.alert;
    let severity = alert.severity.name();
    format!(
        "{} {what} {severity} {}: {} ({})",
        iso_utc(event.unix_s as i64),
        alert.subject,
        alert.summary,
        alert.rule
    )
}
