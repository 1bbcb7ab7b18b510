//! `zpool initialize`, `zpool trim`: passes over the free space of devices.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_initialize`, `zpool_do_trim`), `libzfs_pool.c`
//! (`zpool_initialize`, `zpool_trim`), including the wording.

use cenote_control::refusal::cannot;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{Pass, VdevConfig};
use cenote_tasks::{PassOrder, is_passing, order_pass, run_passes};
use clap::Args;

use super::meant::leaf;
use super::wait::LOOK_INTERVAL;
use crate::command::not_yet;
use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::render::parse_bytes;
use crate::session::{Progress, Session};

/// `zpool initialize`
#[derive(Debug, Args)]
#[command(
    after_help = "Free space is written once, so that storage which allocates at the first write does so \
        now. The daemon does it in the background: `cenote zpool status -i` shows how far it is. Without a \
        daemon the command ends when all is done. If it is interrupted, the daemon goes on, and so does \
        OpenZFS at import. Not while a RAID-Z is being expanded.\n\n\
        Example: cenote zpool initialize tank /img/b"
)]
pub struct Initialize {
    /// Stop for good
    #[arg(short = 'c', long = "cancel", conflicts_with_all = ["suspend", "uninit", "wait"])]
    pub cancel: bool,
    /// Suspend; the same command without options goes on
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["uninit", "wait"])]
    pub suspend: bool,
    /// Forget that the devices were initialized
    #[arg(short = 'u', long = "uninit", conflicts_with = "wait")]
    pub uninit: bool,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w', long = "wait")]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// Devices: path, the last component of it, or guid [default: all]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
}

/// `zpool trim`
#[derive(Debug, Args)]
#[command(
    after_help = "Devices are told what is free, so that they may forget it: SSDs, thin storage, and image \
        files, in which it becomes holes. The daemon does it in the background: `cenote zpool status -t` \
        shows how far it is. Without a daemon the command ends when all is done. If it is interrupted, the \
        daemon goes on, and so does OpenZFS at import. Not while a RAID-Z is being expanded.\n\n\
        Example: cenote zpool trim -r 100M tank"
)]
pub struct Trim {
    /// Stop for good
    #[arg(short = 'c', long = "cancel", conflicts_with_all = ["suspend", "wait", "rate"])]
    pub cancel: bool,
    /// Suspend; the same command without options goes on
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["wait", "rate"])]
    pub suspend: bool,
    /// Not supported
    #[arg(short = 'd', long = "secure", hide = true)]
    pub secure: bool,
    /// At most so many bytes a second
    #[arg(short = 'r', long = "rate", value_name = "RATE")]
    pub rate: Option<String>,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w', long = "wait")]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// Devices: path, the last component of it, or guid [default: all]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
}

impl Initialize {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let order = match () {
            () if self.cancel => PassOrder::Cancel,
            () if self.suspend => PassOrder::Suspend,
            () if self.uninit => PassOrder::Forget,
            () => PassOrder::Start { rate: 0 },
        };
        let order = Ordered { verb: "initialize", pass: Pass::Initialize, order, wait: self.wait };
        order.run(session, &self.pool, &self.devices).await
    }
}

impl Trim {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.secure {
            let instead = "Import the pool with OpenZFS and trim its devices there";
            return Err(not_yet::option("zpool trim -d", instead));
        }
        let rate = match &self.rate {
            None => 0,
            Some(text) => parse_bytes(text).ok_or_else(|| {
                CliError::Usage(format!("invalid value for rate '{text}': bad numeric value"))
            })?,
        };
        let order = match () {
            () if self.cancel => PassOrder::Cancel,
            () if self.suspend => PassOrder::Suspend,
            () => PassOrder::Start { rate },
        };
        let order = Ordered { verb: "trim", pass: Pass::Trim, order, wait: self.wait };
        order.run(session, &self.pool, &self.devices).await
    }
}

/// What was ordered.
struct Ordered {
    verb: &'static str,
    pass: Pass,
    order: PassOrder,
    wait: bool,
}

impl Ordered {
    async fn run(&self, session: &Session, pool: &str, devices: &[String]) -> Result<Outcome, CliError> {
        let work = async |engine: &Engine| {
            let refused = self.order(engine, self.leaves(engine, devices).await?).await?;
            let ended = match (self.order, session.pools().is_some()) {
                (PassOrder::Start { .. }, false) => self.finish(engine).await?,
                (PassOrder::Start { .. }, true) if self.wait => self.wait(session, engine).await?,
                _ => Outcome::Done,
            };
            refused.iter().for_each(|refusal| say!("{refusal}"));
            Ok(if refused.is_empty() { ended } else { Outcome::Failed })
        };
        session.change_pool(pool, work).await
    }

    /// Orders it for each leaf that can; answers why others can't.
    ///
    /// # Errors
    /// None of them can.
    async fn order(&self, engine: &Engine, leaves: Vec<(Guid, String)>) -> Result<Vec<CliError>, CliError> {
        let (count, mut refused) = (leaves.len(), Vec::new());
        for (leaf, name) in leaves {
            let ordered = order_pass(engine, leaf, self.pass, self.order).await;
            refused.extend(ordered.err().map(cannot(format!("{} '{name}'", self.verb))));
        }
        match refused.len() == count {
            true => refused.pop().map_or_else(|| Ok(Vec::new()), Err),
            false => Ok(refused),
        }
    }

    /// The devices that were named, or all.
    async fn leaves(&self, engine: &Engine, devices: &[String]) -> Result<Vec<(Guid, String)>, CliError> {
        let mos = engine.mos().await?;
        if devices.is_empty() {
            let vdevs = mos.pool().vdevs();
            let leaves = vdevs.tops().flat_map(VdevConfig::leaves);
            return Ok(leaves.map(|leaf| (leaf.guid, leaf.path.clone().unwrap_or_default())).collect());
        }
        let named = |typed: &String| {
            let missing = || format!("cannot {} '{typed}': no such device in pool", self.verb);
            leaf(mos.pool(), typed)?
                .map(|leaf| (leaf, typed.clone()))
                .ok_or_else(|| CliError::Refused(missing()))
        };
        devices.iter().map(named).collect()
    }

    /// Without a daemon, all that there is to do is done here.
    async fn finish(&self, engine: &Engine) -> Result<Outcome, CliError> {
        let progress = Progress::bytes(0, false);
        let failed = run_passes(engine, &|more| progress.add(more)).await;
        progress.finish();
        let failed = failed?;
        let mut outcome = Outcome::Done;
        for leaf in engine.pool().config().vdevs.iter().flat_map(VdevConfig::leaves) {
            if failed.contains(&leaf.guid) {
                let path = leaf.path.clone().unwrap_or_default();
                say!("cannot {} '{path}': the device fails, or does not support it", self.verb);
                outcome = Outcome::Failed;
            }
        }
        Ok(outcome)
    }

    async fn wait(&self, session: &Session, engine: &Engine) -> Result<Outcome, CliError> {
        while is_passing(engine, self.pass).await? {
            session.runtime().sleep(LOOK_INTERVAL).await;
        }
        Ok(Outcome::Done)
    }
}
