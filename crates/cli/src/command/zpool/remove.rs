//! `zpool remove`: spares, cache devices and log vdevs leave a pool.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_remove`), `libzfs_pool.c` (`zpool_vdev_remove`), including the
//! wording.

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::units::{Guid, VdevId};
use cenote_pool::{VdevClass, VdevConfig};
use cenote_tasks::{remove_beside, remove_log};
use clap::Args;

use super::devices::is_meant;
use crate::command::not_yet;
use crate::command::zfs::refusal::cannot;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool remove`
#[derive(Debug, Args)]
#[command(after_help = "DEVICE is a hot spare that is not in use, a cache device, or a log: a device, or a \
        mirror by its name. A device of a mirror is removed by `zpool detach`.\n\n\
        Example: cenote zpool remove tank /img/s mirror-1")]
pub struct Remove {
    /// Change nothing: nothing of these devices would have to be moved
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Accepted for compatibility: exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Stop a removal: none runs here
    #[arg(short = 's')]
    pub stop: bool,
    /// Accepted for compatibility: they are gone at once
    #[arg(short = 'w')]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// Devices: path, the last component of it, or guid
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
}

impl Remove {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.stop {
            let instead = "Import the pool with OpenZFS and stop the removal there";
            return Err(not_yet::option("zpool remove -s", instead));
        }
        if self.devices.is_empty() {
            return Err(CliError::Refused("missing device".into()));
        }
        if self.dry_run {
            let mos = session.open_pool_without_asking(&self.pool).await?;
            return self
                .devices
                .iter()
                .try_for_each(|typed| named(&mos, typed).map(drop))
                .map(|()| Outcome::Done);
        }
        let work = async |engine: &Engine| {
            for typed in &self.devices {
                let removed = match named(&engine.mos().await?, typed)? {
                    Meant::Beside(guid) => remove_beside(engine, guid).await,
                    Meant::Log(vdev) => remove_log(engine, vdev).await,
                };
                removed.map_err(cannot(format!("remove {typed}")))?;
            }
            Ok(())
        };
        session.change_pool(&self.pool, work).await
    }
}

/// What can be removed.
enum Meant {
    Beside(Guid),
    Log(VdevId),
}

fn named(mos: &Mos, typed: &str) -> Result<Meant, CliError> {
    let (config, found) = (mos.pool().config(), mos.pool().found());
    let is_it = |vdev: &VdevConfig| is_meant(&found, vdev, typed);
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
    match top {
        Some(top) if top.class == VdevClass::Log => Ok(Meant::Log(VdevId(top.id))),
        None if !config.vdevs.iter().flat_map(VdevConfig::leaves).any(is_it) => {
            Err(CliError::Refused(format!("cannot remove {typed}: no such device in pool")))
        }
        _ => Err(not_yet::option(
            "zpool remove",
            "`cenote zpool detach` removes a device from a mirror. For vdevs that hold data, import the pool \
             with OpenZFS",
        )),
    }
}
