//! `zpool import --json`: all pools on the disks, keyed by guid because names may repeat.

use cenote_control::zpool::shown::status::circumstances::Circumstances;
use cenote_control::zpool::shown::status::reason::judge;
use cenote_control::zpool::shown::status::unopened::Unopened;
use cenote_dataset::Mos;
use cenote_pool::{Discovery, FoundPool, PoolState, Problem};
use serde_json::{Map, Value, json};

use super::tree::Style;
use super::vdevs_json::Report;
use crate::command::json::document;
use crate::outcome::CliError;
use crate::session::WayBack;

/// A pool and the result of opening it, with the diagnosis if it failed.
pub type Tried<'a> = (&'a FoundPool, Result<Mos, (CliError, Unopened)>);

/// The whole document: the pools found and the problems of the search.
pub async fn whole(discovery: &Discovery, tried: Vec<Tried<'_>>) -> Result<Value, CliError> {
    let mut pools = Map::new();
    for (found, opened) in tried {
        pools.insert(found.guid().to_string(), pool(found, opened).await?);
    }
    let mut whole = document("zpool import", "pools", pools);
    whole["problems"] = problems(&discovery.problems);
    Ok(whole)
}

async fn pool(found: &FoundPool, opened: Result<Mos, (CliError, Unopened)>) -> Result<Value, CliError> {
    let (health, circumstances) = match &opened {
        Ok(mos) => (mos.pool().status(), Circumstances::of_pool(mos).await?),
        Err((_, unopened)) => (unopened.health.clone(), unopened.circumstances),
    };
    let newest = found.uberblocks.first();
    let mut entry = json!({
        "name": found.name(),
        "pool_guid": found.guid().0,
        "state": health.state().to_string(),
        "opens": opened.is_ok(),
        "exported": found.state() == PoolState::Exported,
        "destroyed": found.state() == PoolState::Destroyed,
        "hostname": found.config.hostname,
        "hostid": found.config.hostid,
        "comment": found.config.comment,
        "txg": newest.map(|uberblock| uberblock.txg.0),
        "timestamp": newest.map(|uberblock| uberblock.timestamp_s),
        "notes": problems(&found.notes),
    });
    if let Err((error, _)) = &opened {
        entry["error"] = json!(error.to_string());
    }
    if let Some(way) = circumstances.corrupted.and_then(|corrupted| corrupted.way_back) {
        entry["way_back"] = rewound(&way);
    }
    if let Some(reason) = judge(&health, circumstances) {
        entry["status"] = json!(reason.status);
        entry["action"] = json!(reason.action);
        entry["msgid"] = json!(reason.id);
    }
    let style = Style { exact: true, ..Style::default() };
    let report = Report { usage: &[], style, numbers: true };
    for (heading, vdevs) in report.sections(&health) {
        entry[heading] = vdevs;
    }
    Ok(entry)
}

fn problems(problems: &[Problem]) -> Value {
    problems.iter().map(|problem| json!({"path": problem.path, "why": problem.why})).collect()
}

/// A rewind target and what is lost with it.
pub fn rewound(way: &WayBack) -> Value {
    json!({
        "from_txg": way.newest.0,
        "txg": way.txg.0,
        "timestamp": way.timestamp_s,
        "lost_seconds": way.lost.seconds,
    })
}
