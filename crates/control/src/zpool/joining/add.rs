//! `zpool add`: adds vdevs, hot spares and cache devices to a pool.

use cenote_dataset::{Mos, Value};
use cenote_engine::Engine;
use cenote_pool::create::NewVdev;
use cenote_pool::{PoolHealth, VdevConfig, VdevKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{refuse_own, unless_any};
use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zpool::layout::devices::{self, Laid, Opened};
use crate::zpool::layout::{Group, Layout, replication};
use crate::zpool::properties::options::check_ashift;
use crate::zpool::shown::properties::Properties;

/// Add vdevs to a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Add {
    /// Pool.
    pub pool: String,
    /// Its new vdevs and devices.
    pub layout: Layout,
    /// log2 of the new vdevs' smallest block; none: the pool's, if set, or one that suits the devices.
    #[serde(default)]
    pub ashift: Option<u32>,
    /// Checks to override.
    #[serde(default)]
    pub accept: Accept,
    /// Report only; change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Overridden checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Accept {
    /// Devices with contents: another pool, a file system.
    pub in_use: bool,
    /// Vdevs with different redundancy.
    pub replication_mismatch: bool,
    /// Vdevs with a different sector size.
    pub ashift_mismatch: bool,
}

/// The result of an addition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Added {
    /// The pool before the addition.
    pub before: PoolHealth,
    /// Added vdevs and devices, or those that would be.
    pub laid: Laid,
}

impl Verb for Add {
    const NAME: &'static str = "zpool add";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = Added;

    /// # Errors
    /// Invalid vdevs, or a mismatch with the pool; an unusable device.
    async fn carry_out(self, session: &Session) -> Result<Answered<Added>, ControlError> {
        self.layout.check().map_err(ControlError::Usage)?;
        if self.dry_run {
            let mos = session.open_pool_without_asking(&self.pool).await?;
            let (new, _) = self.opened(session, &mos).await?;
            let answer = Added { before: mos.pool().status(), laid: new.laid(&self.layout) };
            return Ok(answer.into());
        }
        let mut added = None;
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            let before = mos.pool().status();
            let (new, ashift) = self.opened(session, &mos).await?;
            added = Some(Added { before, laid: new.laid(&self.layout) });
            let what = format!("add to '{}'", self.pool);
            if !new.vdevs.is_empty() {
                cenote_tasks::add_vdevs(engine, new.vdevs, ashift).await.map_err(cannot(&what))?;
            }
            if !new.spares.is_empty() {
                cenote_tasks::add_spares(engine, new.spares).await.map_err(cannot(&what))?;
            }
            if !new.cache.is_empty() {
                cenote_tasks::add_cache(engine, new.cache).await.map_err(cannot(&what))?;
                session.use_cache_devices(engine).await?;
            }
            Ok(Outcome::Done)
        };
        let outcome = session.change_pool(&self.pool, work).await?;
        let nothing = || ControlError::Refused(format!("cannot add to '{}': nothing was done", self.pool));
        Ok(Answered { answer: added.ok_or_else(nothing)?, outcome })
    }
}

impl Add {
    /// Opens the devices and refuses vdevs that do not fit the pool. Returns the ashift, if known.
    async fn opened(&self, session: &Session, mos: &Mos) -> Result<(Opened, Option<u32>), ControlError> {
        refuse_own(session, mos, &self.layout.devices())?;
        let new = Opened::of(session, &self.layout).await?;
        let refused = |why: String| ControlError::Refused(format!("cannot add to '{}': {why}", self.pool));
        let properties = Properties::gather(mos, None).await?;
        let of_pool = match properties.get("ashift").map(|property| &property.value) {
            Some(Value::Number(ashift @ 1..)) => Some(*ashift as u32),
            _ => None,
        };
        let ashift = check_ashift(self.ashift).map_err(refused)?.or(of_pool);
        let enabled = mos.enabled_features().await?;
        self.layout.check_features(|name: &str| enabled.contains(name)).map_err(|why| refused(why.into()))?;
        let mut problems = Vec::new();
        if !self.accept.in_use {
            problems.extend(devices::contents(session.runtime(), &new.all()).await);
        }
        if !self.accept.replication_mismatch {
            let sizes = devices::sizes(&new.vdevs);
            problems.extend(replication::mismatch(&existing(mos), &self.layout.groups, &sizes));
        }
        if let Some(sector) = other_sector(mos, &new.vdevs, ashift).filter(|_| !self.accept.ashift_mismatch) {
            let why = "adding devices with different physical sector sizes is not allowed";
            problems.push(format!("{why} ({sector} bytes)"));
        }
        unless_any(&problems).map(|()| (new, ashift))
    }
}

/// The pool's vdevs as requested ones.
fn existing(mos: &Mos) -> Vec<Group> {
    let vdevs = mos.pool().tree().vdevs();
    let tops = vdevs.tops().filter(|top| top.kind.holds_data());
    let group = |top: &VdevConfig| {
        let kind = match top.kind {
            VdevKind::Mirror | VdevKind::Raidz | VdevKind::Draid => top.kind.clone(),
            _ => VdevKind::Disk,
        };
        let devices = vec![String::new(); top.children.len().max(1)];
        Group { kind, parity: top.parity, draid: None, class: top.class, devices }
    };
    tops.map(group).collect()
}

/// The new devices' sector size, if it differs from the pool's single sector size.
fn other_sector(mos: &Mos, vdevs: &[NewVdev], ashift: Option<u32>) -> Option<u64> {
    let existing = mos.pool().tree().vdevs();
    let mut shifts = existing.tops().filter(|top| top.kind.holds_data()).map(|top| top.ashift);
    let first = shifts.next()?;
    if !shifts.all(|shift| shift == first) {
        return None;
    }
    let sector = |vdev: &NewVdev| {
        let sectors = vdev.devices.iter().map(|new| new.device.info().sector_bytes.max(512));
        ashift.map_or_else(|| u64::from(sectors.max().unwrap_or(512)), |shift| 1u64 << shift)
    };
    vdevs.iter().map(sector).find(|bytes| *bytes != 1u64 << first)
}
