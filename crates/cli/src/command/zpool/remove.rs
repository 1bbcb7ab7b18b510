//! `zpool remove`: spares, cache devices, logs, and vdevs that hold data leave a pool.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_remove`), `libzfs_pool.c` (`zpool_vdev_remove`,
//! `zpool_vdev_remove_cancel`), including the wording.

use cenote_control::refusal::cannot;
use cenote_control::zpool::leaves::meant::meant;
use cenote_control::zpool::work::LOOK_INTERVAL;
use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::units::{Guid, VdevId};
use cenote_pool::{VdevClass, VdevConfig};
use cenote_tasks::{
    Removed, cancel_removal, mapping_bytes_after, remove_beside, remove_log, removing_vdev, run_removal,
    start_removal,
};
use clap::Args;

use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::render::nice_number;
use crate::session::{Progress, Session, print};

/// `zpool remove`
#[derive(Debug, Args)]
#[command(
    after_help = "DEVICE is a hot spare that is not in use, a cache device, a log, or a disk or mirror \
        that holds data: a device, or a mirror by its name. A device of a mirror is removed by `zpool \
        detach`.\n\n\
        What a vdev holds is copied to the others; then its devices leave, and the pool keeps a table of \
        where its blocks are. All vdevs must have the same sector size, and none may be a RAID-Z or dRAID. \
        The daemon does it in the background: `cenote zpool status` shows how far it is. Without a daemon \
        the command ends when it is done; if it is interrupted, the same command goes on, and so does \
        OpenZFS at import. Copies are not verified: scrub first.\n\n\
        Example: cenote zpool remove tank /img/s mirror-1"
)]
pub struct Remove {
    /// Change nothing: print the memory that the table will take
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// With -n: exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Stop the removal in progress: the vdev stays
    #[arg(short = 's')]
    pub stop: bool,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w', conflicts_with = "stop")]
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
        match () {
            () if self.stop && self.dry_run => {
                say!("stop request ignored");
                Ok(Outcome::Done)
            }
            () if self.stop && !self.devices.is_empty() => Err(CliError::Usage("too many arguments".into())),
            () if self.stop => {
                let work = async |engine: &Engine| {
                    cancel_removal(engine).await.map_err(|error| match error.is_refusal() {
                        true => {
                            CliError::Refused("cannot cancel removal: there is no removal in progress".into())
                        }
                        false => error.into(),
                    })
                };
                session.change_pool(&self.pool, work).await
            }
            () if self.devices.is_empty() => Err(CliError::Refused("missing device".into())),
            () if self.dry_run => self.estimate(session).await,
            () => {
                let work = async |engine: &Engine| {
                    for typed in &self.devices {
                        self.remove(session, engine, typed).await?;
                    }
                    self.wait_for_end(session, engine).await
                };
                session.change_pool(&self.pool, work).await
            }
        }
    }

    async fn remove(&self, session: &Session, engine: &Engine, typed: &str) -> Result<(), CliError> {
        let mos = engine.mos().await?;
        let removed = match named(&mos, typed)? {
            Meant::Beside(guid) => remove_beside(engine, guid).await,
            Meant::Log(vdev) => remove_log(engine, vdev).await,
            Meant::Data(vdev) => {
                // Without a daemon nobody goes on with a removal but this.
                let is_ours = session.pools().is_none() && removing_vdev(&mos).await? == Some(vdev);
                if !is_ours {
                    start_removal(engine, vdev).await.map_err(cannot(format!("remove {typed}")))?;
                }
                // The end waits for readers of what was there before.
                drop(mos);
                if session.pools().is_none() {
                    finish(engine, typed).await?;
                }
                return Ok(());
            }
        };
        removed.map_err(cannot(format!("remove {typed}")))
    }

    async fn wait_for_end(&self, session: &Session, engine: &Engine) -> Result<(), CliError> {
        while self.wait && session.pools().is_some() && removing_vdev(&engine.mos().await?).await?.is_some() {
            session.runtime().sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// Tells the memory that mappings will take.
    async fn estimate(&self, session: &Session) -> Result<Outcome, CliError> {
        let mos = session.open_pool_without_asking(&self.pool).await?;
        for typed in &self.devices {
            let bytes = match named(&mos, typed)? {
                Meant::Beside(_) | Meant::Log(_) => 0,
                Meant::Data(vdev) => mapping_bytes_after(&mos, vdev).await?,
            };
            match self.parsable {
                true => print(format!("{typed} {bytes}\n"))?,
                false => {
                    let bytes = nice_number(bytes);
                    print(format!("Memory that will be used after removing {typed}: {bytes}\n"))?;
                }
            }
        }
        Ok(Outcome::Done)
    }
}

/// Copies to the end, and shows how far that is.
async fn finish(engine: &Engine, typed: &str) -> Result<(), CliError> {
    let progress = Progress::bytes(0, false);
    let shown = |now: cenote_tasks::RemovalProgress| {
        progress.total(now.total_bytes);
        progress.set(now.done_bytes);
    };
    let done = run_removal(engine, &shown).await;
    progress.finish();
    match done? {
        Removed::Done => Ok(()),
        Removed::Suspended => {
            Err(CliError::Stopped("it is suspended: zfs_removal_suspend_progress=1".into()))
        }
        Removed::Canceled { why } => {
            Err(CliError::Refused(format!("cannot remove {typed}: {why}; the removal was canceled")))
        }
    }
}

/// What can be removed.
enum Meant {
    Beside(Guid),
    Log(VdevId),
    Data(VdevId),
}

fn named(mos: &Mos, typed: &str) -> Result<Meant, CliError> {
    let (config, found) = (mos.pool().config(), mos.pool().found());
    let leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
    let device = meant(&found, config.spares.iter().chain(&config.l2cache).chain(leaves), typed)?;
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
    let refused = |why: &str| Err(CliError::Refused(format!("cannot remove {typed}: {why}")));
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
