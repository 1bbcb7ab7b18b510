//! `zfs mount`, `unmount`: file systems of pools that the daemon holds.
//!
//! Source: OpenZFS `zfs_main.c` (`share_mount`, `unshare_unmount`), zfs-mount(8).

use std::path::{Path, PathBuf};

use cenote_host::Atime;
use cenote_host::mounts::Temporary;
use clap::Args;
use serde_json::json;

use super::pool_of;
use crate::command::json::document;
use crate::message::say_bare;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// `zfs mount`
#[derive(Debug, Args)]
#[command(
    after_help = "Without operands: lists what is mounted. A daemon (`cenote serve`) has to hold the pool; \
    `cenote mount` does without one.\n\n\
    Example: zfs mount -o ro tank/home"
)]
pub struct Mount {
    /// All file systems of all pools
    #[arg(short = 'a', conflicts_with = "name")]
    pub all: bool,
    /// Options for this mount only: ro, rw, atime, noatime, relatime, strictatime, exec, noexec, suid,
    /// nosuid, dev, nodev, xattr, noxattr; remount: for a file system that is mounted already
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Accepted for compatibility: mounting over files is governed by the property `overlay`
    #[arg(short = 'O')]
    pub overlay: bool,
    /// Everything at and below the file system
    #[arg(short = 'R', requires = "name")]
    pub recursive: bool,
    /// Accepted for compatibility: no progress is shown
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Load missing keys first
    #[arg(short = 'l')]
    pub load_keys: bool,
    /// Accepted for compatibility
    #[arg(short = 'f')]
    pub force: bool,
    /// The file system
    pub name: Option<String>,
}

/// `zfs unmount`
#[derive(Debug, Args)]
#[command(after_help = "Example: zfs unmount tank/home")]
pub struct Unmount {
    /// All file systems of all pools
    #[arg(short = 'a', conflicts_with = "name")]
    pub all: bool,
    /// Accepted for compatibility: as with OpenZFS on Linux, what is in use stays mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// Unload the keys that are not needed any more, too
    #[arg(short = 'u')]
    pub unload_keys: bool,
    /// The file system, or the directory it is mounted on
    #[arg(required_unless_present = "all")]
    pub name: Option<String>,
}

fn pools(session: &Session) -> Result<&cenote_host::pools::Pools, CliError> {
    let why =
        "no daemon runs: start `cenote serve`, or mount one file system with `cenote mount DATASET DIR`";
    session.pools().map(|pools| &**pools).ok_or_else(|| CliError::Refused(why.into()))
}

/// Shows what is mounted.
fn list(session: &Session, pools: &cenote_host::pools::Pools) -> Result<(), CliError> {
    let mounted = pools.all().into_iter().flat_map(|pool| pool.mounts.list());
    if session.json() {
        let entry = |(name, dir): (String, PathBuf)| {
            let entry = json!({"filesystem": name, "mountpoint": dir.display().to_string()});
            (name, entry)
        };
        return print_json(&document("zfs mount", "datasets", mounted.map(entry).collect()));
    }
    print(mounted.map(|(name, dir)| format!("{name:<30}  {}\n", dir.display())).collect::<String>())
}

fn refused(error: impl std::fmt::Display) -> CliError {
    CliError::Refused(error.to_string())
}

impl Mount {
    /// Whether it only lists what is mounted.
    pub fn only_looks(&self) -> bool {
        self.name.is_none() && !self.all
    }

    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let pools = pools(session)?;
        if self.all {
            let mut outcome = Outcome::Done;
            for pool in pools.all() {
                if self.load_keys {
                    outcome = outcome.and(session.load_keys(&pool, None).await?);
                }
                outcome = outcome.and(session.mount_all(&pool).await?);
            }
            return Ok(outcome);
        }
        let Some(name) = &self.name else {
            return list(session, pools).map(|()| Outcome::Done);
        };
        let held = pools.get(pool_of(name));
        let pool =
            held.ok_or_else(|| CliError::NotFound(format!("cannot open '{name}': dataset does not exist")))?;
        if self.load_keys {
            let dataset = pool.engine.mos().await?.dataset(name).await?;
            if let Some(info) = dataset.dir().encryption().await? {
                session.load_key_of(&pool, &info.root).await?;
            }
        }
        if self.recursive {
            return session.mount_below(&pool, Some(name)).await;
        }
        let temporary = self.temporary()?;
        match self.options.iter().any(|option| option == "remount") {
            true => pool.mounts.set_temporary(name, temporary).await.map_err(refused)?,
            false => pool.mounts.mount(name, temporary).await.map_err(refused)?,
        }
        Ok(Outcome::Done)
    }

    fn temporary(&self) -> Result<Temporary, CliError> {
        let mut temporary = Temporary::default();
        for option in &self.options {
            match option.as_str() {
                "ro" | "rw" => temporary.read_only = Some(option == "ro"),
                "atime" | "relatime" => temporary.atime = Some(Atime::Relative),
                "noatime" => temporary.atime = Some(Atime::Off),
                "strictatime" | "norelatime" => temporary.atime = Some(Atime::On),
                "exec" | "noexec" => temporary.exec = Some(option == "exec"),
                "suid" | "nosuid" | "setuid" | "nosetuid" => {
                    temporary.setuid = Some(!option.starts_with("no"))
                }
                "dev" | "nodev" | "devices" | "nodevices" => {
                    temporary.devices = Some(!option.starts_with("no"))
                }
                "xattr" | "noxattr" => temporary.xattrs = Some(option == "xattr"),
                "remount" | "defaults" => {}
                other => return Err(CliError::Usage(format!("-o {other}: not a mount option"))),
            }
        }
        Ok(temporary)
    }
}

impl Unmount {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let pools = pools(session)?;
        if self.all {
            let mut outcome = Outcome::Done;
            for pool in pools.all() {
                if let Err(error) = pool.mounts.unmount_below(None, false).await {
                    say_bare(&error);
                    outcome = Outcome::Failed;
                } else if self.unload_keys {
                    session.unload_keys(&pool, None).await?;
                }
            }
            return Ok(outcome);
        }
        let name = self.name.as_deref().unwrap_or_default();
        let is_meant = |mounted: &str, dir: &Path| match name.starts_with('/') {
            true => dir == Path::new(name),
            false => mounted == name,
        };
        for pool in pools.all() {
            for (mounted, dir) in pool.mounts.list() {
                if is_meant(&mounted, &dir) {
                    pool.mounts.unmount_below(Some(&mounted), false).await.map_err(refused)?;
                    if self.unload_keys {
                        session.unload_keys(&pool, Some(&mounted)).await?;
                    }
                    return Ok(Outcome::Done);
                }
            }
        }
        Err(CliError::Refused(format!("cannot unmount '{name}': not currently mounted")))
    }
}
