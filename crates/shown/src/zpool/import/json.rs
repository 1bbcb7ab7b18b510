//! `zpool import --json`: all pools on the disks, keyed by guid because names may repeat.

use cenote_control::answers::{PoolState, Problem};
use cenote_control::session::WayBack;
use cenote_control::zpool::whole::import::found::Found;
use cenote_control::zpool::whole::import::{Imported, Rewound};
use serde_json::{Map, Value, json};

use crate::json::document;
use crate::numbers::Numbers;
use crate::zpool::tree::Style;
use crate::zpool::vdevs::Report;

/// The whole document: the pools found and the problems of the search.
pub fn whole(done: &Imported) -> Value {
    let pools = done.pools.iter().map(|found| (found.guid.to_string(), pool(found))).collect();
    let mut whole = document("zpool import", "pools", pools);
    whole["problems"] = problems(&done.problems);
    whole
}

/// A rewound pool, in its own document.
pub fn way(back: &Rewound, key: &str) -> Value {
    document("zpool import", key, Map::from_iter([(back.pool.clone(), rewound(&back.way))]))
}

fn pool(found: &Found) -> Value {
    let mut entry = json!({
        "name": found.name,
        "pool_guid": found.guid.0,
        "state": found.health.state().to_string(),
        "opens": found.opened.is_ok(),
        "exported": found.state == PoolState::Exported,
        "destroyed": found.state == PoolState::Destroyed,
        "hostname": found.hostname,
        "hostid": found.hostid,
        "comment": found.comment,
        "txg": found.newest.map(|newest| newest.txg.0),
        "timestamp": found.newest.map(|newest| newest.unix_seconds),
        "notes": problems(&found.notes),
    });
    if let Err(error) = &found.opened {
        entry["error"] = json!(error.why);
    }
    if let Some(way) = &found.way_back {
        entry["way_back"] = rewound(way);
    }
    if let Some(reason) = &found.reason {
        entry["status"] = json!(reason.status);
        entry["action"] = json!(reason.action);
        entry["msgid"] = json!(reason.id);
    }
    let numbers = Numbers { exact: true, as_numbers: true };
    let style = Style { numbers, ..Style::default() };
    let report = Report { usage: &[], style, flat: false, scripts: None };
    for (heading, vdevs) in report.sections(&found.health) {
        entry[heading] = vdevs;
    }
    entry
}

fn problems(problems: &[Problem]) -> Value {
    problems.iter().map(|problem| json!({"path": problem.path, "why": problem.why})).collect()
}

/// A rewind target and the loss it implies.
fn rewound(way: &WayBack) -> Value {
    json!({
        "from_txg": way.newest.0,
        "txg": way.txg.0,
        "timestamp": way.timestamp_s,
        "lost_seconds": way.lost.seconds,
    })
}
