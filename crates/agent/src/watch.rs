//! The main loop of the agent.
//!
//! Locking: none; one task runs all steps in turn. Programs (mail, `smartctl`) run on threads for blocking
//! calls; the agent waits at most a minute for each, then goes on without it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cenote_control::zpool::activity::scrub::{self, Scrub};
use cenote_control::zpool::activity::trim::{self, Trim};
use cenote_control::zpool::shown::list::{List, Listed, Pools as ListedPools};
use cenote_control::zpool::shown::status::{Status, Statuses};
use cenote_host::pools::Pools;
use cenote_runtime::{AbortOnDrop, Runtime};
use futures::future::BoxFuture;

use crate::alerts::{Alert, Alerts, Tell, by_command};
use crate::commands::Commands;
use crate::findings::{self, Finding, Findings};
use crate::replication::{self, Program};
use crate::rules::{Replicated, Rules};
use crate::schedule::{self, Due, Trims, Work};
use crate::{record, smart};

const PATIENCE: Duration = Duration::from_secs(60);

/// Looks after pools by the rules until dropped. `tell` adds ways to send alerts; `say` prints to the
/// daemon's log; `roused` returns when an urgent problem has begun or ended since its last return.
pub async fn keep_watch(
    runtime: Runtime,
    commands: impl Commands,
    (pools, program): (Arc<Pools>, Program),
    rules: Rules,
    tell: Vec<Tell>,
    say: impl Fn(&str) + Clone + Send + Sync + 'static,
    roused: impl Fn() -> BoxFuture<'static, ()>,
) {
    let now_s = || runtime.unix_time_ns() / 1_000_000_000;
    let tell: Arc<Vec<Tell>> = Arc::new(tell.into_iter().chain(by_command(&rules.alerts.command)).collect());
    let (mut alerts, mut trims) = (Alerts::default(), Trims::new(now_s()));
    let (mut disks, mut before) = (Disks::default(), Findings::new());
    let program = Arc::new(program);
    let keep = |rule: &Replicated| {
        let (rule, program, pools, say) = (rule.clone(), program.clone(), pools.clone(), say.clone());
        let kept = replication::keep(runtime.clone(), rule, program, pools, say);
        runtime.spawn(kept).abort_on_drop()
    };
    let _copying: Vec<AbortOnDrop<()>> = rules.replicate.iter().map(keep).collect();
    loop {
        let status = Status { pools: Vec::new(), damaged: false, dedup: false };
        let status = commands.ask(status, "zpool status").await;
        let list = commands.ask(List { pools: Vec::new(), vdevs: false }, "zpool list").await;
        let used = list.answer.map(capacities).unwrap_or_default();
        let shown = status.answer.unwrap_or_default();
        for Due { work, pool } in schedule::due(&shown, &rules, &mut trims, now_s()) {
            match order(&commands, work, &pool).await {
                None => say(&format!("began as the rules say: zpool {} '{pool}'", work.verb())),
                // This includes pools with disks that can't trim: their message repeats once an interval.
                Some(why) => say(&why),
            }
        }
        disks.look(&runtime, &rules, &shown, now_s(), &say).await;
        let mut found = findings::of_pools(&shown, &used, rules.alerts.capacity);
        if let Some(why) = status.failed.or(list.failed) {
            findings::keep_unseen(&mut found, &before, &shown, &used, &why);
        }
        before = found.clone();
        found.extend(disks.findings.clone());
        found.extend(replication::findings(&pools, &rules.replicate, now_s()));
        for alert in alerts.look(found, &rules.alerts, now_s()) {
            say(&alert.subject);
            send(&runtime, &tell, alert, &say).await;
        }
        runtime.timeout(rules.look, roused()).await.ok();
    }
}

fn capacities(listed: ListedPools) -> findings::Capacities {
    let capacity = |pool: &Listed| {
        let capacity = pool.properties.iter().find(|property| property.name == "capacity")?;
        Some((pool.head.name.clone(), capacity.number()?))
    };
    listed.pools.iter().filter_map(capacity).collect()
}

/// Starts a task; returns the reason on failure.
async fn order(commands: &impl Commands, work: Work, pool: &str) -> Option<String> {
    let (pool, command) = (pool.to_owned(), format!("zpool {} {pool}", work.verb()));
    match work {
        Work::Scrub => {
            let dates = scrub::Dates::default();
            let (order, wait, thorough) = (scrub::Order::Start, false, false);
            let scrub = Scrub { pools: vec![pool], order, dates, wait, thorough };
            commands.ask(scrub, &command).await.failed
        }
        Work::Trim => {
            let order = trim::Order::Start;
            let trim = Trim { pool: Some(pool), devices: Vec::new(), order, rate_bytes: 0, wait: false };
            commands.ask(trim, &command).await.failed
        }
    }
}

async fn send(runtime: &Runtime, tell: &Arc<Vec<Tell>>, alert: Alert, say: impl Fn(&str) + Copy) {
    let tell = tell.clone();
    let told = blocking(runtime, move || {
        let failed = tell.iter().filter_map(|tell| tell(&alert).err());
        failed.collect::<Vec<String>>()
    });
    match told.await {
        Some(failed) => failed.iter().for_each(|why| say(&format!("an alert was not told: {why}"))),
        None => say("an alert takes too long to be told"),
    }
}

/// Runs a blocking call; None if it takes too long.
async fn blocking<T: Send + 'static>(
    runtime: &Runtime,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, wait) = tokio::sync::oneshot::channel();
    runtime.start_blocking(move || _ = done.send(call()));
    runtime.timeout(PATIENCE, wait).await.ok()?.ok()
}

/// Findings of the last SMART readings.
#[derive(Default)]
struct Disks {
    asked_s: Option<u64>,
    findings: Findings,
}

impl Disks {
    /// Asks the disks of all pools, if due.
    async fn look(
        &mut self,
        runtime: &Runtime,
        rules: &Rules,
        status: &Statuses,
        now_s: u64,
        say: impl Fn(&str) + Copy,
    ) {
        let Some(rule) = &rules.smart else { return };
        let devices = devices(status);
        let is_due = self.asked_s.is_none_or(|asked_s| now_s.saturating_sub(asked_s) >= rule.every.as_secs());
        if devices.is_empty() || !is_due {
            return;
        }
        self.asked_s = Some(now_s);
        let mut disks = Vec::new();
        for device in devices {
            let (smartctl, asked) = (rule.smartctl.clone(), device.clone());
            match blocking(runtime, move || smart::ask(&smartctl, &asked)).await {
                Some(disk) => disks.extend(disk),
                None => say(&format!("{device}: smartctl takes too long")),
            }
        }
        self.findings = disks.iter().flat_map(smart::Disk::findings).collect();
        if let Some(folder) = rule.record.clone() {
            let written = blocking(runtime, move || record::write(&folder, now_s, &disks)).await;
            if let Some(Err(error)) = written {
                say(&format!("the record of disks was not written: {error}"));
                let (subject, text) = ("the record of disks was not written".into(), error.to_string());
                let finding = Finding { pool: None, subject, text, is_urgent: false };
                self.findings.insert("record".into(), finding);
            }
        }
    }
}

fn devices(status: &Statuses) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for pool in &status.pools {
        // A remote disk has an address instead, and no SMART data.
        let here = |path: &String| path.starts_with('/');
        pool.health.each_leaf(&mut |leaf| paths.extend(leaf.path.clone().filter(here)));
    }
    paths
}
