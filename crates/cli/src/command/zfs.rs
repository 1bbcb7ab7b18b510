//! `cenote zfs`: output and actions of `zfs`, straight from the disks.
//!
//! The verbs are `cenote_control::zfs`; `value` formats properties. Output that `zfs` shows without keys
//! needs none here, either, and no key is asked for (except by `diff`, which reads files).

mod allow;
mod clone;
mod create;
mod destroy;
mod hold;
mod key;
mod mount;
mod program;
mod project;
mod receive;
mod rename;
mod rewrite;
mod rollback;
mod send;
mod set;
mod shown;
mod snapshot;
mod upgrade;
mod wait;

use std::ffi::OsString;

use cenote_control::running::version::OfZfs;
use clap::{Args, Subcommand};

use self::shown::userspace;
use super::form::TableForm;
use super::not_yet;
use super::running::version::Version;
use crate::args::{Deferred, run_typed};
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote zfs` and its verbs.
#[derive(Debug, Subcommand)]
#[command(display_name = "cenote")]
#[command(after_help = "Examples:\n  \
    cenote zfs create -o compression=zstd tank/home\n  \
    cenote zfs snapshot -r tank/home@monday\n  \
    cenote zfs list -t all -o name,used,refer -r tank")]
pub enum Zfs {
    /// Create a file system or volume
    Create(Deferred<create::Create>),
    /// Destroy datasets, snapshots or bookmarks
    Destroy(Deferred<destroy::Destroy>),
    /// Take snapshots, all at the same moment
    #[command(visible_alias = "snap")]
    Snapshot(Deferred<snapshot::Snapshot>),
    /// Return a dataset to the state of a snapshot
    Rollback(Deferred<rollback::Rollback>),
    /// Create clones of snapshots; with -r, of a whole tree
    Clone(Deferred<clone::Clone>),
    /// Make a clone the owner of the snapshots it depends on
    Promote(Deferred<rollback::Promote>),
    /// Rename a dataset or snapshot
    Rename(Deferred<rename::Rename>),
    /// Bookmark a snapshot, to send changes since then even after it is destroyed
    Bookmark(Deferred<hold::Bookmark>),
    /// Bookmark a snapshot with a list of blocks that redacted streams leave out
    Redact(Deferred<hold::Redact>),
    /// Set properties
    Set(Deferred<set::Set>),
    /// Clear properties, so that inherited values apply
    Inherit(Deferred<set::Inherit>),
    /// Delegate permissions to users, or show delegated permissions
    Allow(Deferred<allow::Allow>),
    /// Revoke delegated permissions
    Unallow(Deferred<allow::Unallow>),
    /// Hold snapshots, so that they can't be destroyed
    Hold(Deferred<hold::Hold>),
    /// Remove holds
    Release(Deferred<hold::Release>),
    /// Change the key of an encrypted dataset
    ChangeKey(Deferred<key::ChangeKey>),
    /// Load keys of encrypted datasets into the daemon, or check them
    LoadKey(Deferred<key::LoadKey>),
    /// Discard keys from the daemon's memory
    UnloadKey(Deferred<key::UnloadKey>),
    /// Mount file systems of the daemon's pools, or list mounts
    Mount(Deferred<mount::Mount>),
    /// Unmount file systems
    #[command(visible_alias = "umount")]
    Unmount(Deferred<mount::Unmount>),
    /// List datasets, snapshots, bookmarks and their sizes
    List(Deferred<List>),
    /// Show properties and the source of each value
    Get(Deferred<Get>),
    /// List files that differ between two snapshots, or between a snapshot and now
    Diff(Deferred<Diff>),
    /// Write streams of snapshots to standard output
    Send(Deferred<send::Send>),
    /// Create snapshots from a stream on standard input
    #[command(visible_alias = "recv")]
    Receive(Deferred<receive::Receive>),
    /// List user holds of snapshots
    Holds(Deferred<Holds>),
    /// Show the space and quota of users in a file system
    Userspace(Deferred<userspace::OwnersSpace>),
    /// Show the space and quota of groups
    #[command(after_help = userspace::GROUP_HELP)]
    Groupspace(Deferred<userspace::OwnersSpace>),
    /// Show the space and quota of projects
    Projectspace(Deferred<userspace::ProjectSpace>),
    /// Show, check or set the projects of files in mounted file systems
    Project(Deferred<project::Project>),
    /// Store files again, with the present properties and vdevs
    Rewrite(Deferred<rewrite::Rewrite>),
    /// Run a Lua script that changes many datasets in one transaction group
    Program(Deferred<program::Program>),
    /// Raise the version of file systems, or list older ones
    Upgrade(Deferred<upgrade::Upgrade>),
    /// Wait until removed files are freed
    Wait(Deferred<wait::Wait>),
    /// Show the version of this program
    #[command(after_help = "Example: cenote zfs version -j")]
    Version(Deferred<Version>),
    /// Any other verb
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// The selection of datasets and the output format: shared by `list` and `get`.
#[derive(Debug, Clone, Args)]
pub struct Selection {
    /// How to print it
    #[command(flatten)]
    pub form: TableForm,
    /// Include all descendants
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Include descendants down to this depth
    #[arg(short = 'd', long, value_name = "N")]
    pub depth: Option<u32>,
    /// Types, comma-separated: filesystem, volume, snapshot, bookmark, all
    #[arg(short = 't', value_name = "TYPES")]
    pub types: Option<String>,
}

/// `zfs list`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs list -r -t all -o name,used,creation tank")]
pub struct List {
    /// Datasets and output format
    #[command(flatten)]
    pub selection: Selection,
    /// Columns: any property, comma-separated; `space` for the usual breakdown
    #[arg(short = 'o', value_name = "COLUMNS", default_value = "name,used,available,referenced,mountpoint")]
    pub columns: String,
    /// Sort by this property, ascending; repeatable
    #[arg(short = 's', value_name = "PROPERTY")]
    pub sort: Vec<String>,
    /// Sort by this property, descending; repeatable
    #[arg(short = 'S', value_name = "PROPERTY")]
    pub sort_descending: Vec<String>,
    /// Pools, datasets, snapshots, or paths in mounted file systems [default: all file systems and volumes]
    pub names: Vec<String>,
}

/// `zfs get`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs get -r -s local all tank/home")]
pub struct Get {
    /// Datasets and output format
    #[command(flatten)]
    pub selection: Selection,
    /// Columns among name, property, value, received, source
    #[arg(short = 'o', value_name = "COLUMNS", default_value = "name,property,value,source")]
    pub columns: String,
    /// Only values with these sources: local, default, inherited, temporary, received, none
    #[arg(short = 's', value_name = "SOURCES")]
    pub sources: Option<String>,
    /// Properties, comma-separated, or `all`
    pub properties: String,
    /// Pools, datasets, snapshots, or paths in mounted file systems [default: all file systems and volumes]
    pub names: Vec<String>,
}

/// `zfs diff`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs diff tank/home@monday tank/home@friday")]
pub struct Diff {
    /// Show each file's type
    #[arg(short = 'F')]
    pub classify: bool,
    /// Tabs and no arrows, for scripts
    #[arg(short = 'H')]
    pub script: bool,
    /// Print the time of each change first
    #[arg(short = 't')]
    pub timestamp: bool,
    /// Print names without escapes
    #[arg(short = 'h')]
    pub raw_names: bool,
    /// The earlier snapshot
    pub from: String,
    /// A later snapshot, or the live dataset [default: the dataset of FROM]
    pub to: Option<String>,
}

/// `zfs holds`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs holds -r tank@monday")]
pub struct Holds {
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Print times in seconds since 1970
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Include snapshots of the same name in all descendants
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Snapshots
    #[arg(required = true)]
    pub snapshots: Vec<String>,
}

impl Zfs {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        run_typed! {
            Zfs, self, session;
            Create Destroy Snapshot Rollback Clone Promote Rename Bookmark Redact Set Inherit Allow Unallow
            Hold Release ChangeKey LoadKey UnloadKey Mount Unmount List Get Diff Send Receive Holds
            Projectspace Project Rewrite Program Upgrade Wait;
            Zfs::Userspace(Deferred(owners)) => owners.run(session, userspace::By::User).await,
            Zfs::Groupspace(Deferred(owners)) => owners.run(session, userspace::By::Group).await,
            Zfs::Version(Deferred(version)) => version.run(session, OfZfs {}).await,
            Zfs::Other(words) => Err(not_yet::verb::<Zfs>("zfs", &words)),
        }
    }
}
