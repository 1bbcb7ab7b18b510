//! `zpool split`: turns one device of each mirror into a new pool.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_split`), `libzfs_pool.c` (`zpool_vdev_split`), including the
//! wording.

use std::path::PathBuf;

use cenote_dataset::Mos;
use cenote_device::Place;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{FoundDevice, VdevClass, VdevKind, VdevStatus};
use cenote_tasks::{PoolSetting, SplitOff};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check_name;
use crate::error::{ControlError, Outcome};
use crate::refusal::why_not;
use crate::session::{Session, this_host};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::properties::settings::Setting;
use crate::zpool::leaves::meant::leaf;
use crate::zpool::properties::set::setting;

/// Split one device off each mirror to form a new pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Split {
    /// Pool.
    pub pool: String,
    /// Name of the new pool.
    pub new_pool: String,
    /// Devices of the new pool, at most one per mirror: path, last path component, or guid. Mirrors without
    /// one here give their last device.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Properties of the new pool.
    #[serde(default)]
    pub properties: Vec<Setting>,
    /// Import the new pool into the daemon, with mount points below this folder.
    #[serde(default)]
    pub altroot: Option<PathBuf>,
    /// Then load its keys.
    #[serde(default)]
    pub load_keys: bool,
    /// Only name the devices; change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

impl Verb for Split {
    const NAME: &'static str = "zpool split";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    /// The new pool's devices, as in the old pool.
    type Answer = Vec<VdevStatus>;

    /// # Errors
    /// A vdev is no mirror; the name is taken; a device lacks data.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<VdevStatus>>, ControlError> {
        check_name(&self.new_pool).map_err(|why| self.refused(why))?;
        let is_taken = session.held_by_name(&self.new_pool).is_some();
        if is_taken || self.new_pool == self.pool {
            return Err(self.refused("pool already exists"));
        }
        if self.dry_run {
            let mos = session.open_pool_without_asking(&self.pool).await?;
            let leaves = self.leaves(session, &mos)?;
            return Ok(status_of(&mos, &leaves).into());
        }
        let mut made = (Vec::new(), Vec::new());
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            let leaves = self.leaves(session, &mos)?;
            let found = engine.pool().tree().found();
            let places = leaves.iter().filter_map(|leaf| found.device(*leaf));
            let places: Vec<Place> = places.map(FoundDevice::place).collect();
            let answer = status_of(&mos, &leaves);
            let new = SplitOff {
                name: self.new_pool.clone(),
                leaves,
                settings: self.settings(&mos).await?,
                host: this_host(session.runtime()),
                cache: session.cache(),
            };
            cenote_tasks::split(engine, new).await.map_err(|error| match why_not(&error) {
                Some(why) => self.refused(why),
                None => error.into(),
            })?;
            made = (answer, places);
            Ok(())
        };
        let mut outcome = session.change_pool(&self.pool, work).await?;
        let (answer, places) = made;
        if let (Some(root), Some(_)) = (&self.altroot, session.pools()) {
            outcome = outcome.and(self.import(session, places, root.clone()).await?);
        }
        Ok(Answered { answer, outcome })
    }
}

impl Split {
    fn refused(&self, why: impl std::fmt::Display) -> ControlError {
        ControlError::Refused(format!("Unable to split {}: {why}", self.pool))
    }

    fn leaves(&self, session: &Session, mos: &Mos) -> Result<Vec<Guid>, ControlError> {
        let unfit = || self.refused("Device list must include at most one disk from each mirror");
        let mut named = Vec::new();
        for typed in &self.devices {
            named.push(leaf(session.caller(), mos.pool(), typed)?.ok_or_else(unfit)?);
        }
        let mut leaves = Vec::new();
        for top in mos.pool().tree().vdevs().tops() {
            if top.class == VdevClass::Log || matches!(top.kind, VdevKind::Hole | VdevKind::Indirect) {
                continue;
            }
            if top.kind != VdevKind::Mirror {
                return Err(self.refused("Source pool must be composed only of mirrors"));
            }
            let own: Vec<Guid> = top.children.iter().map(|child| child.guid).collect();
            let mut meant = named.iter().filter(|guid| own.contains(guid));
            leaves.extend(meant.next().or(own.last()));
            if meant.next().is_some() {
                return Err(unfit());
            }
        }
        match named.iter().all(|guid| leaves.contains(guid)) {
            true => Ok(leaves),
            false => Err(unfit()),
        }
    }

    async fn settings(&self, mos: &Mos) -> Result<Vec<PoolSetting>, ControlError> {
        let mut all = Vec::new();
        // The mount root is not written.
        for Setting { property, value } in self.properties.iter().filter(|one| one.property != "altroot") {
            all.push(setting(mos, property, value).await?.map_err(|why| self.refused(why))?);
        }
        Ok(all)
    }

    async fn import(
        &self,
        session: &Session,
        places: Vec<Place>,
        root: PathBuf,
    ) -> Result<Outcome, ControlError> {
        let found = session.searching(places).find_on_disks(&self.new_pool).await?;
        let pool = session.hold(&found, Some(root)).await?;
        let loaded = if self.load_keys { session.load_keys(&pool, None).await? } else { Outcome::Done };
        Ok(loaded.and(session.mount_all(&pool).await?))
    }
}

fn status_of(mos: &Mos, leaves: &[Guid]) -> Vec<VdevStatus> {
    let (health, mut all) = (mos.pool().status(), Vec::new());
    health.root.walk(&mut |vdev| all.extend(leaves.contains(&vdev.guid).then(|| vdev.clone())));
    all
}
