//! Command line of `zpool create`.

use std::path::PathBuf;

use cenote_control::zfs::properties::settings::Setting;
use cenote_control::zpool::layout::parse;
use cenote_control::zpool::properties::options::only_ashift;
use cenote_control::zpool::whole::create::Create as Request;
use cenote_shown::zpool::layout;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool create`
#[derive(Debug, Args)]
#[command(after_help = "VDEV is DEVICE, `mirror DEVICE...`, `raidz[1|2|3] DEVICE...` or \
    `draid[1|2|3][:<data>d][:<children>c][:<spares>s] DEVICE...`. A vdev after `log`, `special`, \
    `dedup`, `spare` or `cache` has that purpose. DEVICE is a block device, an existing file of the \
    desired size, or a disk of another machine: nbd://HOST/EXPORT, nbds:// (TLS), nbd+unix://, \
    iscsi://HOST/IQN/LUN, rbd:POOL/IMAGE (Ceph), s3://BUCKET/PREFIX?size=SIZE.\n\n\
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
            session.show(|| layout::created(pool, laid), || layout::json("zpool create", pool, laid))?;
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
