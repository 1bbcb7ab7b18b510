//! All acknowledged changes survive a replay, whatever flags, projects, ACLs, quotas and properties were set
//! and removed since the last txg.
//!
//! ```text
//!   record   random operations on one file system, one after the other, with commits of single files and of
//!            all in between; after each a shot of the file system as it appears
//!   cut      at many moments of the journal
//!   replay   no record is set aside, and
//!            - all names are those of a shot that is not older than the last acknowledged commit,
//!            - a file that has not changed since the last commit that covers it equals its shot in
//!              everything but times
//! ```
//!
//! The live file system is the oracle: other tests compare it with a model.

mod history;
mod shot;

use cenote_fs::Filesystem;
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::Disk;
use cenote_runtime::Rng;

use crate::cuts::{moments, simulate};
use crate::journal::Moment;
use crate::pools::{Disks, Layout, POOL};
use crate::power_cut::Cutter;
use crate::run::recover_damaged;
use history::{Covers, History};
use shot::Shot;

/// Cuts; `CENOTE_REPLAY_CUTS` sets another number, rounded up to whole histories. The full number, which
/// `proof/README.md` asks for when replay or the log changes, is 100,000.
const CUTS: usize = 120;
const CUTS_PER_HISTORY: usize = 24;
const STEPS: usize = 90;

fn layout() -> Layout {
    Layout { vdevs: vec![(Disk, 0, 1, Normal)], sector_bytes: 512, spares: 0 }
}

/// Checks the content after a cut at `moment`.
fn check(history: &History, shown: &Shot, moment: Moment) -> Result<(), String> {
    let known = history.acks.iter().filter(|ack| ack.done <= moment);
    let oldest = known.clone().map(|ack| ack.shot).max().unwrap_or(0);
    let newest = history.begun.iter().take_while(|begun| **begun <= moment).count();
    let possible = &history.shots[oldest..=newest];
    if let Some(why) = possible.iter().try_fold(String::new(), |_, shot| shown.names_differ(shot)) {
        return Err(format!("names are of none of the states {oldest} to {newest}: {why}"));
    }
    for (id, seen) in &shown.files {
        let covers = known.clone().filter(|ack| ack.covers == Covers::All || ack.covers == Covers::File(*id));
        let Some(acked) = covers.map(|ack| ack.shot).max() else { continue };
        let Some(expected) = history.shots[acked].files.get(id) else { continue };
        let has_changed = |shot: &Shot| shot.files.get(id).is_none_or(|now| now.state != expected.state);
        if !history.shots[acked..=newest].iter().any(has_changed) && seen.state != expected.state {
            let (state, expected) = (&seen.state, &expected.state);
            return Err(format!("object {id}, acknowledged in state {acked}: {state:?}, not {expected:?}"));
        }
    }
    Ok(())
}

/// Cuts one history; returns how many cuts left a log to replay.
fn cut_history(seed: u64) -> Result<usize, String> {
    let (layout, mut rng) = (layout(), Rng::stream(seed, 1));
    let history = simulate(seed, async |rt| History::record(&rt, &layout, STEPS).await);
    let mut cutter = Cutter::new(&history.journal, history.before.clone());
    let mut replayed = 0;
    for moment in moments(&history.journal, CUTS_PER_HISTORY, &mut rng) {
        let images = cutter.cut(moment, layout.sector_bytes, &mut rng);
        let checked: Result<bool, String> = simulate(rng.next_u64(), async |rt| {
            let pool = recover_damaged(&rt, Disks::new(&rt, layout.shape(), images).devices()).await?;
            let view = pool.engine.dataset(POOL).await.map_err(|error| error.to_string())?.view();
            let fs = Filesystem::open(view).await.map_err(|error| error.to_string())?;
            let shown = Shot::of(&fs, None).await.map_err(|error| error.to_string())?;
            check(&history, &shown, moment)?;
            Ok(!pool.replayed.is_empty())
        });
        let at = |why| format!("seed {seed}, cut at {moment} of {}: {why}", history.journal.now);
        replayed += usize::from(checked.map_err(at)?);
    }
    Ok(replayed)
}

#[test]
fn what_was_acknowledged_is_there_after_a_replay() {
    let given = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let cuts = given("CENOTE_REPLAY_CUTS").unwrap_or(CUTS as u64);
    let first = given("CENOTE_SEED").unwrap_or(1);
    let (mut done, mut replayed) = (0, 0);
    for seed in (first..).take((cuts as usize).div_ceil(CUTS_PER_HISTORY)) {
        replayed += cut_history(seed).unwrap_or_else(|why| panic!("after {done} cuts: {why}"));
        done += CUTS_PER_HISTORY;
    }
    println!("{done} cuts, {replayed} of them with a log");
    assert!(replayed * 3 > done, "most cuts must leave a log: {replayed} of {done}");
}
