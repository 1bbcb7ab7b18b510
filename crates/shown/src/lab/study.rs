//! Studies: reports in Markdown, and the line of one in progress.

use std::time::Duration;

use cenote_control::text::duration;
use cenote_study::{Part, Report};

use crate::table::{Align, Table};

/// A report in Markdown; columns of its tables line up.
pub fn text(report: &Report) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Table(table) => {
            let align = |at: usize| if at < table.words { Align::Left } else { Align::Right };
            let heads = table.heads.iter().enumerate().map(|(at, head)| (*head, align(at)));
            let mut shown = Table::new(heads);
            table.rows.iter().for_each(|row| shown.row(row.iter().map(String::as_str)));
            format!("```\n{}```\n", shown.aligned())
        }
    };
    report.0.iter().map(part).collect()
}

/// A run of a study `elapsed` after its start. `part`: the share of its work done, if known.
pub fn running(run: usize, runs: usize, load: &str, part: Option<f64>, elapsed: Duration) -> String {
    let Some(part) = part else {
        return format!("run {run} of {runs}: {load}; {} s", elapsed.as_secs());
    };
    let left = elapsed.mul_f64((1.0 - part) / part.max(1e-9));
    let left = if part > 0.01 { format!(", {} left", duration(left)) } else { String::new() };
    format!("run {run} of {runs}: {load}; {:.0} %{left}", part * 100.0)
}
