//! `cenote zpool`: output and actions of `zpool`, straight from the disks.
//!
//! A pool is open only while a command runs; nothing stays imported. A pool that can't be opened does not
//! prevent the others from being shown.

mod checkpoint;
mod condense;
mod create;
mod ddtprune;
mod devices;
mod import;
mod leaves;
mod manage;
mod passes;
mod prefetch;
mod reguid;
mod remove;
mod replace;
mod scan;
mod set;
pub mod shown;
mod split;
mod upgrade;
mod wait;

use std::ffi::OsString;
use std::path::PathBuf;

use cenote_control::running::version::OfZpool;
use cenote_shown::zpool::{Keys, Names};
use clap::{Args, Subcommand};

use super::form::{Form, TableForm};
use super::not_yet;
use super::running::version::Version;
use crate::args::{Deferred, run_typed};
use crate::outcome::{CliError, Outcome};
use crate::session::Session;
use shown::{iostat, repeat};

/// `cenote zpool` and its verbs.
#[derive(Debug, Subcommand)]
#[command(display_name = "cenote")]
#[command(after_help = "Examples:\n  \
    cenote zpool create tank mirror disk1.img disk2.img\n  \
    cenote zpool status -v tank\n  \
    cenote zpool scrub -w tank")]
pub enum Zpool {
    /// Create a pool on devices or files
    Create(Deferred<create::Create>),
    /// Close pools and mark them as exported
    Export(Deferred<manage::Export>),
    /// Destroy a pool; its devices may then be reused
    Destroy(Deferred<manage::Destroy>),
    /// Save the pool's state to rewind to, or discard the saved state
    Checkpoint(Deferred<checkpoint::Checkpoint>),
    /// Write a txg
    Sync(Deferred<manage::Sync>),
    /// Remove a pool's labels from a device
    Labelclear(Deferred<manage::LabelClear>),
    /// Add vdevs to a pool
    Add(Deferred<devices::Add>),
    /// Attach a device to a disk or mirror, or expand a RAID-Z by one device
    Attach(Deferred<devices::Attach>),
    /// Detach a device from a mirror, end a replacement, or return a spare
    Detach(Deferred<devices::Detach>),
    /// Replace a device by another one or by a hot spare
    Replace(Deferred<replace::Replace>),
    /// Replace a device that still works but may soon fail
    Evacuate(Deferred<replace::Evacuate>),
    /// Remove hot spares, cache devices, logs, and disks or mirrors with data
    Remove(Deferred<remove::Remove>),
    /// Split one device off each mirror to form a new pool
    Split(Deferred<split::Split>),
    /// Take devices out of use
    Offline(Deferred<leaves::Offline>),
    /// Bring devices back into use
    Online(Deferred<leaves::Online>),
    /// Reset error counts and bring faulted devices back
    Clear(Deferred<leaves::Clear>),
    /// Look again for missing devices
    Reopen(Deferred<leaves::Reopen>),
    /// Verify every block and repair damaged copies
    Scrub(Deferred<scan::Scrub>),
    /// Write the blocks that devices lack
    Resilver(Deferred<scan::Resilver>),
    /// Write to all free space once
    Initialize(Deferred<passes::Initialize>),
    /// Discard free space on devices
    Trim(Deferred<passes::Trim>),
    /// Write out the log of space maps
    Condense(Deferred<condense::Condense>),
    /// Set a property or enable a feature
    Set(Deferred<set::Set>),
    /// Load the deduplication and block-cloning tables into memory
    Prefetch(Deferred<prefetch::Prefetch>),
    /// Take the oldest blocks with one reference out of the deduplication tables
    Ddtprune(Deferred<ddtprune::Ddtprune>),
    /// Give a pool a new guid
    Reguid(Deferred<reguid::Reguid>),
    /// Enable all features, or list the missing ones
    Upgrade(Deferred<upgrade::Upgrade>),
    /// Import pools into the daemon; list, check, rewind or rename pools on disks
    Import(Deferred<Import>),
    /// Show the state of pools and devices, with reasons
    Status(Deferred<Status>),
    /// List pools with their size, allocated and free space, and fragmentation
    List(Deferred<List>),
    /// Show properties and features
    Get(Deferred<Get>),
    /// Show the commands run on pools
    History(Deferred<History>),
    /// Show the daemon's events, or those recorded on the disks
    Events(Deferred<Events>),
    /// Show I/O statistics of the daemon's pools and devices
    Iostat(Deferred<iostat::Iostat>),
    /// Wait for background work in the daemon's pools
    Wait(Deferred<wait::Wait>),
    /// Show the version of this program
    Version(Deferred<Version>),
    /// Any other verb
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// `zpool import`
#[derive(Debug, Args)]
#[command(
    after_help = "Without a daemon, an import only shows that the pool opens, unless it has to change the \
        pool (-F, -m, -D -f, a new name, --rewind-to-checkpoint). Commands that write open the pool \
        themselves.\n\n\
        Examples:\n  \
        cenote zpool import -d /mnt/images               # list the pools there\n  \
        cenote zpool import tank                         # import the pool, or check that it opens\n  \
        cenote zpool import -F -n tank                   # show the state that -F would rewind to\n  \
        cenote zpool import -F tank                      # rewind permanently to the newest intact state\n  \
        cenote zpool import tank attic                   # rename permanently\n  \
        cenote zpool import -D -f tank                   # undo `zpool destroy`\n  \
        cenote zpool import --rewind-to-checkpoint tank  # lose all changes since the checkpoint"
)]
pub struct Import {
    /// Include destroyed pools
    #[arg(short = 'D')]
    pub destroyed: bool,
    /// `readonly=on`: only check that the pool opens; `altroot=ROOT`: like -R; `cachefile=FILE`: ignored
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Accept a pool that another machine has not exported, and fence that machine if the disks can (RBD);
    /// with -D, restore the pool
    #[arg(short = 'f')]
    pub force: bool,
    /// Discard permanently the intent logs that were on lost log devices; with -o readonly=on, open the pool
    /// without them and write nothing
    #[arg(
        short = 'm',
        conflicts_with_all = ["txg", "rewind", "new_name", "destroyed", "rewind_to_checkpoint"]
    )]
    pub missing_log: bool,
    /// Don't mount the file systems
    #[arg(short = 'N')]
    pub no_mount: bool,
    /// In the daemon, mount the file systems below this directory
    #[arg(short = 'R', value_name = "ROOT")]
    pub altroot: Option<String>,
    /// Load the keys of encrypted datasets into the daemon
    #[arg(short = 'l')]
    pub load_keys: bool,
    /// Accepted for compatibility: devices are always searched
    #[arg(short = 's')]
    pub search: bool,
    /// Search the devices listed in this OpenZFS cache file
    #[arg(short = 'c', value_name = "CACHEFILE", conflicts_with = "disks")]
    pub cache_file: Option<PathBuf>,
    /// With -F, report the state to rewind to and the loss; change nothing
    #[arg(short = 'n', requires = "rewind")]
    pub dry_run: bool,
    /// With -F, accept a state in which files have lost blocks, if all metadata is intact
    #[arg(short = 'X', requires_all = ["rewind", "pool"])]
    pub extreme: bool,
    /// Use the new name only while the pool is imported; do not write it
    #[arg(short = 't', requires = "new_name")]
    pub temporary: bool,
    /// Open the pool as of this txg, or the newest before it
    #[arg(short = 'T', long, value_name = "N", conflicts_with = "rewind")]
    pub txg: Option<u64>,
    /// Rewind permanently to the pool's checkpoint; with -o readonly=on, only open the checkpoint
    #[arg(long, requires = "pool", conflicts_with_all = ["all", "txg", "rewind", "new_name", "destroyed"])]
    pub rewind_to_checkpoint: bool,
    /// All pools found
    #[arg(short = 'a')]
    pub all: bool,
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// Pool, by name or guid; without it, all pools found are listed
    pub pool: Option<String>,
    /// The pool's new, permanent name
    pub new_name: Option<String>,
}

/// `zpool status`
#[derive(Debug, Args)]
#[command(after_help = "This program runs the scripts of -c with its user's rights; it looks for them in \
    ~/.zpool.d and /etc/zfs/zpool.d, or in the folders of ZPOOL_SCRIPTS_PATH. A script learns the device by \
    the variables VDEV_PATH, VDEV_UPATH, VDEV_ENC_SYSFS_PATH and POOL_NAME, and prints lines 'column=value'. \
    Root also needs ZPOOL_SCRIPTS_AS_ROOT=1.\n\n\
    Examples:\n  \
    cenote zpool status -v tank\n  \
    cenote zpool status -c smart,temp tank")]
pub struct Status {
    /// Only pools with problems
    #[arg(short = 'x')]
    pub unhealthy_pools: bool,
    /// Only devices with problems, and their vdevs
    #[arg(short = 'e')]
    pub unhealthy_devices: bool,
    /// List the files with known errors
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Show the initialization state of devices
    #[arg(short = 'i')]
    pub initialized: bool,
    /// Show the TRIM state of devices
    #[arg(short = 't')]
    pub trimmed: bool,
    /// Show deduplicated blocks by reference count
    #[arg(short = 'D')]
    pub dedup: bool,
    /// Add a column of slow operations since the daemon opened the pool
    #[arg(short = 's')]
    pub slow: bool,
    /// Accepted for compatibility: adds a column of direct I/O checksum errors, which are not recorded on
    /// disk
    #[arg(short = 'd')]
    pub direct: bool,
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// How to print it
    #[command(flatten)]
    pub form: Form,
    /// How pools are keyed in JSON
    #[command(flatten)]
    pub keys: PoolKeys,
    /// Interval and count
    #[command(flatten)]
    pub repeat: repeat::Repeat,
    /// Pools [default: all], then an interval in seconds and a count [default: endless]
    pub pools: Vec<String>,
    /// Add the output of scripts, comma-separated, run for each device; without names, list the scripts
    #[arg(short = 'c', value_name = "SCRIPTS", num_args = 0..=1)]
    pub script: Option<Option<String>>,
    /// In JSON, put all vdevs beside each other, each with the name of its parent
    #[arg(long)]
    pub json_flat_vdevs: bool,
}

/// How devices are named: by default, the last component of the path where each was found.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct DeviceNames {
    /// Show full device paths
    #[arg(short = 'P')]
    pub paths: bool,
    /// Resolve symbolic links in paths
    #[arg(short = 'L')]
    pub follow: bool,
    /// Show vdev guids instead of names
    #[arg(short = 'g')]
    pub guids: bool,
}

impl From<DeviceNames> for Names {
    fn from(DeviceNames { paths, follow, guids }: DeviceNames) -> Names {
        Names { paths, follow, guids }
    }
}

/// How pools are keyed in JSON: by name unless set otherwise.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct PoolKeys {
    /// Key pools by guid in JSON
    #[arg(long = "json-pool-key-guid")]
    pub by_guid: bool,
}

impl From<PoolKeys> for Keys {
    fn from(PoolKeys { by_guid }: PoolKeys) -> Keys {
        if by_guid { Keys::ByGuid } else { Keys::ByName }
    }
}

/// `zpool list`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool list -v tank")]
pub struct List {
    /// How to print it
    #[command(flatten)]
    pub form: TableForm,
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// Include each device
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Columns, comma-separated
    #[arg(
        short = 'o',
        value_name = "COLUMNS",
        default_value = "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,\
            health,altroot"
    )]
    pub columns: String,
    /// How pools are keyed in JSON
    #[command(flatten)]
    pub keys: PoolKeys,
    /// Interval and count
    #[command(flatten)]
    pub repeat: repeat::Repeat,
    /// Pools [default: all], then an interval in seconds and a count [default: endless]
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
    /// How pools are keyed in JSON
    #[command(flatten)]
    pub keys: PoolKeys,
    /// Properties, comma-separated, or `all`
    pub properties: String,
    /// Pools [default: all], or a pool and its vdevs: names, root or all-vdevs
    pub pools: Vec<String>,
}

/// `zpool history`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool history -il tank")]
pub struct History {
    /// Include internal events
    #[arg(short = 'i')]
    pub internal: bool,
    /// Show user, host and zone of each command
    #[arg(short = 'l')]
    pub long: bool,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool events`
#[derive(Debug, Args)]
#[command(
    after_help = "The daemon keeps the last 1024 events in memory, as the kernel module does. Without a \
        daemon, this shows the events in the pool's history, and the blocks in its error log, which have no \
        time.\n\n\
        Example: cenote zpool events -v tank"
)]
pub struct Events {
    /// Show all fields of each event
    #[arg(short = 'v')]
    pub verbose: bool,
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Print new events as they happen; needs the daemon
    #[arg(short = 'f', conflicts_with = "clear")]
    pub follow: bool,
    /// Discard the daemon's events
    #[arg(short = 'c')]
    pub clear: bool,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

impl Zpool {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        run_typed! {
            Zpool, self, session;
            Create Export Destroy Checkpoint Sync Labelclear Add Attach Detach Replace Evacuate Remove Split
            Offline Online Clear Reopen Scrub Resilver Initialize Trim Set Condense Prefetch Ddtprune Reguid
            Upgrade Import Status List Get History Events Iostat Wait;
            Zpool::Version(Deferred(version)) => version.run(session, OfZpool {}).await,
            Zpool::Other(words) => Err(not_yet::verb::<Zpool>("zpool", &words)),
        }
    }
}
