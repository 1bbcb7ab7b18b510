//! `cenote zpool`: what `zpool` shows and does, with the disks alone.
//!
//! A pool is opened as long as a command runs; nothing is imported into anything. A pool that can't be opened does not
//! keep the others from being shown.

mod checkpoint;
mod create;
mod dedup;
mod devices;
mod errors;
mod events;
mod get;
mod history;
mod import;
mod import_json;
mod leaf_work;
mod list;
mod manage;
mod properties;
mod reason;
mod set;
mod status;
mod tree;
mod vdevs_json;
mod work;

use cenote_dataset::Mos;
use cenote_format::features::{SPA_VERSION_FEATURES, ZPL_VERSION};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::form::{Form, TableForm};
use super::json::number_or_text;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote zpool` and its verbs.
#[derive(Debug, Subcommand)]
pub enum Zpool {
    /// Make a pool on devices or files
    Create(create::Create),
    /// Mark pools as used by nobody, or take them over with -f
    Export(manage::Export),
    /// Give a pool up; its devices may be used for something else
    Destroy(manage::Destroy),
    /// Keep the pool as it is now to go back to, or give that up
    Checkpoint(checkpoint::Checkpoint),
    /// Write a transaction group
    Sync(manage::Sync),
    /// Remove a pool's labels from a device
    Labelclear(manage::LabelClear),
    /// Add vdevs
    Add(devices::Add),
    /// Make a device hold the same as one of the pool: a mirror
    Attach(devices::Attach),
    /// Take a device out of a mirror
    Detach(devices::Detach),
    /// Set a property, enable a feature
    Set(set::Set),
    /// Enable all features, or show which are not
    Upgrade(set::Upgrade),
    /// Find pools among the disks, look whether one opens, or give one another name
    Import(Import),
    /// State of pools and their devices, and why
    Status(Status),
    /// Size, allocated and free space, fragmentation
    List(List),
    /// Properties and features
    Get(Get),
    /// Commands that have been run on the pool
    History(History),
    /// Events that the disks tell of: those in the history, and the error log
    Events(Events),
}

/// `zpool import`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples: cenote zpool import -d /mnt/images            which pools are there\n          cenote zpool import -d /mnt/images -F -n tank whether an older state opens\n          cenote zpool import -F tank                   back to the newest state that is whole\n          cenote zpool import tank attic                another name, to stay\n          cenote zpool import -D -f tank                no longer destroyed\n          cenote zpool import --rewind-to-checkpoint tank    all that came after its checkpoint is lost"
)]
pub struct Import {
    /// Also show destroyed pools
    #[arg(short = 'D')]
    pub destroyed: bool,
    /// Options as for `zpool import`: `readonly=on`, `altroot` and `cachefile`. Commands that write open the pool themselves
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// With a new name: also a pool that another machine has not exported. With -D: the pool is no longer destroyed
    #[arg(short = 'f')]
    pub force: bool,
    /// Of the pool named, give up for good what can't be read of its intent logs, as devices are lost. With -o readonly=on only look: a pool
    /// opens without its log devices
    #[arg(short = 'm', conflicts_with_all = ["txg", "rewind", "new_name", "destroyed", "rewind_to_checkpoint"])]
    pub missing_log: bool,
    /// Accepted for habit: nothing is ever mounted
    #[arg(short = 'N')]
    pub no_mount: bool,
    /// Accepted for habit: nothing is ever mounted
    #[arg(short = 'R', value_name = "ROOT")]
    pub altroot: Option<String>,
    /// Accepted for habit: keys are asked for when they are needed
    #[arg(short = 'l')]
    pub load_keys: bool,
    /// Accepted for habit: devices are always searched
    #[arg(short = 's')]
    pub search: bool,
    /// With -F: only look which state is whole. Without, the pool named goes back to it for good, if that is one of the last three
    #[arg(short = 'n', requires = "rewind")]
    pub dry_run: bool,
    /// The new name is one for as long as the pool is imported: it is not written
    #[arg(short = 't', requires = "new_name")]
    pub temporary: bool,
    /// Look at the pool as it was at this transaction group; the common option, with one more name
    #[arg(short = 'T', long, value_name = "N", conflicts_with = "rewind")]
    pub txg: Option<u64>,
    /// Go back to the pool's checkpoint for good; with -o readonly=on only look at it, as with --checkpoint
    #[arg(long, requires = "pool", conflicts_with_all = ["all", "txg", "rewind", "new_name", "destroyed"])]
    pub rewind_to_checkpoint: bool,
    /// Every pool found
    #[arg(short = 'a')]
    pub all: bool,
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// Name or guid of the pool to open; without one, all that are found are listed
    pub pool: Option<String>,
    /// The name that it gets, to stay
    pub new_name: Option<String>,
}

/// `zpool status`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool status -v -d /mnt/images tank")]
pub struct Status {
    /// Only pools that something is wrong with
    #[arg(short = 'x')]
    pub unhealthy_pools: bool,
    /// Only devices that something is wrong with, and what they are part of
    #[arg(short = 'e')]
    pub unhealthy_devices: bool,
    /// List the files with known errors
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Which devices were initialized
    #[arg(short = 'i')]
    pub initialized: bool,
    /// Which devices were trimmed
    #[arg(short = 't')]
    pub trimmed: bool,
    /// Deduplicated blocks, by number of references
    #[arg(short = 'D')]
    pub dedup: bool,
    /// Accepted for habit: a column of slow reads, which no disk remembers
    #[arg(short = 's')]
    pub slow: bool,
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// How to print it
    #[command(flatten)]
    pub form: Form,
    /// Pools [default: all]
    pub pools: Vec<String>,
    /// Refused: nothing is run for each device
    #[arg(short = 'c', hide = true, value_name = "SCRIPT")]
    pub script: Option<String>,
}

/// How devices are named: by default the last part of the path where each was found.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct DeviceNames {
    /// Whole paths of devices
    #[arg(short = 'P')]
    pub paths: bool,
    /// Paths that are links are followed
    #[arg(short = 'L')]
    pub follow: bool,
    /// Guids of vdevs in place of names
    #[arg(short = 'g')]
    pub guids: bool,
}

/// `zpool list`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool list -v -d /mnt/images")]
pub struct List {
    /// How to print it
    #[command(flatten)]
    pub form: TableForm,
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// Each device too
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Columns, comma-separated
    #[arg(
        short = 'o',
        value_name = "COLUMNS",
        default_value = "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot"
    )]
    pub columns: String,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool get`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool get all tank")]
pub struct Get {
    /// How to print it
    #[command(flatten)]
    pub form: TableForm,
    /// Columns among name, property, value, source
    #[arg(short = 'o', value_name = "COLUMNS", default_value = "name,property,value,source")]
    pub columns: String,
    /// Properties, comma-separated, or `all`
    pub properties: String,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool history`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool history -il tank")]
pub struct History {
    /// Internal events too
    #[arg(short = 'i')]
    pub internal: bool,
    /// User, host and zone of each command
    #[arg(short = 'l')]
    pub long: bool,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool events`
#[derive(Debug, Args)]
#[command(
    after_help = "OpenZFS keeps events in the kernel's memory only. Shown here is what is on the disks: the events that the \
    pool's history kept, and the blocks in its error log (which does not say when).\n\nExample: cenote zpool events -v tank"
)]
pub struct Events {
    /// All fields of each
    #[arg(short = 'v')]
    pub verbose: bool,
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

impl Zpool {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        match self {
            Zpool::Create(create) => create.run(session).await,
            Zpool::Export(export) => export.run(session).await,
            Zpool::Destroy(destroy) => destroy.run(session).await,
            Zpool::Checkpoint(checkpoint) => checkpoint.run(session).await,
            Zpool::Sync(sync) => sync.run(session).await,
            Zpool::Labelclear(clear) => clear.run(session).await,
            Zpool::Add(add) => add.run(session).await,
            Zpool::Attach(attach) => attach.run(session).await,
            Zpool::Detach(detach) => detach.run(session).await,
            Zpool::Set(set) => set.run(session).await,
            Zpool::Upgrade(upgrade) => upgrade.run(session).await,
            Zpool::Import(import) => import.run(session).await,
            Zpool::Status(status) => status.run(session).await,
            Zpool::List(list) => list.run(session).await,
            Zpool::Get(get) => get.run(session).await,
            Zpool::History(history) => history.run(session).await,
            Zpool::Events(events) => events.run(session).await,
        }
    }
}

/// What JSON says of every pool beside what the command is about.
fn head(mos: &Mos, numbers: bool) -> Map<String, Value> {
    let number = |number: u64| number_or_text(&number.to_string(), numbers);
    let mut head = Map::new();
    head.insert("name".into(), json!(mos.pool().name()));
    head.insert("type".into(), json!("POOL"));
    head.insert("state".into(), json!(mos.pool().status().state().to_string()));
    head.insert("pool_guid".into(), number(mos.pool().guid().0));
    head.insert("txg".into(), number(mos.uberblock().txg.0));
    // The versions of the software, as OpenZFS has them here.
    head.insert("spa_version".into(), number(SPA_VERSION_FEATURES));
    head.insert("zpl_version".into(), number(ZPL_VERSION));
    head
}
