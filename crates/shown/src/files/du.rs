//! `du`: the space that folders use.

use cenote_control::files::du::Total;
use cenote_control::text::{json_name, quoted};
use serde::Serialize;

use crate::numbers::Numbers;

#[derive(Serialize)]
struct TotalJson {
    path: String,
    bytes: u64,
}

/// As text.
pub fn text(totals: &[Total], numbers: Numbers) -> String {
    let line = |total: &Total| format!("{}\t{}\n", numbers.bytes(total.bytes), quoted(&total.path));
    totals.iter().map(line).collect()
}

/// As JSON.
pub fn json(totals: &[Total]) -> impl Serialize {
    let json = |total: &Total| TotalJson { path: json_name(&total.path), bytes: total.bytes };
    totals.iter().map(json).collect::<Vec<_>>()
}
