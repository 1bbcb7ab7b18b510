//! `zpool add`, `attach`, `detach`: devices that join or leave a pool.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_add`, `zpool_do_attach_or_replace`), `libzfs_pool.c`
//! (`zpool_vdev_attach`), including the wording.

use std::fmt::Write as _;
use std::path::Path;

use cenote_control::refusal::cannot;
use cenote_control::zpool::leaves::detach;
use cenote_control::zpool::leaves::meant::leaf;
use cenote_control::zpool::properties::options::ashift_option;
use cenote_control::zpool::shown::properties::Properties;
use cenote_control::zpool::work::LOOK_INTERVAL;
use cenote_control::zpool::work::scans::scan;
use cenote_dataset::{FeatureState, Mos, Value};
use cenote_engine::Engine;
use cenote_format::units::VdevId;
use cenote_pool::create::{NewDevice, NewVdev};
use cenote_pool::{VdevConfig, VdevKind, VdevStatus};
use cenote_tasks::{Expanded, attach_to_raidz, expansion, run_expansion};
use clap::Args;

use super::DeviceNames;
use super::create::layout::{self, Group, Layout};
use super::create::{check_features, devices, layout_json, layout_lines, lines_beside, replication};
use super::replace::resilver;
use super::tree::{self, Style};
use crate::outcome::{CliError, Outcome};
use crate::session::{Progress, Session, print, print_json};

/// `zpool add`
#[derive(Debug, Args)]
#[command(after_help = "VDEV is as in `zpool create`. Later commands write to the new vdevs too.\n\n\
        Example: cenote zpool add tank mirror e f log g")]
pub struct Add {
    /// All three options that follow
    #[arg(short = 'f')]
    pub force: bool,
    /// Accept devices that hold something: another pool, a file system
    #[arg(long)]
    pub allow_in_use: bool,
    /// Accept vdevs with different redundancy
    #[arg(long)]
    pub allow_replication_mismatch: bool,
    /// Accept vdevs with a different sector size
    #[arg(long)]
    pub allow_ashift_mismatch: bool,
    /// Show the layout and change nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// ashift=N; defaults to the pool's, if set
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// The pool
    pub pool: String,
    /// Its new vdevs
    #[arg(required = true, value_name = "VDEV")]
    pub vdevs: Vec<String>,
}

/// `zpool attach`
#[derive(Debug, Args)]
#[command(
    after_help = "DEVICE is a single disk, which becomes a mirror, or a member of a mirror. Before the \
        command ends, the new device is brought everything (resilvered), each block verified; the daemon \
        does it in the background. If the command is interrupted, the device is part of the pool and lacks \
        some of it: `cenote zpool resilver` goes on, and so does OpenZFS at import.\n\n\
        A RAID-Z (raidz1-0) gets one more device: what it holds is spread over all of them, and new blocks \
        are wider, which can't be undone. The daemon does it in the background, and a scrub follows: `cenote \
        zpool status` shows how far it is. Without a daemon the command ends when all is done; if it is \
        interrupted, the same command goes on, and so does OpenZFS at import. It waits while a device of the \
        vdev is missing. Nothing is verified before it is moved: scrub first.\n\n\
        Example: cenote zpool attach tank /img/a /img/b"
)]
pub struct Attach {
    /// Accept a device that holds something: another pool, a file system
    #[arg(short = 'f')]
    pub force: bool,
    /// Copy in the order of the disk, and verify afterwards by a scrub
    #[arg(short = 's')]
    pub sequential: bool,
    /// Wait until the device has everything, as without a daemon
    #[arg(short = 'w')]
    pub wait: bool,
    /// Accepted for compatibility: ashift is the mirror's
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// The pool
    pub pool: String,
    /// A device of the pool: its path, the last component of it, or its guid; or a RAID-Z
    pub device: String,
    /// The new device
    pub new_device: String,
}

/// `zpool detach`
#[derive(Debug, Args)]
#[command(
    after_help = "The device's labels are cleared; a hot spare is available again. Detaching the new device \
        of a replacement cancels that, detaching the old one ends it.\n\n\
        Example: cenote zpool detach tank /img/b"
)]
pub struct Detach {
    /// The pool
    pub pool: String,
    /// A device of a mirror, or of a replacement: its path, the last component of it, or its guid
    pub device: String,
}

/// The opened devices to add.
struct New<'a> {
    groups: &'a [Group<'a>],
    vdevs: Vec<NewVdev>,
    spares: Vec<NewDevice>,
    cache: Vec<NewDevice>,
}

impl<'a> New<'a> {
    async fn open(session: &Session, mos: &Mos, layout: &'a Layout<'a>) -> Result<New<'a>, CliError> {
        refuse_own(mos, &layout.devices())?;
        let vdevs = devices::open(session.runtime(), &layout.groups).await?;
        let spares = devices::open_all(session.runtime(), &layout.spares).await?;
        let cache = devices::open_all(session.runtime(), &layout.cache).await?;
        Ok(New { groups: &layout.groups, vdevs, spares, cache })
    }

    fn all(&self) -> Vec<&NewDevice> {
        let in_vdevs = self.vdevs.iter().flat_map(|vdev| &vdev.devices);
        in_vdevs.chain(&self.spares).chain(&self.cache).collect()
    }
}

impl Add {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let layout = layout::parse(&self.vdevs).map_err(CliError::Usage)?;
        if self.dry_run {
            let mos = session.open_pool_without_asking(&self.pool).await?;
            let new = New::open(session, &mos, &layout).await?;
            self.check(session, &mos, &new).await?;
            match session.json() {
                true => {
                    print_json(&layout_json("zpool add", &self.pool, &new.vdevs, &new.spares, &new.cache))?
                }
                false => print(self.drawing(&mos, &new))?,
            }
            return Ok(Outcome::Done);
        }
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            let new = New::open(session, &mos, &layout).await?;
            let ashift = self.check(session, &mos, &new).await?;
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
            Ok(())
        };
        session.change_pool(&self.pool, work).await
    }

    /// Refuses vdevs that do not fit the pool; returns the ashift to use, if it is known.
    async fn check(&self, session: &Session, mos: &Mos, new: &New<'_>) -> Result<Option<u32>, CliError> {
        let refused = |why: String| CliError::Refused(format!("cannot add to '{}': {why}", self.pool));
        let properties = Properties::gather(mos, None).await?;
        let of_pool = match properties.get("ashift").map(|property| &property.value) {
            Some(Value::Number(ashift @ 1..)) => Some(*ashift as u32),
            _ => None,
        };
        let ashift = ashift_option(&self.options).map_err(refused)?.or(of_pool);
        let features = mos.features().await?;
        let has = |name: &str| {
            features.iter().any(|(feature, state)| feature.name == name && *state != FeatureState::Disabled)
        };
        check_features(new.groups, has).map_err(|why| refused(why.into()))?;
        let mut problems = Vec::new();
        if !self.force && !self.allow_in_use {
            problems.extend(devices::contents(session.runtime(), &new.all()).await);
        }
        if !self.force && !self.allow_replication_mismatch {
            problems.extend(replication::mismatch(&existing(mos), new.groups, &devices::sizes(&new.vdevs)));
        }
        let takes_any_sector = self.force || self.allow_ashift_mismatch;
        if let Some(sector) = other_sector(mos, &new.vdevs, ashift).filter(|_| !takes_any_sector) {
            let why = "adding devices with different physical sector sizes is not allowed";
            problems.push(format!("{why} ({sector} bytes)"));
        }
        unless_any(&problems).map(|()| ashift)
    }

    fn drawing(&self, mos: &Mos, new: &New<'_>) -> String {
        let mut out = format!("would update '{0}' to the following configuration:\n\n\t{0}\n", self.pool);
        let style = Style { names: self.names, ..Style::default() };
        let health = mos.pool().status();
        for top in &health.root.children {
            let _ = writeln!(out, "\t  {}", tree::name(top, style));
            for leaf in &top.children {
                let _ = writeln!(out, "\t    {}", tree::name(leaf, style));
            }
        }
        out + &layout_lines(new.groups, &new.vdevs, health.root.children.len())
            + &lines_beside("spares", &new.spares)
            + &lines_beside("cache", &new.cache)
    }
}

/// The pool's vdevs in the form of parsed operands.
fn existing(mos: &Mos) -> Vec<Group<'static>> {
    let vdevs = mos.pool().vdevs();
    let tops = vdevs.tops().filter(|top| top.kind.holds_data());
    let group = |top: &VdevConfig| {
        let kind = match top.kind {
            VdevKind::Mirror | VdevKind::Raidz | VdevKind::Draid => top.kind.clone(),
            _ => VdevKind::Disk,
        };
        let devices = vec![""; top.children.len().max(1)];
        Group { kind, parity: top.parity, draid: top.draid, class: top.class, devices }
    };
    tops.map(group).collect()
}

/// The sector size of the new devices, if it differs from the single size that the pool has.
fn other_sector(mos: &Mos, vdevs: &[NewVdev], ashift: Option<u32>) -> Option<u64> {
    let existing = mos.pool().vdevs();
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

impl Attach {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let what = format!("attach {} to {}", self.new_device, self.device);
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            if let Some(raidz) = raidz(&mos, &self.device) {
                return self.expand(session, engine, &raidz, &what).await;
            }
            let leaf = leaf(mos.pool(), &self.device)?.ok_or_else(|| {
                CliError::Refused(format!("cannot {what}: {}", why_not_to(&mos, &self.device)))
            })?;
            let new = joining(session, &mos, &self.new_device, self.force).await?;
            let resilver = resilver(self.sequential);
            cenote_tasks::attach(engine, leaf, new, resilver).await.map_err(cannot(&what))?;
            scan(session, engine, self.wait).await
        };
        session.change_pool(&self.pool, work).await
    }

    /// The device becomes one more child of a RAID-Z.
    async fn expand(
        &self,
        session: &Session,
        engine: &Engine,
        raidz: &VdevConfig,
        what: &str,
    ) -> Result<Outcome, CliError> {
        if self.sequential {
            let why = "only mirror and dRAID vdevs support sequential reconstruction";
            return Err(CliError::Refused(format!("cannot {what}: {why}")));
        }
        let (mos, alone) = (engine.mos().await?, session.pools().is_none());
        let last = raidz.children.last().map(|child| child.guid);
        // Without a daemon nobody goes on with an expansion but this.
        let is_ours = alone && raidz.raidz_expanding && last == leaf(mos.pool(), &self.new_device)?;
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

/// Goes on with the expansion that is in progress, and shows how far it is; then scrubs.
async fn expand_to_end(session: &Session, engine: &Engine) -> Result<Outcome, CliError> {
    let progress = Progress::bytes(0, false);
    let shown = |now: cenote_tasks::ExpansionProgress| {
        progress.total(now.total_bytes);
        progress.set(now.done_bytes);
    };
    let done = run_expansion(engine, &shown).await;
    progress.finish();
    match done? {
        Expanded::Done => scan(session, engine, false).await,
        Expanded::Suspended => {
            Err(CliError::Stopped("it is suspended: raidz_expand_max_reflow_bytes".into()))
        }
        Expanded::Waits { why } => Err(CliError::Stopped(format!("the expansion waits: {why}"))),
    }
}

impl Detach {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = detach::Detach { pool: self.pool, device: self.device };
        Ok(session.control().run(request).await?.outcome)
    }
}

/// Why a device can't be attached to something that is not a leaf.
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
    let vdevs = mos.pool().vdevs();
    vdevs.tops().find(|top| top.guid == guid && top.kind == VdevKind::Raidz).cloned()
}

/// Opens a device that joins a vdev; one that holds something only by `force`.
pub async fn joining(session: &Session, mos: &Mos, typed: &str, force: bool) -> Result<NewDevice, CliError> {
    refuse_own(mos, &[typed])?;
    let new = devices::open_one(session.runtime(), typed).await?;
    if !force {
        unless_any(&devices::contents(session.runtime(), &[&new]).await)?;
    }
    Ok(new)
}

/// Refuses what `-f` would accept.
fn unless_any(problems: &[String]) -> Result<(), CliError> {
    match problems.is_empty() {
        true => Ok(()),
        false => Err(CliError::Refused(format!(
            "invalid vdev specification\nuse '-f' to override the following errors:\n{}",
            problems.join("\n")
        ))),
    }
}

/// Refuses devices that the pool contains already, which this program itself keeps open.
fn refuse_own(mos: &Mos, typed: &[&str]) -> Result<(), CliError> {
    let own = |typed: &&&str| {
        let path = std::path::absolute(typed).ok();
        mos.pool().found().devices.values().any(|device| path.as_deref() == Some(Path::new(&device.path)))
    };
    match typed.iter().find(own) {
        None => Ok(()),
        Some(device) => Err(CliError::Refused(format!(
            "invalid vdev specification\nthe following errors must be manually repaired:\n\
             {device} is part of active pool '{}'",
            mos.pool().name()
        ))),
    }
}
