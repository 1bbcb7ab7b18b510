//! Text of `zpool import` about a pool besides its tree: whether it opens and how to repair it, its last
//! user, and the state opened or rewound to.

use cenote_control::answers::{PoolHealth, PoolState, Problem};
use cenote_control::text::{counted, ctime};
use cenote_control::zpool::whole::import::Rewound;
use cenote_control::zpool::whole::import::found::{Found, Opened};

use crate::paragraph::paragraph;

/// Whether the pool can be opened, and how to repair it.
pub fn action(health: &PoolHealth, opens: bool, reason: Option<&str>) -> String {
    let open = match (opens, health.is_importable()) {
        (true, true) => "The pool can be opened using its name or numeric identifier.",
        // Metadata has several copies; intact ones may be on the devices present.
        (true, false) => "The pool can be read in part: only data that does not need the missing devices.",
        (false, _) => "The pool cannot be opened as it is.",
    };
    match reason {
        Some(reason) => format!("{open} {reason}"),
        None => open.into(),
    }
}

/// The pool's last user, if it was not exported.
pub fn last_user(found: &Found) -> Option<String> {
    if found.state != PoolState::Active {
        return None;
    }
    let host = found.hostname.as_deref().unwrap_or("an unknown machine");
    let hostid = found.hostid.map_or_else(String::new, |id| format!(" (hostid={id:x})"));
    let when = found
        .newest
        .map_or_else(String::new, |at| format!(", written {}", ctime(at.unix_seconds.cast_signed())));
    Some(format!("in use by {host}{hostid}{when}, not exported"))
}

/// The opened state, and its difference from the newest.
pub fn opened(state: &Opened) -> String {
    let Opened { at, is_checkpoint, newest_txg, oldest_txg, states } = state;
    let time = ctime(at.unix_seconds.cast_signed());
    let which = match newest_txg.0.saturating_sub(at.txg.0) {
        0 => "the newest state".to_owned(),
        _ if *is_checkpoint => format!("the checkpoint; the newest state is txg {newest_txg}"),
        behind => format!("{} before the newest state, txg {newest_txg}", counted(behind, "txg")),
    };
    let kept = format!("{states} states since txg {oldest_txg} can be opened with --txg");
    paragraph("opened", &format!("read-only, as of txg {}, {time}: {which}. {kept}.", at.txg))
}

/// The effect of a rewind; `letters` are the options of the command that does it.
pub fn would_go_back(Rewound { pool: name, way }: &Rewound, letters: &str) -> String {
    let time = way.time();
    if way.is_newest() {
        return format!(
            "pool '{name}' is intact in its newest state, of {time}: {letters} changes nothing\n"
        );
    }
    format!(
        "pool '{name}' can be rewound from txg {} to txg {}, of {time}: `zpool import {letters} {name}` does \
         so; the changes of the {} after it will be lost\n",
        way.newest, way.txg, way.lost
    )
}

/// The effect of a completed rewind.
pub fn went_back(Rewound { pool: name, way }: &Rewound) -> String {
    let time = way.time();
    if way.is_newest() {
        return format!("pool '{name}' is intact in its newest state, of {time}: nothing is lost\n");
    }
    format!(
        "pool '{name}' was rewound from txg {} to txg {}, of {time}: the changes of the {} after it are \
         lost\n",
        way.newest, way.txg, way.lost
    )
}

/// A list of problems under a heading; empty if none.
pub fn problems(label: &str, problems: &[Problem]) -> String {
    if problems.is_empty() {
        return String::new();
    }
    let lines: String = problems.iter().map(|p| format!("\t{}: {}\n", p.path, p.why)).collect();
    format!("\n{label}:\n\n{lines}")
}
