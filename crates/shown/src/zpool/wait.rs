//! `zpool wait` with an interval: the work left, by activity.

use cenote_control::zpool::activity::wait::{Activity, Left};

use crate::numbers::Numbers;

/// The names of the activities.
pub fn header(left: &[Left]) -> String {
    left.iter().map(|left| name(left.activity)).collect::<Vec<_>>().join("  ") + "\n"
}

/// The bytes left of each; for scripts, without padding.
pub fn row(left: &[Left], numbers: Numbers, script: bool) -> String {
    let cell = |&Left { activity, bytes }: &Left| {
        let left = bytes.map_or_else(|| "-".into(), |bytes| numbers.bytes(bytes));
        if script { left } else { format!("{left:>width$}", width = name(activity).len()) }
    };
    let cells: Vec<String> = left.iter().map(cell).collect();
    cells.join(if script { "\t" } else { "  " }) + "\n"
}

fn name(activity: Activity) -> &'static str {
    let found = Activity::ALL.into_iter().find(|(_, known, _)| *known == activity);
    found.map_or("", |(name, ..)| name)
}
