//! Command line of `zpool create`, and the layout printed by `-n`.

use std::fmt::Write as _;
use std::path::PathBuf;

use cenote_control::answers::VdevClass;
use cenote_control::zfs::properties::settings::Setting;
use cenote_control::zpool::layout::devices::{Laid, LaidDevice, LaidVdev};
use cenote_control::zpool::layout::parse;
use cenote_control::zpool::properties::options::only_ashift;
use cenote_control::zpool::whole::create::Create as Request;
use clap::Args;
use serde_json::{Value, json};

use crate::command::json::version;
use crate::outcome::{CliError, Outcome};
use crate::render::nice_bytes;
use crate::session::{Session, print, print_json};

/// `zpool create`
#[derive(Debug, Args)]
#[command(after_help = "VDEV is DEVICE, `mirror DEVICE...`, `raidz[1|2|3] DEVICE...` or \
    `draid[1|2|3][:<data>d][:<children>c][:<spares>s] DEVICE...`. A vdev after `log`, `special`, \
    `dedup`, `spare` or `cache` has that purpose. DEVICE is a block device or an existing file of the \
    desired size.\n\n\
    The key of an encrypted root file system (-O encryption=on -O keyformat=passphrase) comes from \
    --key, the file that keylocation names, the terminal or a pipe.\n\n\
    The daemon keeps the new pool imported. Without a daemon, the pool is left exported.\n\n\
    Examples:\n  \
    truncate -s 1G a b c d\n  \
    cenote zpool create -O compression=zstd tank mirror a b mirror c d")]
pub struct Create {
    /// Accept devices with contents, such as another pool or a file system, and vdevs of different redundancy
    #[arg(short = 'f')]
    pub force: bool,
    /// Show the layout and create nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Enable no features except those set with -o
    #[arg(short = 'd', long)]
    pub no_features: bool,
    /// Pool property: ashift, comment, compatibility, feature@NAME, autoexpand, autotrim...; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Property of the root file system; repeatable
    #[arg(short = 'O', value_name = "PROPERTY=VALUE")]
    pub root_options: Vec<String>,
    /// Mount point of the root file system, like -O mountpoint=PATH
    #[arg(short = 'm', value_name = "PATH")]
    pub mountpoint: Option<String>,
    /// In the daemon, mount the file systems below this directory
    #[arg(short = 'R', value_name = "ROOT")]
    pub altroot: Option<String>,
    /// Accepted for compatibility and ignored: a temporary name
    #[arg(short = 't', value_name = "NAME")]
    pub temporary_name: Option<String>,
    /// Name of the new pool
    pub pool: String,
    /// Vdevs: devices, each group after its kind (mirror, raidz, draid) or purpose (log, spare...)
    #[arg(required = true, value_name = "VDEV")]
    pub vdevs: Vec<String>,
}

impl Create {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let answered = session.control().run(self.request()?).await?;
        if self.dry_run {
            let (pool, laid) = (&self.pool, &answered.answer);
            match session.json() {
                true => print_json(&layout_json("zpool create", pool, laid))?,
                false => print(
                    format!("would create '{pool}' with the following layout:\n\n\t{pool}\n")
                        + &layout_lines(&laid.vdevs, 0)
                        + &lines_beside("spares", &laid.spares)
                        + &lines_beside("cache", &laid.cache),
                )?,
            }
        }
        Ok(answered.outcome)
    }

    fn request(&self) -> Result<Request, CliError> {
        let refused = |why: String| CliError::Usage(format!("cannot create '{}': {why}", self.pool));
        let mountpoint = self.mountpoint.iter().map(|path| format!("mountpoint={path}"));
        let root: Vec<String> = self.root_options.iter().cloned().chain(mountpoint).collect();
        Ok(Request {
            pool: self.pool.clone(),
            layout: parse(&self.vdevs).map_err(refused)?,
            properties: Setting::parse_all(&self.options).map_err(refused)?,
            no_features: self.no_features,
            root_properties: Setting::parse_all(&root).map_err(refused)?,
            altroot: self.altroot.as_deref().map(PathBuf::from),
            force: self.force,
            dry_run: self.dry_run,
        })
    }
}

/// The value of `-o ashift=N`; no other property is valid there.
pub(super) fn ashift_option(options: &[String]) -> Result<Option<u32>, String> {
    only_ashift(&Setting::parse_all(options)?)
}

/// The vdevs and devices printed by `-n`, as JSON.
pub(super) fn layout_json(command: &str, pool: &str, laid: &Laid) -> Value {
    let devices = |all: &[LaidDevice]| all.iter().map(|device| json!(device)).collect::<Vec<_>>();
    let vdev = |new: &LaidVdev| {
        json!({"vdev_type": new.kind.name(), "parity": new.parity, "class": new.class.name(),
            "devices": devices(&new.devices)})
    };
    json!({
        "output_version": version(command),
        "dry_run": true,
        "pool": pool,
        "vdevs": laid.vdevs.iter().map(vdev).collect::<Vec<_>>(),
        "spares": devices(&laid.spares),
        "l2cache": devices(&laid.cache),
    })
}

/// Devices outside the vdevs: a heading and one line each.
pub(super) fn lines_beside(heading: &str, devices: &[LaidDevice]) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let line = |new: &LaidDevice| format!("\t  {}\t{}\n", new.path, nice_bytes(new.size_bytes));
    std::iter::once(format!("\t{heading}\n")).chain(devices.iter().map(line)).collect()
}

/// New vdevs, numbered from `first`, one device per line.
pub(super) fn layout_lines(vdevs: &[LaidVdev], first: usize) -> String {
    let (mut out, mut class) = (String::new(), VdevClass::Normal);
    for (index, vdev) in (first..).zip(vdevs) {
        if vdev.class != class {
            class = vdev.class;
            let _ = writeln!(out, "\t{}", class.name());
        }
        let is_single = vdev.devices.len() == 1 && vdev.parity == 0;
        if !is_single {
            let _ = writeln!(out, "\t  {}-{index}", vdev.name);
        }
        for new in &vdev.devices {
            let indent = if is_single { "" } else { "  " };
            let _ = writeln!(out, "\t  {indent}{}\t{}", new.path, nice_bytes(new.size_bytes));
        }
    }
    out
}
