//! `zpool replace`: replaces a device by another, for good or as a hot spare.

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::create::NewDevice;
use cenote_pool::{FoundDevice, VdevKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{joining, resilver, why_not};
use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zpool::activity::scans::scan;
use crate::zpool::leaves::meant::{leaf, meant};

/// Replace a device by another one or by a hot spare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replace {
    /// Pool.
    pub pool: String,
    /// A device: path, last path component, or guid.
    pub device: String,
    /// The new device; none: another one at the same path.
    #[serde(default)]
    pub new_device: Option<String>,
    /// Accept a device with contents.
    #[serde(default)]
    pub force: bool,
    /// Rebuild sequentially, then verify by a scrub.
    #[serde(default)]
    pub sequential: bool,
    /// Wait for the resilver, as without a daemon.
    #[serde(default)]
    pub wait: bool,
    /// log2 of the new device's smallest block; accepted if the vdev's is no smaller.
    #[serde(default)]
    pub ashift: Option<u32>,
}

enum New {
    Device(NewDevice),
    Spare(Guid, Option<FoundDevice>),
}

impl Verb for Replace {
    const NAME: &'static str = "zpool replace";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No such device; the new one is unusable or has contents.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let typed = self.new_device.as_ref().unwrap_or(&self.device);
        let what = format!("replace {} with {typed}", self.device);
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            let refused = |why: &str| ControlError::Refused(format!("cannot {what}: {why}"));
            let old = leaf(session.caller(), mos.pool(), &self.device)?
                .ok_or_else(|| refused(why_not(session, &mos, &self.device)))?;
            if self.ashift.is_some_and(|ashift| ashift > ashift_of(&mos, old)) {
                return Err(refused(
                    "new device has a different optimal sector size; use the option '-o ashift=N'",
                ));
            }
            let resilver = resilver(self.sequential);
            match self.newcomer(session, &mos, typed).await? {
                New::Device(device) => cenote_tasks::replace(engine, old, device, resilver).await,
                New::Spare(spare, device) => {
                    cenote_tasks::spare_in(engine, old, spare, device, resilver).await
                }
            }
            .map_err(cannot(&what))?;
            scan(session, engine, self.wait).await
        };
        Ok(session.change_pool(&self.pool, work).await?.into())
    }
}

impl Replace {
    async fn newcomer(&self, session: &Session, mos: &Mos, typed: &str) -> Result<New, ControlError> {
        let (config, found) = (mos.pool().tree().config(), mos.pool().tree().found());
        let spare = meant(session.caller(), &found, config.spares.iter(), typed)?;
        if let Some(spare) = config.spares.iter().find(|one| Some(one.guid) == spare) {
            let device = found.device(spare.guid);
            let device = match spare.kind {
                VdevKind::DistributedSpare => None,
                _ => Some(device.ok_or_else(|| {
                    ControlError::Refused(format!("cannot open '{typed}': the spare is not there"))
                })?),
            };
            let opened = match device {
                Some(device) => Some(FoundDevice::new(device.open_for_writing(session.runtime()).await?)),
                None => None,
            };
            return Ok(New::Spare(spare.guid, opened));
        }
        joining(session, mos, typed, self.force).await.map(New::Device)
    }
}

fn ashift_of(mos: &Mos, leaf: Guid) -> u32 {
    let vdevs = mos.pool().tree().vdevs();
    let top = vdevs.tops().find(|top| top.leaves().any(|one| one.guid == leaf));
    top.map_or(0, |top| top.ashift)
}
