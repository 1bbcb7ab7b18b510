//! `cenote zfs`: what `zfs` shows and does, with the disks alone.
//!
//! Which datasets a command is about is found in `select`, what a property looks like in `value`; the verbs put these together.
//! What `zfs` shows without keys is shown without keys, and none is asked for (but for `diff`, which reads files).

mod clone;
mod create;
mod destroy;
mod diff;
pub(super) mod fill;
mod get;
mod hold;
mod holds;
mod key;
mod list;
mod owner;
pub(super) mod refusal;
mod rename;
mod rollback;
mod select;
mod set;
pub(super) mod settings;
mod snapshot;
mod userspace;
mod value;
mod volume_size;

use cenote_fs::SpaceBy;
use clap::{Args, Subcommand};

use super::form::TableForm;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, pool_of};

/// `cenote zfs` and its verbs.
#[derive(Debug, Subcommand)]
pub enum Zfs {
    /// Make a file system or volume
    Create(create::Create),
    /// Destroy datasets, snapshots or bookmarks
    Destroy(destroy::Destroy),
    /// Take snapshots, all at one moment
    #[command(visible_alias = "snap")]
    Snapshot(snapshot::Snapshot),
    /// Bring a dataset back to a snapshot
    Rollback(rollback::Rollback),
    /// Make datasets that begin as snapshots are, a whole tree with -r
    Clone(clone::Clone),
    /// Make a clone the owner of the snapshots that it depends on
    Promote(rollback::Promote),
    /// Give a dataset or snapshot another name
    Rename(rename::Rename),
    /// Note where a snapshot was, so that it can be destroyed
    Bookmark(hold::Bookmark),
    /// Set properties
    Set(set::Set),
    /// Remove settings: what is above is in force again
    Inherit(set::Inherit),
    /// Keep snapshots from being destroyed
    Hold(hold::Hold),
    /// Remove holds
    Release(hold::Release),
    /// Give an encrypted dataset another key
    ChangeKey(key::ChangeKey),
    /// Try keys of encrypted datasets
    LoadKey(key::LoadKey),
    /// Datasets, snapshots, bookmarks and their sizes
    List(List),
    /// Properties, with where each value comes from
    Get(Get),
    /// Files that differ between two snapshots, or a snapshot and now
    Diff(Diff),
    /// User holds of snapshots
    Holds(Holds),
    /// What users have and may have in a file system
    Userspace(userspace::OwnersSpace),
    /// What groups have and may have
    Groupspace(userspace::OwnersSpace),
    /// What projects have and may have
    Projectspace(userspace::OwnersSpace),
}

/// Which datasets, and how to print them: shared by `list` and `get`.
#[derive(Debug, Clone, Args)]
pub struct Selection {
    /// How to print it
    #[command(flatten)]
    pub form: TableForm,
    /// Everything below too
    #[arg(short = 'r')]
    pub recursive: bool,
    /// This many levels below (`-d N`, with N no path, means the same)
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// Types, comma-separated: filesystem, volume, snapshot, bookmark, all
    #[arg(short = 't', value_name = "TYPES")]
    pub types: Option<String>,
}

/// `zfs list`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs list -r -t all -o name,used,creation tank")]
pub struct List {
    /// Which and how
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
    /// Pools, datasets, snapshots [default: all file systems and volumes]
    pub names: Vec<String>,
}

/// `zfs get`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs get -r -s local all tank/home")]
pub struct Get {
    /// Which and how
    #[command(flatten)]
    pub selection: Selection,
    /// Columns among name, property, value, received, source
    #[arg(short = 'o', value_name = "COLUMNS", default_value = "name,property,value,source")]
    pub columns: String,
    /// Only values from these sources: local, default, inherited, temporary, received, none
    #[arg(short = 's', value_name = "SOURCES")]
    pub sources: Option<String>,
    /// Properties, comma-separated, or `all`
    pub properties: String,
    /// Pools, datasets, snapshots [default: all file systems and volumes]
    pub names: Vec<String>,
}

/// `zfs diff`
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "Example: cenote zfs diff tank/home@monday tank/home@friday")]
pub struct Diff {
    /// Show each file's type
    #[arg(short = 'F')]
    pub classify: bool,
    /// Tabs and no arrows, for scripts
    #[arg(short = 'H')]
    pub script: bool,
    /// The common option, without its short name
    #[arg(long)]
    pub rewind: bool,
    /// The time of each change first
    #[arg(short = 't')]
    pub timestamp: bool,
    /// Names as they are, without escapes
    #[arg(short = 'h')]
    pub raw_names: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
    /// The earlier snapshot
    pub from: String,
    /// A later snapshot, or the dataset as it is [default: the dataset of FROM]
    pub to: Option<String>,
}

/// `zfs holds`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs holds -r tank@monday")]
pub struct Holds {
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Times in seconds since 1970
    #[arg(short = 'p')]
    pub parsable: bool,
    /// The same snapshot of every dataset below too
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Snapshots
    #[arg(required = true)]
    pub snapshots: Vec<String>,
}

impl Zfs {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        match self {
            Zfs::Create(create) => create.run(session).await,
            Zfs::Destroy(destroy) => destroy.run(session).await,
            Zfs::Snapshot(snapshot) => snapshot.run(session).await,
            Zfs::Rollback(rollback) => rollback.run(session).await,
            Zfs::Clone(clone) => clone.run(session).await,
            Zfs::Promote(promote) => promote.run(session).await,
            Zfs::Rename(rename) => rename.run(session).await,
            Zfs::Bookmark(bookmark) => bookmark.run(session).await,
            Zfs::Set(set) => set.run(session).await,
            Zfs::Inherit(inherit) => inherit.run(session).await,
            Zfs::Hold(hold) => hold.run(session).await,
            Zfs::Release(release) => release.run(session).await,
            Zfs::ChangeKey(change) => change.run(session).await,
            Zfs::LoadKey(load) => load.run(session).await,
            Zfs::List(list) => list.run(session).await,
            Zfs::Get(get) => get.run(session).await,
            Zfs::Diff(diff) => diff.run(session).await,
            Zfs::Holds(holds) => holds.run(session).await,
            Zfs::Userspace(owners) => owners.run(session, SpaceBy::User).await,
            Zfs::Groupspace(owners) => owners.run(session, SpaceBy::Group).await,
            Zfs::Projectspace(owners) => owners.run(session, SpaceBy::Project).await,
        }
    }
}
