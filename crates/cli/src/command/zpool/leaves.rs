//! `zpool offline`, `online`, `clear`, `reopen`: devices that go out of use and come back.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_offline`, `zpool_do_online`, `zpool_do_clear`,
//! `zpool_do_reopen`), including the wording.

use cenote_control::refusal::cannot;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{VdevState, VdevStatus};
use cenote_tasks::{Away, Back, bring_back, expand, take_out, validate};
use clap::Args;

use super::meant::leaf;
use super::scan::scan;
use crate::command::not_yet;
use crate::message::say_bare;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// Devices of a pool.
#[derive(Debug, Args)]
pub struct Which {
    /// Not supported
    #[arg(long, hide = true)]
    pub power: bool,
    /// The pool
    pub pool: String,
    /// Devices: path, the last component of it, or guid
    #[arg(required = true, value_name = "DEVICE")]
    pub devices: Vec<String>,
}

/// `zpool offline`
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is read from the device or written to it until `zpool online`. Refused if other \
        devices do not have all that it holds.\n\n\
        Example: cenote zpool offline tank /img/b"
)]
pub struct Offline {
    /// Mark the device as faulted instead: `zpool clear` brings it back
    #[arg(short = 'f', conflicts_with = "temporary")]
    pub fault: bool,
    /// Only until the pool is exported: for pools of the daemon
    #[arg(short = 't')]
    pub temporary: bool,
    /// Which devices
    #[command(flatten)]
    pub which: Which,
}

/// `zpool online`
#[derive(Debug, Args)]
#[command(after_help = "The devices are brought what they missed (resilvered): in the daemon in the \
        background, otherwise before the command ends.\n\n\
        With -e, the vdev of each device takes all that its devices offer by now, if all of them work and \
        the smallest has grown by a metaslab at least: `zpool list -o expandsize` says how much that is. \
        With autoexpand=on the daemon does so by itself.\n\n\
        Example: cenote zpool online tank /img/b")]
pub struct Online {
    /// Use the space by which the device has grown
    #[arg(short = 'e')]
    pub expand: bool,
    /// Which devices
    #[command(flatten)]
    pub which: Which,
}

/// `zpool clear`
#[derive(Debug, Args)]
#[command(
    after_help = "Errors are counted from 0 again. Devices that were faulted come back and are brought \
        what they missed. A pool that is suspended tries again, with devices that are back.\n\n\
        Example: cenote zpool clear tank"
)]
pub struct Clear {
    /// Not supported
    #[arg(long, hide = true)]
    pub power: bool,
    /// The pool
    pub pool: String,
    /// A device: path, the last component of it, or guid [default: all]
    pub device: Option<String>,
}

/// `zpool reopen`
#[derive(Debug, Args)]
#[command(
    after_help = "Devices that were not there are looked for again, and are brought what they missed. Those \
        whose labels are gone, or are another device's, go out of use, unless others don't have what they \
        hold.\n\n\
        Example: cenote zpool reopen tank"
)]
pub struct Reopen {
    /// Leave what they missed to a later resilver
    #[arg(short = 'n')]
    pub no_resilver: bool,
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

impl Offline {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.which.power {
            return Err(not_yet::option("zpool offline --power", POWER));
        }
        let how = match () {
            () if self.fault => Away::Faulted,
            () if self.temporary && session.held_by_name(&self.which.pool).is_none() => {
                return Err(CliError::Refused(
                    "-t lasts until the pool is exported, which is the end of this command: leave it out, or \
                     keep the pool open with `cenote serve`"
                        .into(),
                ));
            }
            () if self.temporary => Away::OfflineForNow,
            () => Away::Offline,
        };
        let work = async |engine: &Engine| {
            for typed in &self.which.devices {
                let leaf = named(engine, "offline", typed).await?;
                take_out(engine, leaf, how).await.map_err(cannot(format!("offline {typed}")))?;
            }
            Ok(())
        };
        session.change_pool(&self.which.pool, work).await
    }
}

impl Online {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.which.power {
            return Err(not_yet::option("zpool online --power", POWER));
        }
        session.resume(&self.which.pool, &format!("online {}", self.which.devices.join(", "))).await?;
        let work = async |engine: &Engine| {
            for typed in &self.which.devices {
                let leaf = named(engine, "online", typed).await?;
                let devices = session.returning(engine, Some(leaf)).await?;
                let done = bring_back(engine, Some(leaf), Back::Online, devices).await;
                done.map_err(cannot(format!("online {typed}")))?;
                if self.expand {
                    expand(engine, Some(leaf)).await.map_err(cannot(format!("expand {typed}")))?;
                }
                warn(engine, leaf, typed);
            }
            scan(session, engine, false).await
        };
        session.change_pool(&self.which.pool, work).await
    }
}

impl Clear {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.power {
            return Err(not_yet::option("zpool clear --power", POWER));
        }
        session.resume(&self.pool, &format!("clear errors for {}", self.pool)).await?;
        let work = async |engine: &Engine| {
            let only = match &self.device {
                Some(typed) => Some(named(engine, "clear errors for", typed).await?),
                None => None,
            };
            let devices = session.returning(engine, only).await?;
            bring_back(engine, only, Back::Cleared, devices).await?;
            scan(session, engine, false).await
        };
        session.change_pool(&self.pool, work).await
    }
}

impl Reopen {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        for pool in &self.pools {
            session.resume(pool, &format!("reopen '{pool}'")).await?;
        }
        let work = async |engine: &Engine, _: &String| {
            validate(engine, None).await?;
            let devices = session.returning(engine, None).await?;
            bring_back(engine, None, Back::Reopened, devices).await?;
            if self.no_resilver { Ok(Outcome::Done) } else { scan(session, engine, false).await }
        };
        session.change_each(&self.pools, |pool| pool.as_str(), work).await
    }
}

const POWER: &str = "Switch the slot's power with the tools of its enclosure";

/// A leaf by its path, the last component of it, or its guid.
async fn named(engine: &Engine, verb: &str, typed: &str) -> Result<Guid, CliError> {
    let found = leaf(&engine.pool(), typed)?;
    found.ok_or_else(|| CliError::Refused(format!("cannot {verb} {typed}: no such device in pool")))
}

/// It may be back in the tree and still not be there.
fn warn(engine: &Engine, leaf: Guid, typed: &str) {
    let health = engine.pool().status();
    let mut state = VdevState::Online;
    health.root.walk(&mut |vdev: &VdevStatus| {
        if vdev.guid == leaf {
            state = vdev.state;
        }
    });
    if state == VdevState::Online {
        return;
    }
    say_bare(format!("warning: device '{typed}' onlined, but remains in {state} state"));
    say_bare(match state {
        VdevState::Faulted => "use 'zpool clear' to restore a faulted device",
        _ => "use 'zpool replace' to replace devices that are no longer present",
    });
}
