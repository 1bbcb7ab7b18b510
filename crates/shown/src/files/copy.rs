//! Counts and losses of a copy, as JSON.

use std::collections::BTreeMap;

use cenote_control::files::copy::losses::{Lost, Summary};
use cenote_control::text::json_name;
use serde::Serialize;

#[derive(Serialize)]
struct SummaryJson<'a> {
    files: u64,
    folders: u64,
    hard_links: u64,
    others: u64,
    bytes: u64,
    lost: &'a BTreeMap<String, u64>,
    losses: Vec<LossJson<'a>>,
}

#[derive(Serialize)]
struct LossJson<'a> {
    path: String,
    lost: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    ranges: &'a [(u64, u64)],
    reason: &'a str,
}

/// The summary as JSON.
pub fn json(summary: &Summary) -> impl Serialize {
    fn loss(loss: &Lost) -> LossJson<'_> {
        LossJson { path: json_name(&loss.path), lost: &loss.lost, ranges: &loss.ranges, reason: &loss.reason }
    }
    SummaryJson {
        files: summary.files,
        folders: summary.folders,
        hard_links: summary.hard_links,
        others: summary.others,
        bytes: summary.bytes,
        lost: &summary.lost,
        losses: summary.losses.iter().map(loss).collect(),
    }
}
