//! Calls of clients, as values.

use bytes::Bytes;
use cenote_fuse::Errno;

use super::data::Data;
use super::pool::DatasetId;

/// A call, in the order of their beginnings.
pub type CallId = u64;
/// A client's number.
pub type ClientId = usize;
/// A client's number for an open file.
pub type Slot = usize;

/// A call of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its client.
    pub client: ClientId,
    /// Its effect.
    pub action: Action,
}

/// Names from the root of a dataset.
pub type Path = Vec<String>;

/// The effect of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // as POSIX and zfs(8) name them
pub enum Action {
    // Names of a file system.
    Open {
        dataset: DatasetId,
        path: Path,
        slot: Slot,
        creates: bool,
        excludes: bool,
    },
    Make {
        dataset: DatasetId,
        path: Path,
        link_to: Option<String>,
    },
    Unlink {
        dataset: DatasetId,
        path: Path,
        is_dir: bool,
    },
    Rename {
        dataset: DatasetId,
        from: Path,
        to: Path,
        exchange: bool,
    },
    Link {
        dataset: DatasetId,
        from: Path,
        to: Path,
    },
    Chmod {
        dataset: DatasetId,
        path: Path,
        mode: u32,
    },
    SetXattr {
        dataset: DatasetId,
        path: Path,
        name: String,
        value: Bytes,
    },
    GetXattr {
        dataset: DatasetId,
        path: Path,
        name: String,
    },
    Readlink {
        dataset: DatasetId,
        path: Path,
    },
    Stat {
        dataset: DatasetId,
        path: Path,
    },
    List {
        dataset: DatasetId,
        path: Path,
    },
    // Open files.
    Read {
        dataset: DatasetId,
        slot: Slot,
        offset: u64,
        len: u64,
    },
    Write {
        dataset: DatasetId,
        slot: Slot,
        offset: u64,
        data: Bytes,
    },
    Copy {
        dataset: DatasetId,
        from: Source,
        offset: u64,
        slot: Slot,
        to: u64,
        len: u64,
    },
    Truncate {
        dataset: DatasetId,
        slot: Slot,
        size: u64,
    },
    Fsync {
        dataset: DatasetId,
        slot: Slot,
    },
    Close {
        dataset: DatasetId,
        slot: Slot,
    },
    // Volumes, in blocks.
    ReadBlocks {
        dataset: DatasetId,
        block: u64,
    },
    WriteBlocks {
        dataset: DatasetId,
        block: u64,
        data: Bytes,
        /// It is on disk when it returns (FUA).
        is_durable: bool,
    },
    ZeroBlocks {
        dataset: DatasetId,
        block: u64,
        count: u64,
    },
    FlushVolume {
        dataset: DatasetId,
    },
    // Verbs.
    Create {
        name: String,
        volume_blocks: Option<u64>,
    },
    Destroy {
        dataset: DatasetId,
    },
    Snapshot {
        dataset: DatasetId,
        name: String,
    },
    DestroySnapshot {
        dataset: DatasetId,
        name: String,
    },
    Rollback {
        dataset: DatasetId,
        name: String,
    },
    Clone {
        dataset: DatasetId,
        snapshot: String,
        name: String,
    },
    /// `zfs send | zfs receive` of a snapshot, as another dataset with one snapshot.
    Receive {
        dataset: DatasetId,
        snapshot: String,
        name: String,
        received: String,
    },
    Promote {
        dataset: DatasetId,
    },
    RenameDataset {
        dataset: DatasetId,
        name: String,
    },
    Hold {
        dataset: DatasetId,
        snapshot: String,
        tag: String,
    },
    Release {
        dataset: DatasetId,
        snapshot: String,
        tag: String,
    },
    Set {
        dataset: DatasetId,
        property: String,
        value: String,
    },
    Inherit {
        dataset: DatasetId,
        property: String,
    },
    /// `cenote rm`, beside the kernel.
    CommandRemove {
        dataset: DatasetId,
        path: Path,
    },
    /// `cenote mkdir`.
    CommandMake {
        dataset: DatasetId,
        path: Path,
    },
    /// A verb of the pool, without effect on its content: scrub, sync.
    Pool {
        verb: String,
    },
    /// The same on devices.
    Device {
        verb: DeviceVerb,
    },
}

/// The source of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An open file.
    Open(Slot),
    /// A file in a snapshot of the same dataset.
    Snapshot(String, Path),
}

/// A verb on devices; numbers are those of disks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // as zpool(8) names them
pub enum DeviceVerb {
    Offline { disk: usize, temporarily: bool },
    Online(usize),
    Clear,
    Reopen,
    Resilver,
    StopScrub,
    PauseScrub,
    Replace { disk: usize, by: usize, sequential: bool },
    Attach { disk: usize, new: usize, sequential: bool },
    Expand { raidz: String, new: usize },
    Detach(usize),
    Add(String),
    Remove(String),
    StopRemoval,
    Checkpoint { discard: bool },
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // fields of `stat`
pub enum Outcome {
    /// Without a result.
    Done,
    /// Content.
    Data(Data),
    /// Names in a directory.
    Names(Vec<String>),
    /// Size (of regular files), permissions, links (of all but directories).
    Attr { size: u64, mode: u32, links: u32 },
    /// An error of POSIX.
    Failed(Errno),
    /// A verb said no.
    Refused(String),
}

/// The parts of a pool that a call reads or changes: per dataset, a bit for each client's directory, and one
/// for the common one. Calls with disjoint scopes commute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The whole pool.
    Everything,
    /// By dataset.
    Parts(Vec<(DatasetId, u64)>),
}

const COMMON: u64 = 1 << 63;
const WHOLE: u64 = u64::MAX;

impl Scope {
    /// Whether the order of the two calls matters.
    pub fn meets(&self, other: &Scope) -> bool {
        match (self, other) {
            (Scope::Parts(ours), Scope::Parts(theirs)) => ours.iter().any(|(dataset, bits)| {
                theirs.iter().any(|(other, others)| dataset == other && bits & others != 0)
            }),
            _ => true,
        }
    }

    /// The same, and all of a dataset.
    pub fn with(self, dataset: DatasetId) -> Scope {
        match self {
            Scope::Everything => self,
            Scope::Parts(parts) => Scope::Parts([parts, vec![(dataset, WHOLE)]].concat()),
        }
    }

    /// Whether it touches a top-level directory of a dataset.
    pub fn touches(&self, dataset: DatasetId, dir: &str) -> bool {
        self.meets(&Scope::Parts(vec![(dataset, bit(dir))]))
    }

    /// Whether it touches a dataset.
    pub fn touches_any(&self, dataset: DatasetId) -> bool {
        self.meets(&Scope::Parts(vec![(dataset, WHOLE)]))
    }
}

fn bit(dir: &str) -> u64 {
    let client = dir.strip_prefix('c').and_then(|number| number.parse::<u32>().ok());
    client.filter(|client| *client < 63).map_or(COMMON, |client| 1 << client)
}

fn bits(path: &Path) -> u64 {
    path.first().map_or(WHOLE, |dir| bit(dir))
}

impl Action {
    /// The dataset of a call on names.
    pub fn names_in(&self) -> Option<DatasetId> {
        use Action::*;
        match self {
            Open { dataset, .. }
            | Make { dataset, .. }
            | Unlink { dataset, .. }
            | Rename { dataset, .. }
            | Link { dataset, .. }
            | Chmod { dataset, .. }
            | SetXattr { dataset, .. }
            | GetXattr { dataset, .. }
            | Readlink { dataset, .. }
            | Stat { dataset, .. }
            | List { dataset, .. } => Some(*dataset),
            _ => None,
        }
    }
}

impl Call {
    /// The parts that it touches.
    pub fn scope(&self) -> Scope {
        use Action::*;
        let own = 1 << self.client.min(62) | COMMON;
        let one = |dataset: &DatasetId, bits| Scope::Parts(vec![(*dataset, bits)]);
        match &self.action {
            Open { dataset, path, .. } => one(dataset, bits(path) | own),
            Make { dataset, path, .. }
            | Unlink { dataset, path, .. }
            | CommandRemove { dataset, path }
            | CommandMake { dataset, path }
            | Chmod { dataset, path, .. }
            | SetXattr { dataset, path, .. }
            | GetXattr { dataset, path, .. }
            | Readlink { dataset, path }
            | Stat { dataset, path }
            | List { dataset, path } => one(dataset, bits(path)),
            Rename { dataset, from, to, .. } | Link { dataset, from, to } => {
                one(dataset, bits(from) | bits(to))
            }
            Read { dataset, .. }
            | Write { dataset, .. }
            | Copy { dataset, .. }
            | Truncate { dataset, .. }
            | Fsync { dataset, .. }
            | Close { dataset, .. } => one(dataset, own),
            ReadBlocks { dataset, .. }
            | WriteBlocks { dataset, .. }
            | ZeroBlocks { dataset, .. }
            | FlushVolume { dataset }
            | Destroy { dataset }
            | Snapshot { dataset, .. }
            | DestroySnapshot { dataset, .. }
            | Rollback { dataset, .. }
            | Clone { dataset, .. }
            | Receive { dataset, .. }
            | RenameDataset { dataset, .. }
            | Hold { dataset, .. }
            | Release { dataset, .. }
            | Set { dataset, .. }
            | Inherit { dataset, .. } => one(dataset, WHOLE),
            // It moves snapshots from another dataset, which depends on the state.
            Promote { .. } => Scope::Everything,
            Create { .. } | Pool { .. } | Device { .. } => Scope::Parts(Vec::new()),
        }
    }

    /// The dataset of a client's call on files or blocks.
    pub fn dataset(&self) -> Option<DatasetId> {
        match self.scope() {
            Scope::Parts(parts) => parts.first().map(|(dataset, _)| *dataset),
            Scope::Everything => None,
        }
    }

    /// Whether it returns only when its txg is on disk.
    pub fn is_synced(&self) -> bool {
        use Action::*;
        match &self.action {
            Pool { verb } => verb == "sync",
            Set { .. } | Inherit { .. } | Device { .. } | CommandRemove { .. } | CommandMake { .. } => false,
            _ => self.is_verb(),
        }
    }

    /// Whether it is a verb of an administrator.
    pub fn is_verb(&self) -> bool {
        use Action::*;
        matches!(
            self.action,
            Create { .. }
                | Destroy { .. }
                | Snapshot { .. }
                | DestroySnapshot { .. }
                | Rollback { .. }
                | Clone { .. }
                | Receive { .. }
                | Promote { .. }
                | RenameDataset { .. }
                | Hold { .. }
                | Release { .. }
                | Set { .. }
                | Inherit { .. }
                | CommandRemove { .. }
                | CommandMake { .. }
                | Pool { .. }
                | Device { .. }
        )
    }
}
