//! `zpool import --json`: every pool among the disks by its guid, since two may have one name.

use cenote_dataset::Mos;
use cenote_pool::{Discovery, FoundPool, PoolState, Problem};
use serde_json::{Map, Value, json};

use super::reason::{Circumstances, judge};
use super::vdevs_json::Report;
use crate::command::json::document;
use crate::outcome::CliError;

/// A pool with what came of opening it.
pub type Tried<'a> = (&'a FoundPool, Result<Mos, CliError>);

/// The whole document: what was found, and what the search stumbled over.
pub async fn whole(discovery: &Discovery, tried: Vec<Tried<'_>>) -> Result<Value, CliError> {
    let mut pools = Map::new();
    for (found, opened) in tried {
        pools.insert(found.guid().to_string(), pool(found, opened).await?);
    }
    let mut whole = document("zpool import", "pools", pools);
    whole["problems"] = problems(&discovery.problems);
    Ok(whole)
}

async fn pool(found: &FoundPool, opened: Result<Mos, CliError>) -> Result<Value, CliError> {
    let (health, circumstances) = match &opened {
        Ok(mos) => (mos.pool().status(), Circumstances::of_pool(mos).await?),
        Err(_) => (found.status(), Circumstances::of_found(found)),
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
    if let Err(error) = &opened {
        entry["error"] = json!(error.to_string());
    }
    if let Some(reason) = judge(&health, circumstances) {
        entry["status"] = json!(reason.status);
        entry["action"] = json!(reason.action);
        entry["msgid"] = json!(reason.id);
    }
    let report = Report { usage: &[], mos: opened.as_ref().ok(), exact: true, numbers: true };
    for (heading, vdevs) in report.sections(&health) {
        entry[heading] = vdevs;
    }
    Ok(entry)
}

fn problems(problems: &[Problem]) -> Value {
    problems.iter().map(|problem| json!({"path": problem.path, "why": problem.why})).collect()
}
