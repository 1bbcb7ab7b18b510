//! `zpool create`: a new pool on devices or files.
//!
//! The pool is left exported, since nothing keeps it imported. Its root file system is created by the same
//! code as every other, so that the kernel can mount it.

pub(super) mod devices;
mod draid;
pub(super) mod layout;
pub(super) mod replication;

use std::fmt::Write as _;
use std::path::PathBuf;

use cenote_control::zfs::properties::settings::{self, Setting};
use cenote_control::zfs::tree::fill;
use cenote_control::zpool::properties::options::PoolProperties;
use cenote_format::units::Txg;
use cenote_fs::write::NewFilesystem;
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{PoolState, VdevClass};
use cenote_tasks::NewPool;
use clap::Args;
use serde_json::{Value, json};

use crate::command::json::version;
use crate::outcome::{CliError, Outcome};
use crate::render::nice_bytes;
use crate::session::{Session, check_kernel, print, print_json, this_host};

/// The txg that creates a pool, `TXG_INITIAL`.
const FIRST_TXG: Txg = Txg(4);
/// `ZFS_MAX_DATASET_NAME_LEN` less `/$ORIGIN@$ORIGIN`.
const MOST_NAME_BYTES: usize = 240;

/// `zpool create`
#[derive(Debug, Args)]
#[command(after_help = "VDEV is DEVICE, `mirror DEVICE...`, `raidz[1|2|3] DEVICE...`, or \
        `draid[1|2|3][:<data>d][:<children>c][:<spares>s] DEVICE...`; vdevs after `log`, `special`, \
        `dedup`, `spare` or `cache` have that purpose.\n\n\
        The key of an encrypted root file system (-O encryption=on -O keyformat=passphrase) comes from \
        --key, the file that keylocation names, the terminal or a pipe.\n\n\
        DEVICE is a block device or an existing file of the desired size. The pool is left exported.\n\n\
        Example: truncate -s 1G a b c; cenote zpool create -O compression=zstd tank raidz a b c")]
pub struct Create {
    /// Accept devices that hold something (another pool, a file system), and vdevs with different redundancy
    #[arg(short = 'f')]
    pub force: bool,
    /// Show the layout and create nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Enable only the named features
    #[arg(short = 'd', long)]
    pub no_features: bool,
    /// Pool property: ashift, comment, compatibility, feature@NAME, autoexpand, autotrim...; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Property of the root file system; repeatable
    #[arg(short = 'O', value_name = "PROPERTY=VALUE")]
    pub root_options: Vec<String>,
    /// Mount point of the root file system for whoever imports the pool; like -O mountpoint=PATH
    #[arg(short = 'm', value_name = "PATH")]
    pub mountpoint: Option<String>,
    /// Accepted for compatibility: nothing is ever mounted
    #[arg(short = 'R', value_name = "ROOT")]
    pub altroot: Option<String>,
    /// Accepted for compatibility: a temporary name for an imported pool
    #[arg(short = 't', value_name = "NAME")]
    pub temporary_name: Option<String>,
    /// Name of the new pool
    pub pool: String,
    /// Its vdevs
    #[arg(required = true, value_name = "VDEV")]
    pub vdevs: Vec<String>,
}

impl Create {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let refused = |why: String| CliError::Usage(format!("cannot create '{}': {why}", self.pool));
        check_name(&self.pool).map_err(|why| refused(why.into()))?;
        let properties = PoolProperties::parse(&self.options, self.no_features).map_err(refused)?;
        let mountpoint = self.mountpoint.iter().map(|path| format!("mountpoint={path}"));
        let root_options: Vec<String> = self.root_options.iter().cloned().chain(mountpoint).collect();
        let root = Setting::parse_all(&root_options).and_then(|root| settings::read_all(&root, None));
        let mut root = root.map_err(refused)?;
        let filesystem = settings::filesystem(&mut root, NewFilesystem::default()).map_err(refused)?;
        let layout::Layout { groups, spares, cache } = layout::parse(&self.vdevs).map_err(refused)?;
        layout::require_data(&groups).map_err(|why| refused(why.into()))?;
        let has = |name: &str| properties.features.iter().any(|feature| feature.name == name);
        check_features(&groups, has).map_err(|why| refused(why.into()))?;
        check_kernel(&self.pool)?;
        let vdevs = devices::open(session.runtime(), &groups).await?;
        let spares = devices::open_all(session.runtime(), &spares).await?;
        let cache = devices::open_all(session.runtime(), &cache).await?;
        if !self.force {
            let in_vdevs = vdevs.iter().flat_map(|vdev| &vdev.devices);
            let all: Vec<&NewDevice> = in_vdevs.chain(&spares).chain(&cache).collect();
            let mut problems = devices::in_the_way(session.runtime(), &self.pool, &all).await;
            problems.extend(replication::mismatch(&[], &groups, &devices::sizes(&vdevs)));
            if !problems.is_empty() {
                return Err(refused(format!("use '-f' to override:\n  {}", problems.join("\n  "))));
            }
        }
        let paths = vdevs.iter().flat_map(|vdev| &vdev.devices).chain(&spares).chain(&cache);
        let paths: Vec<PathBuf> = paths.map(|new| PathBuf::from(&new.path)).collect();
        let host = this_host();
        let name = (host.id, host.name.as_str());
        let mut plan = plan(session.runtime(), &self.pool, &vdevs, properties.ashift, name, FIRST_TXG)?;
        if self.dry_run {
            match session.json() {
                true => print_json(&layout_json("zpool create", &self.pool, &vdevs, &spares, &cache))?,
                false => print(
                    drawing(&self.pool, &groups, &vdevs)
                        + &lines_beside("spares", &spares)
                        + &lines_beside("cache", &cache),
                )?,
            }
            return Ok(Outcome::Done);
        }
        let projects = has("project_quota");
        plan.config.comment = properties.comment;
        plan.config.compatibility = properties.compatibility;
        let mut numbers = properties.numbers;
        numbers.extend(properties.ashift.map(|ashift| ("ashift", ashift.into())));
        let fill = fill::filesystem(session, filesystem, projects, settings::take_quotas(&mut root));
        let new = NewPool {
            plan,
            features: properties.features,
            properties: numbers,
            root_properties: root,
            keys: session.keys(),
            cache: session.cache(),
        };
        let engine = cenote_tasks::create_pool(session.runtime(), new, fill).await?;
        if !spares.is_empty() {
            cenote_tasks::add_spares(&engine, spares).await?;
        }
        if !cache.is_empty() {
            cenote_tasks::add_cache(&engine, cache).await?;
        }
        session.note_command(&engine);
        engine.set_state(PoolState::Exported, host).await?;
        if session.pools().is_none() {
            return Ok(Outcome::Done);
        }
        // Their locks go with them.
        let keys = engine.keys().known().await;
        drop((engine, vdevs));
        let found = session.searching(paths).find_on_disks(&self.pool).await?;
        let pool = session.hold(&found, self.altroot.as_deref().map(PathBuf::from)).await?;
        if let Some(pools) = session.pools() {
            pool.post(&pools.events, "sysevent.fs.zfs.pool_create");
        }
        for (root, key) in keys {
            pool.engine.keys().learn(root, key).await;
        }
        session.mount_all(&pool).await
    }
}

/// OpenZFS's rules for names of new pools (`zpool_name_valid`).
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    let is_reserved = ["mirror", "raidz", "draid", "spare"].iter().any(|word| name.starts_with(word));
    if is_reserved || name == "log" {
        return Err("name is reserved");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err("name must begin with a letter");
    }
    if name.len() >= MOST_NAME_BYTES {
        return Err("name is too long");
    }
    match name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.: ".contains(c)) {
        true => Ok(()),
        false => Err("names may contain letters, digits, '-', '_', '.', ':' and blanks only"),
    }
}

/// The layout as printed by `-n`.
fn drawing(pool: &str, groups: &[layout::Group<'_>], vdevs: &[NewVdev]) -> String {
    let heading = format!("would create '{pool}' with the following layout:\n\n\t{pool}\n");
    heading + &layout_lines(groups, vdevs, 0)
}

/// The vdevs and devices printed by `-n`, as JSON.
pub(super) fn layout_json(
    command: &str,
    pool: &str,
    vdevs: &[NewVdev],
    spares: &[NewDevice],
    cache: &[NewDevice],
) -> Value {
    let device = |new: &NewDevice| json!({"path": new.path, "size_bytes": new.device.size_bytes()});
    let devices = |all: &[NewDevice]| all.iter().map(device).collect::<Vec<_>>();
    let vdev = |new: &NewVdev| {
        json!({"vdev_type": new.kind.name(), "parity": new.parity, "class": new.class.name(),
            "devices": devices(&new.devices)})
    };
    json!({
        "output_version": version(command),
        "dry_run": true,
        "pool": pool,
        "vdevs": vdevs.iter().map(vdev).collect::<Vec<_>>(),
        "spares": devices(spares),
        "l2cache": devices(cache),
    })
}

/// Devices outside the vdevs: a heading and one line each.
pub(super) fn lines_beside(heading: &str, devices: &[NewDevice]) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let line = |new: &NewDevice| format!("\t  {}\t{}\n", new.path, nice_bytes(new.device.size_bytes()));
    std::iter::once(format!("\t{heading}\n")).chain(devices.iter().map(line)).collect()
}

/// Some kinds of vdevs require features.
pub(super) fn check_features(
    groups: &[layout::Group<'_>],
    has: impl Fn(&str) -> bool,
) -> Result<(), &'static str> {
    if groups.iter().any(layout::Group::needs_classes) && !has("allocation_classes") {
        return Err("special and dedup vdevs need feature@allocation_classes");
    }
    match groups.iter().any(|group| group.draid.is_some()) && !has("draid") {
        true => Err("draid vdevs need feature@draid"),
        false => Ok(()),
    }
}

/// New vdevs, numbered from `first`, one device per line.
pub(super) fn layout_lines(groups: &[layout::Group<'_>], vdevs: &[NewVdev], first: usize) -> String {
    let (mut out, mut class) = (String::new(), VdevClass::Normal);
    for (index, (group, vdev)) in (first..).zip(groups.iter().zip(vdevs)) {
        if group.class != class {
            class = group.class;
            let _ = writeln!(out, "\t{}", class.name());
        }
        let is_single = vdev.devices.len() == 1 && vdev.parity == 0;
        if !is_single {
            let _ = writeln!(out, "\t  {}-{index}", group.name());
        }
        for new in &vdev.devices {
            let indent = if is_single { "" } else { "  " };
            let _ = writeln!(out, "\t  {indent}{}\t{}", new.path, nice_bytes(new.device.size_bytes()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules() {
        for fine in ["tank", "a", "A.b-c_d:e f", "logs", "my-mirror"] {
            assert_eq!(check_name(fine), Ok(()), "{fine}");
        }
        let long = "x".repeat(240);
        for wrong in [
            "", "1a", "mirror", "mirrors", "raidz2x", "draid", "spares", "log", "a/b", "a@b", "\u{e9}", "c%",
            &long,
        ] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }
}
