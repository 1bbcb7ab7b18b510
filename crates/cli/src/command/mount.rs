//! `cenote mount`: mounts a dataset or snapshot on this machine while the command runs.
//!
//! Meanwhile this process holds the pool. Unmounting, by Ctrl-C or by `umount`, leaves the pool exported.

use std::path::PathBuf;

use cenote_daemon::room_for_pools;
use cenote_dataset::Dataset;
use cenote_engine::Engine;
use cenote_fuse::{MountOptions, SessionOptions};
use cenote_host::mounts::SUBTYPE;
use cenote_host::pools::OpenPool;
use cenote_host::{Atime, Files, FilesOptions, Mount};
use cenote_pool::FoundPool;
use clap::Args;

use crate::command::guard;
use crate::command::serve::PROCESS;
use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, interrupted, pool_of};

/// `cenote mount`
#[derive(Debug, Args)]
#[command(
    after_help = "Runs until the file system is unmounted, by Ctrl-C or `umount DIR` (`fusermount3 -u \
    DIR`). Snapshots are in DIR/.zfs/snapshot.\n\n\
    Example: cenote mount tank/home@monday /mnt"
)]
pub struct MountCommand {
    /// Options, comma-separated: ro, rw, atime, noatime, relatime, exec, noexec, suid, nosuid, dev, nodev,
    /// xattr, noxattr, allow_other, snapdir
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Number of threads that read requests from /dev/fuse
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    pub readers: u16,
    /// Read requests from /dev/fuse even if the kernel offers io_uring
    #[arg(long)]
    pub no_fuse_io_uring: bool,
    /// Mount without a loop device for each file system; `sync` then does not reach the pool
    #[arg(long)]
    pub no_loop: bool,
    /// Let the kernel delay writes and combine small ones; costs promises, see docs/mount.md
    #[arg(long)]
    pub writeback: bool,
    /// POOL/DATASET[@SNAPSHOT]
    #[arg(value_name = "DATASET[@SNAPSHOT]")]
    pub dataset: String,
    /// An empty directory
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// The mount options that follow from properties and `-o`.
struct Wanted {
    mount: MountOptions,
    files: FilesOptions,
}

impl MountCommand {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        self.check_options()?;
        let refused = |error: cenote_fuse::MountError| CliError::Refused(error.to_string());
        let dir = std::path::absolute(&self.dir).map_err(CliError::io(self.dir.display().to_string()))?;
        cenote_fuse::mount::check(&dir, SUBTYPE).map_err(refused)?;
        guard::start();
        let pool = pool_of(&self.dataset);
        let is_look = self.dataset.contains('@') || self.last(&["ro", "rw"]) == Some("ro");
        if !is_look {
            let found = session.find_pool(pool).await?;
            return session
                .change_unused(&found, async |engine| self.serve_live(session, &found, engine).await)
                .await;
        }
        let mos = session.open_pool(pool).await?;
        let dataset = mos.dataset(&self.dataset).await?;
        let wanted = self.wanted(&dataset, true).await?;
        let fs = session.filesystem(&dataset).await?;
        let files = Files::fixed(session.runtime(), &mos, &self.dataset, fs, wanted.files);
        self.serve(session, files, &wanted.mount).await?;
        Ok(Outcome::Done)
    }

    fn check_options(&self) -> Result<(), CliError> {
        const KNOWN: [&str; 17] = [
            "ro",
            "rw",
            "atime",
            "noatime",
            "relatime",
            "norelatime",
            "exec",
            "noexec",
            "suid",
            "nosuid",
            "dev",
            "nodev",
            "xattr",
            "noxattr",
            "allow_other",
            "snapdir",
            "strictatime",
        ];
        if let Some(odd) = self.options.iter().find(|option| !KNOWN.contains(&option.as_str())) {
            return Err(CliError::Usage(format!("-o {odd}: use {}", KNOWN.join(", "))));
        }
        Ok(())
    }

    /// While mounted, the pool is run as in a daemon: with a cache as large as this machine allows, and with
    /// watched devices.
    async fn serve_live(
        &self,
        session: &Session,
        found: &FoundPool,
        engine: &Engine,
    ) -> Result<Outcome, CliError> {
        let dataset = engine.mos().await?.dataset(&self.dataset).await?;
        let is_read_only = number(&dataset, "readonly").await? == 1 && self.last(&["ro", "rw"]) != Some("rw");
        let wanted = self.wanted(&dataset, is_read_only).await?;
        // Nothing is recorded for a next start.
        let (pools, _memory) = room_for_pools(
            session,
            PROCESS,
            session.typed_cache_bytes(),
            self.session_options(),
            PathBuf::new(),
        );
        let pool = OpenPool::new(found.name(), engine.clone(), found.places(), None, &pools);
        let pool = pools.insert(pool);
        let files = Files::open(engine, &self.dataset, wanted.files).await?;
        let served = self.serve(session, files, &wanted.mount).await;
        pool.rest().await;
        served.map(|()| Outcome::Done)
    }

    fn session_options(&self) -> SessionOptions {
        SessionOptions {
            readers: self.readers.into(),
            over_io_uring: !self.no_fuse_io_uring,
            hears_sync: !self.no_loop,
            writeback_cache: self.writeback,
            ..SessionOptions::default()
        }
    }

    async fn serve(&self, session: &Session, files: Files, mount: &MountOptions) -> Result<(), CliError> {
        let options = self.session_options();
        let dir = std::path::absolute(&self.dir).map_err(CliError::io(self.dir.display().to_string()))?;
        let refused = |error: cenote_fuse::MountError| CliError::Refused(error.to_string());
        let mount = Mount::new(session.runtime(), files, &dir, mount, options).await.map_err(refused)?;
        say!("{} is mounted on {}; Ctrl-C unmounts it", self.dataset, dir.display());
        let mounted = mount.mounted();
        let mut ended = std::pin::pin!(mount.ended());
        loop {
            tokio::select! {
                biased;
                () = interrupted() => match mounted.unmount(false) {
                    Ok(()) => {}
                    Err(error) => say!("{error}; stop the programs that use it, then interrupt again"),
                },
                () = &mut ended => return Ok(()),
            }
        }
    }

    async fn wanted(&self, dataset: &Dataset, read_only: bool) -> Result<Wanted, CliError> {
        let is_open = dataset.mos().pool().tree().found().others_may_write();
        let is_empty = || self.dir.read_dir().is_ok_and(|mut names| names.next().is_none());
        if number(dataset, "overlay").await? == 0 && !is_empty() {
            return Err(CliError::Refused(format!("{}: not empty, and overlay=off", self.dir.display())));
        }
        let mut files = FilesOptions::of(dataset).await?;
        match self.last(&["atime", "noatime", "relatime", "norelatime", "strictatime"]) {
            Some("noatime") => files.atime = Atime::Off,
            Some("relatime" | "atime") => files.atime = Atime::Relative,
            Some(_) => files.atime = Atime::On,
            None => {}
        }
        files.lists_snapdir |= self.last(&["snapdir"]).is_some();
        files.user_xattrs = match self.last(&["xattr", "noxattr"]) {
            Some(said) => said == "xattr",
            None => files.user_xattrs,
        };
        let is_off = async |yes: &'static str, no: &'static str, property: &str| -> Result<bool, CliError> {
            match self.last(&[yes, no]) {
                Some(said) => Ok(said == no),
                None if is_open && property != "exec" => Ok(true),
                None => Ok(number(dataset, property).await? == 0),
            }
        };
        let mount = MountOptions {
            source: self.dataset.clone(),
            subtype: SUBTYPE,
            read_only,
            no_exec: is_off("exec", "noexec", "exec").await?,
            no_suid: is_off("suid", "nosuid", "setuid").await?,
            no_dev: is_off("dev", "nodev", "devices").await?,
            allow_other: self.last(&["allow_other"]).is_some(),
            ..MountOptions::default()
        };
        Ok(Wanted { mount, files })
    }

    /// The last given of several conflicting options.
    fn last(&self, options: &[&'static str]) -> Option<&'static str> {
        let given = self.options.iter().rev().find(|option| options.contains(&option.as_str()))?;
        options.iter().find(|option| *option == given).copied()
    }
}

async fn number(dataset: &Dataset, property: &str) -> Result<u64, CliError> {
    Ok(dataset.property(property).await?.and_then(|property| property.number()).unwrap_or(0))
}
