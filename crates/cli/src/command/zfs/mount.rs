//! Command lines of `zfs mount`, `unmount`.

use cenote_control::zfs::mounts::mount::{self, AccessTimes, MountOptions, Which};
use cenote_control::zfs::mounts::unmount;
use cenote_shown::zfs::mount as shown;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs mount`
#[derive(Debug, Args)]
#[command(
    after_help = "Without operands, lists mounts. Needs a daemon (`cenote serve`) that holds the pool; \
        `cenote mount` works without one.\n\n\
        Example: cenote zfs mount -o ro tank/home"
)]
pub struct Mount {
    /// All file systems of all pools
    #[arg(short = 'a', conflicts_with = "name")]
    pub all: bool,
    /// Options for this mount only: ro, rw, atime, noatime, relatime, strictatime, exec, noexec, suid,
    /// nosuid, dev, nodev, xattr, noxattr; remount changes those of an existing mount
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Accepted for compatibility: mounting over files is governed by the property `overlay`
    #[arg(short = 'O')]
    pub overlay: bool,
    /// Mount the file system and all its descendants
    #[arg(short = 'R', requires = "name")]
    pub recursive: bool,
    /// Accepted for compatibility: no progress is shown
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Load missing keys first
    #[arg(short = 'l')]
    pub load_keys: bool,
    /// Mount a file system that was received redacted, if `zfs_allow_redacted_dataset_mount` is 1
    #[arg(short = 'f')]
    pub force: bool,
    /// The file system
    pub name: Option<String>,
}

/// `zfs unmount`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs unmount tank/home")]
pub struct Unmount {
    /// All file systems of all pools
    #[arg(short = 'a', conflicts_with = "name")]
    pub all: bool,
    /// Accepted for compatibility: as with OpenZFS on Linux, busy file systems stay mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// Unload keys that are no longer needed, too
    #[arg(short = 'u')]
    pub unload_keys: bool,
    /// The file system, or its mount point
    #[arg(required_unless_present = "all")]
    pub name: Option<String>,
}

impl Mount {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        // Only one file system can have options of its own.
        let has_options = self.name.is_some() && !self.recursive;
        let options = if has_options { self.mount_options()? } else { MountOptions::default() };
        let which = match self.name {
            None if self.all => Some(Which::All),
            None => None,
            Some(name) if self.recursive => Some(Which::Below(name)),
            Some(name) => Some(Which::One(name)),
        };
        let (only_looks, load_keys) = (which.is_none(), self.load_keys);
        let remount = self.options.iter().any(|option| option == "remount");
        let answered = session
            .control()
            .run(mount::Mount { which, load_keys, options, remount, force: self.force })
            .await?;
        if only_looks {
            session.show(|| shown::text(&answered.answer), || shown::json(&answered.answer))?;
        }
        Ok(answered.outcome)
    }

    fn mount_options(&self) -> Result<MountOptions, CliError> {
        let mut options = MountOptions::default();
        for option in &self.options {
            match option.as_str() {
                "ro" | "rw" => options.read_only = Some(option == "ro"),
                "atime" | "relatime" => options.access_times = Some(AccessTimes::Relative),
                "noatime" => options.access_times = Some(AccessTimes::Off),
                "strictatime" | "norelatime" => options.access_times = Some(AccessTimes::On),
                "exec" | "noexec" => options.exec = Some(option == "exec"),
                "suid" | "nosuid" | "setuid" | "nosetuid" => options.setuid = Some(!option.starts_with("no")),
                "dev" | "nodev" | "devices" | "nodevices" => {
                    options.devices = Some(!option.starts_with("no"))
                }
                "xattr" | "noxattr" => options.xattrs = Some(option == "xattr"),
                "remount" | "defaults" => {}
                other => return Err(CliError::Usage(format!("-o {other}: not a mount option"))),
            }
        }
        Ok(options)
    }
}

impl Unmount {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = unmount::Unmount { name: self.name, unload_keys: self.unload_keys };
        Ok(session.control().run(request).await?.outcome)
    }
}
