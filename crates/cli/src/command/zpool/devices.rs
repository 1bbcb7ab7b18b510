//! Command lines of `zpool add`, `attach`, `detach`.

use std::fmt::Write as _;

use cenote_control::zpool::joining::add::{Accept, Add as Request, Added};
use cenote_control::zpool::joining::attach;
use cenote_control::zpool::layout;
use cenote_control::zpool::leaves::detach;
use clap::Args;

use super::DeviceNames;
use super::create::{ashift_option, layout_json, layout_lines, lines_beside};
use super::tree::{self, Style};
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

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

impl Add {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Request {
            pool: self.pool.clone(),
            layout: layout::parse(&self.vdevs).map_err(CliError::Usage)?,
            ashift: ashift_option(&self.options)
                .map_err(|why| CliError::Refused(format!("cannot add to '{}': {why}", self.pool)))?,
            accept: Accept {
                in_use: self.force || self.allow_in_use,
                replication_mismatch: self.force || self.allow_replication_mismatch,
                ashift_mismatch: self.force || self.allow_ashift_mismatch,
            },
            dry_run: self.dry_run,
        };
        let answered = session.control().run(request).await?;
        match (self.dry_run, session.json()) {
            (false, _) => {}
            (true, true) => print_json(&layout_json("zpool add", &self.pool, &answered.answer.laid))?,
            (true, false) => print(self.drawing(&answered.answer))?,
        }
        Ok(answered.outcome)
    }

    fn drawing(&self, Added { before, laid }: &Added) -> String {
        let mut out = format!("would update '{0}' to the following configuration:\n\n\t{0}\n", self.pool);
        let style = Style { names: self.names, ..Style::default() };
        for top in &before.root.children {
            let _ = writeln!(out, "\t  {}", tree::name(top, style));
            for leaf in &top.children {
                let _ = writeln!(out, "\t    {}", tree::name(leaf, style));
            }
        }
        out + &layout_lines(&laid.vdevs, before.root.children.len())
            + &lines_beside("spares", &laid.spares)
            + &lines_beside("cache", &laid.cache)
    }
}

impl Attach {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Attach { force, sequential, wait, pool, device, new_device, .. } = self;
        let request = attach::Attach { pool, device, new_device, force, sequential, wait };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Detach {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = detach::Detach { pool: self.pool, device: self.device };
        Ok(session.control().run(request).await?.outcome)
    }
}
