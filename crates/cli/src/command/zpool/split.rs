//! `zpool split`.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_split`), `libzfs_pool.c` (`zpool_vdev_split`), including the
//! wording.

use std::path::PathBuf;

use cenote_control::refusal::why_not;
use cenote_control::zfs::properties::settings::Setting;
use cenote_control::zpool::leaves::meant::leaf;
use cenote_control::zpool::properties::set::setting;
use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{PoolHealth, VdevClass, VdevKind, VdevStatus};
use cenote_tasks::{PoolSetting, SplitOff};
use clap::Args;
use serde_json::json;

use super::DeviceNames;
use super::create::check_name;
use super::tree::{self, Style};
use crate::command::json::version;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json, this_host};

/// `zpool split`
#[derive(Debug, Args)]
#[command(
    after_help = "All top-level vdevs must be mirrors, but for logs. The new pool gets the last device of \
        each mirror, or the one that is named, and all datasets as they are now; logs, caches and spares \
        stay with the old one. It is left exported. If the command is interrupted, the old pool opens, with \
        or without the devices.\n\n\
        Example: cenote zpool split tank attic"
)]
pub struct Split {
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// With -R: load the keys of encrypted datasets
    #[arg(short = 'l', requires = "altroot")]
    pub load_keys: bool,
    /// Show the new pool's layout and change nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// A property of the new pool; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Import the new pool into the daemon, with its mount points below this directory
    #[arg(short = 'R', value_name = "ROOT")]
    pub altroot: Option<PathBuf>,
    /// The pool
    pub pool: String,
    /// Name of the new pool
    pub new_pool: String,
    /// Devices of the new pool, one of each mirror: path, the last component of it, or guid
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
}

impl Split {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        check_name(&self.new_pool).map_err(|why| self.refused(why))?;
        let is_taken = session.held_by_name(&self.new_pool).is_some();
        if is_taken || self.new_pool == self.pool {
            return Err(self.refused("pool already exists"));
        }
        if self.dry_run {
            let mos = session.open_pool_without_asking(&self.pool).await?;
            let leaves = self.leaves(&mos)?;
            return self.show(session, &mos.pool().status(), &leaves).map(|()| Outcome::Done);
        }
        let mut made = None;
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            let leaves = self.leaves(&mos)?;
            let found = engine.pool().found();
            let places = leaves.iter().filter_map(|leaf| found.device(*leaf));
            let places: Vec<PathBuf> = places.map(|device| PathBuf::from(&device.path)).collect();
            let new = SplitOff {
                name: self.new_pool.clone(),
                leaves,
                settings: self.settings(&mos).await?,
                host: this_host(),
                cache: session.cache(),
            };
            cenote_tasks::split(engine, new).await.map_err(|error| match why_not(&error) {
                Some(why) => self.refused(why),
                None => error.into(),
            })?;
            made = Some(places);
            Ok(())
        };
        let outcome = session.change_pool(&self.pool, work).await?;
        match (made, &self.altroot, session.pools()) {
            (Some(places), Some(root), Some(_)) => {
                Ok(outcome.and(self.import(session, places, root.clone()).await?))
            }
            _ => Ok(outcome),
        }
    }

    fn refused(&self, why: impl std::fmt::Display) -> CliError {
        CliError::Refused(format!("Unable to split {}: {why}", self.pool))
    }

    /// The devices of the new pool.
    fn leaves(&self, mos: &Mos) -> Result<Vec<Guid>, CliError> {
        let unfit = || self.refused("Device list must include at most one disk from each mirror");
        let mut named = Vec::new();
        for typed in &self.devices {
            named.push(leaf(mos.pool(), typed)?.ok_or_else(unfit)?);
        }
        let mut leaves = Vec::new();
        for top in mos.pool().vdevs().tops() {
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

    async fn settings(&self, mos: &Mos) -> Result<Vec<PoolSetting>, CliError> {
        let mut all = Vec::new();
        for option in &self.options {
            let Setting { property, value } = Setting::parse(option).map_err(CliError::Usage)?;
            // Where it is mounted is not written.
            if property != "altroot" {
                all.push(setting(mos, &property, &value).await?.map_err(|why| self.refused(why))?);
            }
        }
        Ok(all)
    }

    /// Shows the new pool's layout.
    fn show(&self, session: &Session, health: &PoolHealth, leaves: &[Guid]) -> Result<(), CliError> {
        let style = Style { names: self.names, ..Style::default() };
        let mut rows: Vec<(VdevClass, String)> = Vec::new();
        health.root.walk(&mut |vdev: &VdevStatus| {
            if leaves.contains(&vdev.guid) {
                rows.push((vdev.class, tree::name(vdev, style)));
            }
        });
        if session.json() {
            let devices: Vec<_> =
                rows.iter().map(|(class, name)| json!({"name": name, "class": class.name()})).collect();
            return print_json(&json!({
                "output_version": version("zpool split"),
                "dry_run": true,
                "pool": self.new_pool,
                "devices": devices,
            }));
        }
        let of = |class: VdevClass, heading: &str| {
            let names = rows.iter().filter(|(other, _)| *other == class);
            let lines: String = names.map(|(_, name)| format!("\t  {name}\n")).collect();
            if lines.is_empty() { lines } else { format!("\t{heading}\n{lines}") }
        };
        print(format!(
            "would create '{0}' with the following layout:\n\n{1}{2}{3}",
            self.new_pool,
            of(VdevClass::Normal, &self.new_pool),
            of(VdevClass::Dedup, "dedup"),
            of(VdevClass::Special, "special"),
        ))
    }

    /// The daemon opens the new pool.
    async fn import(
        &self,
        session: &Session,
        places: Vec<PathBuf>,
        root: PathBuf,
    ) -> Result<Outcome, CliError> {
        let found = session.searching(places).find_on_disks(&self.new_pool).await?;
        let pool = session.hold(&found, Some(root)).await?;
        let loaded = if self.load_keys { session.load_keys(&pool, None).await? } else { Outcome::Done };
        Ok(loaded.and(session.mount_all(&pool).await?))
    }
}
