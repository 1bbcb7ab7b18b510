//! `zpool remove`: removes spares, cache devices, logs and data vdevs from a pool.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_remove`), `libzfs_pool.c` (`zpool_vdev_remove`,
//! `zpool_vdev_remove_cancel`), including the wording.

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::units::{Guid, VdevId};
use cenote_pool::{VdevClass, VdevConfig};
use cenote_tasks::{
    RemovalProgress, Removed, cancel_removal, mapping_bytes_after, remove_beside, remove_log, removing_vdev,
    run_removal, start_removal,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::meant::meant;
use crate::caller::Progress;
use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zpool::activity::LOOK_INTERVAL;

/// Remove hot spares, cache devices, logs, and disks or mirrors with data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remove {
    /// Pool.
    pub pool: String,
    /// Devices: path, last path component, or guid; mirrors by name.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Operation.
    #[serde(default)]
    pub order: Order,
    /// Wait for the end, as without a daemon.
    #[serde(default)]
    pub wait: bool,
}

/// An operation on devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Remove them.
    #[default]
    Remove,
    /// Only estimate the memory for their mappings.
    Estimate,
    /// Cancel the removal in progress.
    Stop,
}

/// The cost of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Estimated {
    /// Device, as named.
    pub device: String,
    /// Memory for the mapping of its blocks.
    pub memory_bytes: u64,
}

impl Verb for Remove {
    const NAME: &'static str = "zpool remove";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    /// Estimates, if requested.
    type Answer = Vec<Estimated>;

    /// # Errors
    /// No such device, or it can't be removed; no removal is in progress.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Estimated>>, ControlError> {
        let outcome: Outcome = match self.order {
            Order::Stop => {
                let work = async |engine: &Engine| {
                    cancel_removal(engine).await.map_err(|error| match error.is_refusal() {
                        true => {
                            let why = "cannot cancel removal: there is no removal in progress";
                            ControlError::Refused(why.into())
                        }
                        false => error.into(),
                    })
                };
                session.change_pool(&self.pool, work).await?
            }
            _ if self.devices.is_empty() => return Err(ControlError::Refused("missing device".into())),
            Order::Estimate => return Ok(self.estimate(session).await?.into()),
            Order::Remove => {
                let work = async |engine: &Engine| {
                    for typed in &self.devices {
                        self.remove(session, engine, typed).await?;
                    }
                    self.wait_for_end(session, engine).await
                };
                session.change_pool(&self.pool, work).await?
            }
        };
        Ok(Answered { answer: Vec::new(), outcome })
    }
}

impl Remove {
    async fn remove(&self, session: &Session, engine: &Engine, typed: &str) -> Result<(), ControlError> {
        let mos = engine.mos().await?;
        let removed = match named(session, &mos, typed)? {
            Meant::Beside(guid) => remove_beside(engine, guid).await,
            Meant::Log(vdev) => remove_log(engine, vdev).await,
            Meant::Data(vdev) => {
                // Without a daemon only this command continues a removal.
                let is_ours = session.pools().is_none() && removing_vdev(&mos).await? == Some(vdev);
                if !is_ours {
                    start_removal(engine, vdev).await.map_err(cannot(format!("remove {typed}")))?;
                }
                // The removal's end waits for readers of the old state.
                drop(mos);
                if session.pools().is_none() {
                    finish(session, engine, typed).await?;
                }
                return Ok(());
            }
        };
        removed.map_err(cannot(format!("remove {typed}")))
    }

    async fn wait_for_end(&self, session: &Session, engine: &Engine) -> Result<(), ControlError> {
        while self.wait && session.pools().is_some() && removing_vdev(&engine.mos().await?).await?.is_some() {
            session.runtime().sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// Estimates the memory for mappings.
    async fn estimate(&self, session: &Session) -> Result<Vec<Estimated>, ControlError> {
        let mos = session.open_pool_without_asking(&self.pool).await?;
        let mut all = Vec::new();
        for typed in &self.devices {
            let memory_bytes = match named(session, &mos, typed)? {
                Meant::Beside(_) | Meant::Log(_) => 0,
                Meant::Data(vdev) => mapping_bytes_after(&mos, vdev).await?,
            };
            all.push(Estimated { device: typed.clone(), memory_bytes });
        }
        Ok(all)
    }
}

/// Copies to the end, showing progress.
async fn finish(session: &Session, engine: &Engine, typed: &str) -> Result<(), ControlError> {
    let console = &session.caller().console;
    let shown = |now: RemovalProgress| {
        let (done_bytes, total_bytes) = (now.done_bytes, now.total_bytes);
        console.progress(Some(Progress { what: "", done_bytes, total_bytes }));
    };
    let done = run_removal(engine, &shown).await;
    console.progress(None);
    match done? {
        Removed::Done => Ok(()),
        Removed::Suspended => {
            Err(ControlError::Stopped("it is suspended: zfs_removal_suspend_progress=1".into()))
        }
        Removed::Canceled { why } => {
            Err(ControlError::Refused(format!("cannot remove {typed}: {why}; the removal was canceled")))
        }
    }
}

/// A removable vdev.
enum Meant {
    Beside(Guid),
    Log(VdevId),
    Data(VdevId),
}

fn named(session: &Session, mos: &Mos, typed: &str) -> Result<Meant, ControlError> {
    let (config, found) = (mos.pool().tree().config(), mos.pool().tree().found());
    let leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
    let device =
        meant(session.caller(), &found, config.spares.iter().chain(&config.l2cache).chain(leaves), typed)?;
    let is_it = |vdev: &VdevConfig| Some(vdev.guid) == device;
    if let Some(beside) = config.spares.iter().chain(&config.l2cache).find(|vdev| is_it(vdev)) {
        return Ok(Meant::Beside(beside.guid));
    }
    let health = mos.pool().status();
    let name =
        |top: &VdevConfig| health.root.children.iter().find(|one| one.id == top.id).map(|one| &one.name);
    let top = config.vdevs.iter().find(|top| match top.is_leaf() {
        true => is_it(top),
        false => name(top).is_some_and(|name| name == typed) || top.guid.to_string() == typed,
    });
    let refused = |why: &str| Err(ControlError::Refused(format!("cannot remove {typed}: {why}")));
    match top {
        Some(top) if top.class == VdevClass::Log => Ok(Meant::Log(VdevId(top.id))),
        Some(top) => Ok(Meant::Data(VdevId(top.id))),
        None if !config.vdevs.iter().flat_map(VdevConfig::leaves).any(is_it) => {
            refused("no such device in pool")
        }
        None => refused(
            "operation not supported on this type of pool; `cenote zpool detach` removes a device from a \
             mirror",
        ),
    }
}
