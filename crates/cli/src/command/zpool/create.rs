//! `zpool create`: a new pool on devices or files.
//!
//! The pool is left exported: nothing keeps it imported. Its root file system is made by the same code that makes all others, so that
//! the kernel mounts it.

pub(super) mod compatibility;
pub(super) mod devices;
mod draid;
pub(super) mod layout;
pub(super) mod properties;

use std::fmt::Write as _;

use cenote_dataset::Txg;
use cenote_dataset::engine::{Engine, NewPool};
use cenote_fs::write::NewFilesystem;
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{PoolState, VdevClass};
use clap::Args;

use crate::command::zfs::{fill, settings};
use crate::outcome::{CliError, Outcome};
use crate::render::nice_bytes;
use crate::session::{Session, check_kernel, print, this_host};
use properties::PoolProperties;

/// The group that makes a pool, `TXG_INITIAL`.
const FIRST_TXG: Txg = Txg(4);
/// `ZFS_MAX_DATASET_NAME_LEN` less `/$ORIGIN@$ORIGIN`.
const MOST_NAME_BYTES: usize = 240;

/// `zpool create`
#[derive(Debug, Args)]
#[command(
    after_help = "VDEV is DEVICE, `mirror DEVICE...`, `raidz[1|2|3] DEVICE...`, or `draid[1|2|3][:<data>d][:<children>c][:<spares>s] DEVICE...`; after \
    `log`, `special`, `dedup`, `spare` or `cache` they are for that.\n\
    The key of an encrypted root file system (-O encryption=on -O keyformat=passphrase) is that of --key, in the file that keylocation names, \
    typed, or comes through a pipe.\n\
    DEVICE is a block device or a file that has its size already. The pool is left exported.\n\n\
    Example: truncate -s 1G a b c; cenote zpool create -O compression=zstd tank raidz a b c"
)]
pub struct Create {
    /// Take devices that belong to another pool, and vdevs that protect differently
    #[arg(short = 'f')]
    pub force: bool,
    /// Show the layout and do nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Enable no features but those named (`-d`)
    #[arg(long)]
    pub no_features: bool,
    /// Pool property: ashift, comment, compatibility, feature@NAME, autoexpand, autotrim...; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Property of the root file system; repeatable
    #[arg(short = 'O', value_name = "PROPERTY=VALUE")]
    pub root_options: Vec<String>,
    /// Where the root file system is mounted by whoever imports the pool: as -O mountpoint=PATH
    #[arg(short = 'm', value_name = "PATH")]
    pub mountpoint: Option<String>,
    /// Accepted for habit: nothing is ever mounted
    #[arg(short = 'R', value_name = "ROOT")]
    pub altroot: Option<String>,
    /// Accepted for habit: a name for as long as the pool is imported
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
        let mut root = settings::parse(&root_options, None).map_err(refused)?;
        let filesystem = settings::filesystem(&mut root, NewFilesystem::default()).map_err(refused)?;
        let layout::Layout { groups, spares, cache } = layout::parse(&self.vdevs).map_err(refused)?;
        layout::require_data(&groups).map_err(|why| refused(why.into()))?;
        let has = |name: &str| properties.features.iter().any(|feature| feature.name == name);
        check_features(&groups, has).map_err(|why| refused(why.into()))?;
        check_kernel(&self.pool)?;
        let vdevs = devices::open(session.runtime(), &groups)?;
        let spares = devices::open_all(session.runtime(), &spares)?;
        let cache = devices::open_all(session.runtime(), &cache)?;
        if !self.force {
            let in_vdevs = vdevs.iter().flat_map(|vdev| &vdev.devices);
            let all: Vec<&NewDevice> = in_vdevs.chain(&spares).chain(&cache).collect();
            let mut problems = devices::in_the_way(session.runtime(), &self.pool, &all).await;
            problems.extend(layout::mismatch(&groups, &devices::sizes(&vdevs)));
            if !problems.is_empty() {
                return Err(refused(format!("use '-f' to override:\n  {}", problems.join("\n  "))));
            }
        }
        let host = this_host();
        let name = (host.id, host.name.as_str());
        let mut plan = plan(session.runtime(), &self.pool, &vdevs, properties.ashift, name, FIRST_TXG)?;
        if self.dry_run {
            print(
                drawing(&self.pool, &groups, &vdevs)
                    + &lines_beside("spares", &spares)
                    + &lines_beside("cache", &cache),
            )?;
            return Ok(Outcome::Done);
        }
        let projects = has("project_quota");
        plan.config.comment = properties.comment;
        plan.config.compatibility = properties.compatibility;
        let mut numbers = properties.numbers;
        numbers.extend(properties.ashift.map(|ashift| ("ashift", ashift.into())));
        let new = NewPool {
            plan,
            features: properties.features,
            properties: numbers,
            root_properties: root,
            keys: session.keys(),
            cache_bytes: session.cache_bytes(),
        };
        let fill = fill::filesystem(session, filesystem, projects);
        let engine = Engine::create(session.runtime(), new, fill).await?;
        if !spares.is_empty() {
            engine.add_spares(spares).await?;
        }
        if !cache.is_empty() {
            engine.add_cache(cache).await?;
        }
        session.note_command(&engine);
        engine.set_state(PoolState::Exported, host).await?;
        Ok(Outcome::Done)
    }
}

/// Rules of OpenZFS for names of new pools (`zpool_name_valid`).
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
        false => Err("names have letters, digits, '-', '_', '.', ':' and blanks only"),
    }
}

/// The layout as `-n` shows it.
fn drawing(pool: &str, groups: &[layout::Group<'_>], vdevs: &[NewVdev]) -> String {
    let heading = format!("would create '{pool}' with the following layout:\n\n\t{pool}\n");
    heading + &layout_lines(groups, vdevs, 0)
}

/// Devices beside the vdevs under a heading, a line each.
pub(super) fn lines_beside(heading: &str, devices: &[NewDevice]) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let line = |new: &NewDevice| format!("\t  {}\t{}\n", new.path, nice_bytes(new.device.size_bytes()));
    std::iter::once(format!("\t{heading}\n")).chain(devices.iter().map(line)).collect()
}

/// Vdevs of some kinds came with features.
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

/// New vdevs, of which the first gets the number `first`, a device a line.
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
