//! `zpool wait`: waits for background work of the daemon's pools.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_wait`), zpool-wait(8).

use std::time::Duration;

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::Phys;
use cenote_format::dsl::names::pool as names;
use cenote_format::scan::{RebuildPhys, RemovingPhys, ScanPhys, ScanState};
use cenote_pool::{Pass, VdevKind};
use cenote_tasks::{ExpansionProgress, expansion, is_passing, rebuilding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LOOK_INTERVAL;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// A possible resilver starts within this time.
const RESILVER_IS_DUE: Duration = Duration::from_secs(2);

/// Wait for background work in the daemon's pools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wait {
    /// Pool.
    pub pool: String,
    /// Kinds of work; empty: all.
    #[serde(default)]
    pub activities: Vec<Activity>,
    /// Time limit; none: until the work ends.
    #[serde(default)]
    pub most_ms: Option<u64>,
}

/// Background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A checkpoint is being discarded.
    Discard,
    /// Destroyed data is being freed.
    Free,
    /// Devices are being initialized.
    Initialize,
    /// Devices are being replaced.
    Replace,
    /// A device is being removed.
    Remove,
    /// Resilver runs.
    Resilver,
    /// Scrub runs.
    Scrub,
    /// Devices are being trimmed.
    Trim,
    /// A RAID-Z vdev is being expanded.
    RaidzExpand,
    /// Metadata is being condensed.
    Condense,
}

impl Activity {
    /// All, with names and descriptions.
    pub const ALL: [(&str, Activity, &str); 10] = [
        ("discard", Activity::Discard, "A checkpoint is being discarded"),
        ("free", Activity::Free, "Space of destroyed datasets is being freed"),
        ("initialize", Activity::Initialize, "Devices are being initialized"),
        ("replace", Activity::Replace, "Devices are being replaced"),
        ("remove", Activity::Remove, "A device is being removed"),
        ("resilver", Activity::Resilver, "A resilver runs"),
        ("scrub", Activity::Scrub, "A scrub runs"),
        ("trim", Activity::Trim, "Devices are being trimmed"),
        ("raidz_expand", Activity::RaidzExpand, "A RAID-Z vdev is being expanded"),
        ("condense", Activity::Condense, "Metadata is being condensed"),
    ];
}

/// Remaining work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// Work.
    pub activity: Activity,
    /// Remaining bytes if known, else 0. None: not in progress.
    pub bytes: Option<u64>,
}

impl Verb for Wait {
    const NAME: &'static str = "zpool wait";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Always;
    type Answer = Vec<Left>;

    /// # Errors
    /// No such pool, or it is not open in a daemon and thus has no background work.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Left>>, ControlError> {
        let found = session.find_pool(&self.pool).await?;
        let Some(pool) = session.held(&found) else {
            let why = "no daemon has the pool open; without one, work is done when its command ends";
            return Err(ControlError::Refused(format!("cannot wait for '{}': {why}", self.pool)));
        };
        let all = Activity::ALL.map(|(_, activity, _)| activity);
        let wanted = if self.activities.is_empty() { &all[..] } else { &self.activities };
        let (most, began) = (self.most_ms.map(Duration::from_millis), session.runtime().now());
        loop {
            let left = left(&pool.engine, wanted).await?;
            let rest = most.map(|most| most.saturating_sub(session.runtime().now().since(began)));
            // A disk that has just returned lacks data: its resilver is about to start.
            let is_due = wanted.contains(&Activity::Resilver)
                && session.runtime().now().since(began) < RESILVER_IS_DUE
                && !pool.engine.pool().lacking().behind().is_empty();
            let is_done = !is_due && left.iter().all(|left| left.bytes.is_none());
            if rest.is_some_and(|rest| rest.is_zero()) || is_done {
                return Ok(left.into());
            }
            session.runtime().sleep(rest.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL)).await;
        }
    }
}

/// Remaining bytes, as far as known; `None`: nothing is in progress.
async fn left(engine: &Engine, wanted: &[Activity]) -> Result<Vec<Left>, ControlError> {
    let (mos, mut all) = (&engine.mos().await?, Vec::new());
    for &activity in wanted {
        let bytes = match activity {
            Activity::Free => {
                let freeing = mos.freeing_bytes().await?;
                let destroys = !mos.pending_destroys().await?.is_empty();
                (freeing > 0 || destroys).then_some(freeing)
            }
            Activity::Scrub => {
                let errors = mos.error_scrub_status().await?;
                let errors = errors.filter(|scrub| scrub.is_running() && !scrub.is_paused());
                // The number of bytes is unknown.
                scan(mos, ScanPhys::is_scrub).await?.or(errors.map(|_| 0))
            }
            Activity::Resilver => resilver(mos).await?,
            Activity::Replace => has_kind(mos, VdevKind::Replacing).then_some(0),
            Activity::Remove => removing(mos).await?,
            // The remaining amount is unknown.
            Activity::Initialize => is_passing(engine, Pass::Initialize).await?.then_some(0),
            Activity::Trim => is_passing(engine, Pass::Trim).await?.then_some(0),
            Activity::RaidzExpand => {
                let left = |it: ExpansionProgress| it.total_bytes.saturating_sub(it.done_bytes);
                expansion(engine, mos).await?.map(left)
            }
            // The engine does not do that in the background.
            Activity::Discard | Activity::Condense => None,
        };
        all.push(Left { activity, bytes });
    }
    Ok(all)
}

async fn scan(mos: &Mos, is_it: impl Fn(&ScanPhys) -> bool) -> Result<Option<u64>, ControlError> {
    let scan = mos.scan_status().await?;
    let scan = scan.filter(|scan| is_it(scan) && scan.is_running() && !scan.is_paused());
    Ok(scan.map(|scan| scan.to_examine_bytes.saturating_sub(scan.examined_bytes)))
}

async fn resilver(mos: &Mos) -> Result<Option<u64>, ControlError> {
    let left = |(_, state): &(_, RebuildPhys)| state.estimated_bytes.saturating_sub(state.scanned_bytes);
    match &rebuilding(mos).await?[..] {
        [] => scan(mos, ScanPhys::is_resilver).await,
        rebuilds => Ok(Some(rebuilds.iter().map(left).sum())),
    }
}

fn has_kind(mos: &Mos, kind: VdevKind) -> bool {
    let (health, mut found) = (mos.pool().status(), false);
    health.root.walk(&mut |vdev| found |= vdev.kind == kind);
    found
}

async fn removing(mos: &Mos) -> Result<Option<u64>, ControlError> {
    let Some(words) = mos.directory()?.lookup(names::REMOVING.as_bytes()).await? else { return Ok(None) };
    let removing = RemovingPhys::from_words(&words.words().collect::<Vec<_>>());
    let removing = removing.ok().filter(|it| ScanState::from(it.state) == ScanState::Scanning);
    Ok(removing.map(|it| it.to_copy_bytes.saturating_sub(it.copied_bytes)))
}
