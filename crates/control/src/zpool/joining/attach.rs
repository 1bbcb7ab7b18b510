//! `zpool attach`: adds a device to a mirror or makes one, or adds a device to a RAID-Z, which expands.

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::units::VdevId;
use cenote_pool::{VdevConfig, VdevKind, VdevStatus};
use cenote_tasks::{Expanded, ExpansionProgress, attach_to_raidz, expansion, run_expansion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{joining, resilver};
use crate::caller::Progress;
use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zpool::activity::LOOK_INTERVAL;
use crate::zpool::activity::scans::scan;
use crate::zpool::leaves::meant::leaf;

/// Attach a device to a disk or mirror, or expand a RAID-Z by one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attach {
    /// Pool.
    pub pool: String,
    /// A device: path, last path component, or guid; or a RAID-Z.
    pub device: String,
    /// New device.
    pub new_device: String,
    /// Accept a device with contents.
    #[serde(default)]
    pub force: bool,
    /// Rebuild sequentially, then verify by a scrub.
    #[serde(default)]
    pub sequential: bool,
    /// Wait for the resilver, as without a daemon.
    #[serde(default)]
    pub wait: bool,
}

impl Verb for Attach {
    const NAME: &'static str = "zpool attach";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No such device, or it accepts none; the new device is unusable or has contents.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let what = format!("attach {} to {}", self.new_device, self.device);
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            if let Some(raidz) = raidz(&mos, &self.device) {
                return self.expand(session, engine, &raidz, &what).await;
            }
            let leaf = leaf(session.caller(), mos.pool(), &self.device)?.ok_or_else(|| {
                ControlError::Refused(format!("cannot {what}: {}", why_not_to(&mos, &self.device)))
            })?;
            let new = joining(session, &mos, &self.new_device, self.force).await?;
            let resilver = resilver(self.sequential);
            cenote_tasks::attach(engine, leaf, new, resilver).await.map_err(cannot(&what))?;
            scan(session, engine, self.wait).await
        };
        Ok(session.change_pool(&self.pool, work).await?.into())
    }
}

impl Attach {
    /// Adds the device to a RAID-Z.
    async fn expand(
        &self,
        session: &Session,
        engine: &Engine,
        raidz: &VdevConfig,
        what: &str,
    ) -> Result<Outcome, ControlError> {
        if self.sequential {
            let why = "only mirror and dRAID vdevs support sequential reconstruction";
            return Err(ControlError::Refused(format!("cannot {what}: {why}")));
        }
        let (mos, alone) = (engine.mos().await?, session.pools().is_none());
        let last = raidz.children.last().map(|child| child.guid);
        // Without a daemon only this command continues an expansion.
        let newcomer = leaf(session.caller(), mos.pool(), &self.new_device)?;
        let is_ours = alone && raidz.raidz_expanding && last == newcomer;
        if !is_ours {
            let new = joining(session, &mos, &self.new_device, self.force).await?;
            attach_to_raidz(engine, VdevId(raidz.id), new).await.map_err(cannot(what))?;
        }
        if alone {
            return expand_to_end(session, engine).await;
        }
        while self.wait && expansion(engine, &engine.mos().await?).await?.is_some() {
            session.runtime().sleep(LOOK_INTERVAL).await;
        }
        Ok(Outcome::Done)
    }
}

/// Continues the expansion with progress, then scrubs.
async fn expand_to_end(session: &Session, engine: &Engine) -> Result<Outcome, ControlError> {
    let console = &session.caller().console;
    let shown = |now: ExpansionProgress| {
        let (done_bytes, total_bytes) = (now.done_bytes, now.total_bytes);
        console.progress(Some(Progress { what: "", done_bytes, total_bytes }));
    };
    let done = run_expansion(engine, &shown).await;
    console.progress(None);
    match done? {
        Expanded::Done => scan(session, engine, false).await,
        Expanded::Suspended => {
            Err(ControlError::Stopped("it is suspended: raidz_expand_max_reflow_bytes".into()))
        }
        Expanded::Waits { why } => Err(ControlError::Stopped(format!("the expansion waits: {why}"))),
    }
}

/// Why a device can't be attached to a non-leaf.
fn why_not_to(mos: &Mos, typed: &str) -> &'static str {
    let health = mos.pool().status();
    match health.root.children.iter().find(|top| top.name == typed).map(|top| &top.kind) {
        None => "no such device in pool",
        Some(VdevKind::Mirror) => "name one of its devices",
        Some(_) => "can only attach to mirrors and top-level disks",
    }
}

/// A RAID-Z by its name or guid.
fn raidz(mos: &Mos, typed: &str) -> Option<VdevConfig> {
    let health = mos.pool().status();
    let is_it = |top: &&VdevStatus| top.name == typed || top.guid.to_string() == typed;
    let guid = health.root.children.iter().find(is_it)?.guid;
    let vdevs = mos.pool().tree().vdevs();
    vdevs.tops().find(|top| top.guid == guid && top.kind == VdevKind::Raidz).cloned()
}
