//! `zpool replace`, `zpool evacuate`: a device takes the place of another, for good or as a hot spare.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_attach_or_replace`), `libzfs_pool.c` (`zpool_vdev_attach`),
//! including the wording.

use cenote_control::refusal::cannot;
use cenote_control::zpool::leaves::meant::{leaf, meant};
use cenote_control::zpool::properties::options::ashift_option;
use cenote_control::zpool::work::scans::scan;
use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::create::NewDevice;
use cenote_pool::{FoundDevice, VdevConfig, VdevKind};
use cenote_tasks::Resilver;
use clap::Args;

use super::devices::joining;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool replace`
#[derive(Debug, Args)]
#[command(
    after_help = "NEW-DEVICE is brought all that DEVICE holds (resilvered), each block verified; then DEVICE \
        leaves the pool. DEVICE need not work, or be there, if others have what it holds. The daemon does it \
        in the background, otherwise it is done before the command ends; `zpool detach` of either ends it. \
        If it is interrupted, `cenote zpool resilver` goes on, and so does OpenZFS at import.\n\n\
        With -s what is in use is copied in the order of the disk, without a look at blocks, so that the \
        pool is redundant again sooner; a scrub follows, which verifies everything.\n\n\
        If NEW-DEVICE is a hot spare of the pool, DEVICE stays: once it works again, `zpool detach` of the \
        spare makes that available; `zpool detach` of DEVICE makes the spare stay for good; and when DEVICE \
        has been replaced by another one, the spare goes by itself.\n\n\
        Example: cenote zpool replace tank /img/b /img/e"
)]
pub struct Replace {
    /// Accept a device that holds something: another pool, a file system
    #[arg(short = 'f')]
    pub force: bool,
    /// Copy in the order of the disk, and verify afterwards by a scrub (only mirrors and dRAID)
    #[arg(short = 's')]
    pub sequential: bool,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w')]
    pub wait: bool,
    /// ashift=N: accepted if it is no larger than that of the vdev
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// The pool
    pub pool: String,
    /// A device of the pool: its path, the last component of it, or its guid
    pub device: String,
    /// What takes its place [default: another device at the same path]
    pub new_device: Option<String>,
}

/// `zpool evacuate`
#[derive(Debug, Args)]
#[command(
    after_help = "For a device that still works, but not for long. NEW-DEVICE is brought what DEVICE holds, \
        and nothing else: DEVICE is read first, in the order of the disk, each block is verified, and what \
        DEVICE can't read is put together from the others. DEVICE stays in use meanwhile, even if it fails \
        often, so that the pool is as redundant as before; what others write goes to both. When NEW-DEVICE \
        has everything, DEVICE leaves the pool. On the disks it is OpenZFS's replacement: `zpool detach` of \
        either device ends it, and OpenZFS goes on with it at import.\n\n\
        Example: cenote zpool evacuate tank /img/b /img/e"
)]
pub struct Evacuate {
    /// Accept a device that holds something: another pool, a file system
    #[arg(short = 'f')]
    pub force: bool,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w')]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// A device of the pool: its path, the last component of it, or its guid
    pub device: String,
    /// What takes its place
    pub new_device: String,
}

impl Evacuate {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let what = format!("evacuate {} to {}", self.device, self.new_device);
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            let old = leaf(mos.pool(), &self.device)?.ok_or_else(|| {
                CliError::Refused(format!("cannot {what}: {}", why_not(&mos, &self.device)))
            })?;
            let new = joining(session, &mos, &self.new_device, self.force).await?;
            cenote_tasks::evacuate(engine, old, new).await.map_err(cannot(&what))?;
            scan(session, engine, self.wait).await
        };
        session.change_pool(&self.pool, work).await
    }
}

/// Who takes the place.
enum New {
    Device(NewDevice),
    Spare(Guid, Option<FoundDevice>),
}

impl Replace {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let typed = self.new_device.as_ref().unwrap_or(&self.device);
        let what = format!("replace {} with {typed}", self.device);
        let ashift = ashift_option(&self.options).map_err(CliError::Usage)?;
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            let refused = |why: &str| CliError::Refused(format!("cannot {what}: {why}"));
            let old = leaf(mos.pool(), &self.device)?.ok_or_else(|| refused(why_not(&mos, &self.device)))?;
            if ashift.is_some_and(|ashift| ashift > ashift_of(&mos, old)) {
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
        session.change_pool(&self.pool, work).await
    }

    async fn newcomer(&self, session: &Session, mos: &Mos, typed: &str) -> Result<New, CliError> {
        let (config, found) = (mos.pool().config(), mos.pool().found());
        let spare = meant(&found, config.spares.iter(), typed)?;
        if let Some(spare) = config.spares.iter().find(|one| Some(one.guid) == spare) {
            let device = found.device(spare.guid);
            let device = match spare.kind {
                VdevKind::DistributedSpare => None,
                _ => Some(device.ok_or_else(|| {
                    CliError::Refused(format!("cannot open '{typed}': the spare is not there"))
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

/// How what joins is brought what it lacks: `-s`.
pub fn resilver(is_sequential: bool) -> Resilver {
    if is_sequential { Resilver::Sequential } else { Resilver::Healing }
}

/// Why something that is no device of the tree can't be replaced.
fn why_not(mos: &Mos, typed: &str) -> &'static str {
    let (config, found) = (mos.pool().config(), mos.pool().found());
    let is_one = |vdevs: &[VdevConfig]| meant(&found, vdevs.iter(), typed).is_ok_and(|one| one.is_some());
    match () {
        () if is_one(&config.spares) => "device is reserved as a hot spare",
        () if is_one(&config.l2cache) => "device is in use as a cache",
        () => "no such device in pool",
    }
}

fn ashift_of(mos: &Mos, leaf: Guid) -> u32 {
    let vdevs = mos.pool().vdevs();
    let top = vdevs.tops().find(|top| top.leaves().any(|one| one.guid == leaf));
    top.map_or(0, |top| top.ashift)
}
