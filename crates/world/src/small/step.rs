//! Steps of small programs, on a file system (1) and a volume (2) with a snapshot each, and a clone. On a
//! mirror, its second disk may get into trouble, too.

use std::str::FromStr;
use std::sync::Arc;

use crate::client::admin::VOLUME_BLOCKS;
use crate::machine::faults::Trouble;
use crate::machine::{POOL, path_of};
use crate::model::call::DeviceVerb;
use crate::model::{Action, BLOCK_BYTES, Dataset, DatasetId, Source};
use crate::scene::Scene;
use crate::small::On;

/// The file system: the call that creates it.
pub const FILES: DatasetId = 1;
/// The volume.
pub const VOLUME: DatasetId = 2;
/// The disk of a mirror that gets into trouble, the one that has all data meanwhile, and one to replace it.
pub const WEAK: usize = 1;
const STRONG: usize = 0;
const SPARE: usize = 2;
const SLOT: usize = 0;
/// Of a file that stays open.
const OPEN: usize = 1;

macro_rules! steps {
    ($($step:ident)*; $($of_mirrors:ident)*) => {
        /// A step.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)] // as their names say
        pub enum Step { $($step,)* $($of_mirrors),* }

        impl Step {
            /// Those that a pool on one disk can take.
            pub const ALL: &[Step] = &[$(Step::$step),*];
            /// All of them.
            const KNOWN: &[Step] = &[$(Step::$step,)* $(Step::$of_mirrors),*];
        }
    };
}

steps! {
    Write Append Commit Truncate TruncateDurably Unlink UnlinkOpen Rename Exchange Link Mkdir Symlink SetXattr
    Chmod RmCommand MkdirCommand
    Copy CopyOfSnapshot WriteVolume WriteDurably ZeroVolume FlushVolume
    CreateFiles CreateVolume Snapshot SnapshotVolume Rollback RollbackVolume DestroySnapshot Clone Receive
    WriteClone SnapshotClone RollbackClone DestroySnapshotOfClone SnapshotAndRollback SnapshotAndClone
    Promote DestroyClone Destroy RenameDataset Hold Release SetCompression SetRecordsize Inherit
    Sync Scrub Trim Verify;
    RemoveDisk StopRemoval Checkpoint DiscardCheckpoint
    Vanish FailWrites FailFlushes FailReads Hang LoseWrites TearWrites Heal
    Offline Online Reopen Clear Resilver Replace Rebuild Attach Detach
}

/// Steps that are about the same thing, so that programs of them are likely to show how they meet.
pub const THEMES: &[&[Step]] = {
    use Step::*;
    &[
        &[Write, Append, Commit, Truncate, TruncateDurably, Rename, Unlink, UnlinkOpen, Mkdir, Sync],
        &[WriteVolume, WriteDurably, ZeroVolume, FlushVolume, SnapshotVolume, RollbackVolume, Sync],
        &[SnapshotVolume, SnapshotAndRollback, SnapshotAndClone, RollbackVolume, WriteVolume, Destroy],
        &[Snapshot, DestroySnapshot, Rollback, Hold, Release, CopyOfSnapshot, Copy, Write, Verify],
        &[WriteClone, SnapshotClone, RollbackClone, DestroyClone, Clone, Promote, Snapshot, Sync],
        &[Rename, Exchange, Link, Unlink, UnlinkOpen, Mkdir, RmCommand, MkdirCommand, Commit, Rollback],
    ]
};

/// A few steps each whose order and moments matter, so that most orders of them are drawn soon.
const ON_DISK: &[&[Step]] = {
    use Step::*;
    &[
        &[Write, Snapshot, CopyOfSnapshot, DestroySnapshot],
        &[SnapshotClone, WriteClone, RollbackClone, DestroySnapshotOfClone, DestroyClone],
        &[WriteDurably, FlushVolume, SnapshotVolume, RollbackVolume],
        &[WriteVolume, SnapshotAndRollback, RollbackVolume, Sync],
        &[Copy, CopyOfSnapshot, Unlink, Rollback, Sync],
        &[Clone, WriteClone, Promote, DestroyClone],
    ]
};
const ON_MIRROR: &[&[Step]] = {
    use Step::*;
    &[
        &[Write, Sync, Offline, Online],
        &[WriteVolume, Offline, Online, Vanish, Heal],
        &[Write, FailWrites, Clear, Heal, Resilver],
        &[WriteDurably, FailFlushes, Heal, Sync],
        &[Write, LoseWrites, Scrub, Heal],
        &[Write, Replace, Vanish, Heal],
        &[WriteVolume, Attach, Detach, Offline, Online],
    ]
};
const ON_TWO: &[&[Step]] = {
    use Step::*;
    &[
        &[Write, Unlink, RemoveDisk, Sync],
        &[WriteVolume, ZeroVolume, SnapshotVolume, RollbackVolume, RemoveDisk],
        &[Write, Checkpoint, DiscardCheckpoint, Unlink, Sync],
        &[Snapshot, DestroySnapshot, Write, RemoveDisk, StopRemoval],
    ]
};

impl Step {
    /// Stories: sets of a few steps that a pool on these disks can take.
    pub fn stories(on: On) -> &'static [&'static [Step]] {
        match on {
            On::Disk => ON_DISK,
            On::Two => ON_TWO,
            On::Mirror => ON_MIRROR,
        }
    }

    /// Those of a pool on two disks, where most are about the removal of one.
    pub const OF_TWO: &[Step] = {
        use Step::*;
        &[
            Write,
            Append,
            Commit,
            Truncate,
            Unlink,
            WriteVolume,
            WriteDurably,
            ZeroVolume,
            CreateFiles,
            Snapshot,
            SnapshotVolume,
            Rollback,
            RollbackVolume,
            DestroySnapshot,
            Clone,
            WriteClone,
            DestroyClone,
            Destroy,
            Sync,
            Scrub,
            Trim,
            Verify,
            RemoveDisk,
            RemoveDisk,
            RemoveDisk,
            StopRemoval,
            Checkpoint,
            DiscardCheckpoint,
        ]
    };

    /// Those of a pool on a mirror, where most are about the disk in trouble.
    pub const OF_MIRRORS: &[Step] = {
        use Step::*;
        &[
            Write,
            Commit,
            WriteVolume,
            WriteDurably,
            Snapshot,
            DestroySnapshot,
            CreateFiles,
            Sync,
            Scrub,
            Vanish,
            FailWrites,
            FailFlushes,
            FailReads,
            Hang,
            LoseWrites,
            TearWrites,
            Heal,
            Heal,
            Offline,
            Online,
            Reopen,
            Clear,
            Resilver,
            Replace,
            Rebuild,
            Attach,
            Detach,
        ]
    };
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let found = Step::KNOWN.iter().find(|step| format!("{step:?}") == text);
        found.copied().ok_or_else(|| format!("no step '{text}'; there are {:?}", Step::KNOWN))
    }
}

fn path(name: &str) -> Vec<String> {
    vec!["common".into(), name.into()]
}

fn last(dataset: Option<&Arc<Dataset>>) -> Option<String> {
    dataset?.snapshots.last().map(|snapshot| snapshot.name.clone())
}

impl Step {
    /// What happens to the weak disk; `None` within: its trouble ends.
    pub fn trouble(self) -> Option<Option<Trouble>> {
        Some(match self {
            Step::Vanish => Some(Trouble::Vanishes),
            Step::FailWrites => Some(Trouble::WritesFail),
            Step::FailFlushes => Some(Trouble::FlushesFail),
            Step::FailReads => Some(Trouble::ReadsFail),
            Step::Hang => Some(Trouble::Hangs),
            Step::LoseWrites => Some(Trouble::LosesWrites),
            Step::TearWrites => Some(Trouble::TearsWrites),
            Step::Heal => None,
            _ => return None,
        })
    }

    /// Whether its calls are made in one txg, by a channel program.
    pub fn is_program(self) -> bool {
        matches!(self, Step::SnapshotAndRollback | Step::SnapshotAndClone)
    }

    /// Its calls now; none if it is not possible.
    pub fn actions(self, scene: &Scene) -> Vec<Action> {
        use Action::*;
        // A number for new names.
        let (state, next) = (&scene.state(), scene.next());
        let (dataset, slot) = (FILES, SLOT);
        let open =
            |name, slot| Action::Open { dataset, path: path(name), slot, creates: true, excludes: false };
        let write = |slot, offset, len: usize| {
            let data = format!("{next} ").into_bytes().repeat(len / 2)[..len].to_vec().into();
            Action::Write { dataset, slot, offset, data }
        };
        let close = Close { dataset, slot };
        let with_file = |action| vec![open("a", slot), action, close.clone()];
        let blocks = |count: usize| vec![next as u8; count * BLOCK_BYTES as usize].into();
        let clone =
            state.datasets.iter().rev().find(|(_, dataset)| dataset.origin.is_some()).map(|(id, _)| *id);
        // One that is being taken: both may get into the same txg.
        let last =
            |dataset| scene.snapshots_at_work(dataset).pop().or_else(|| last(state.datasets.get(&dataset)));
        let (of_files, of_volume) = (last(FILES), last(VOLUME));
        let name = |kind: &str| format!("{POOL}/{kind}{next}");
        let set =
            |property: &str, value: &str| Set { dataset, property: property.into(), value: value.into() };
        let one = |action: Option<Action>| Vec::from_iter(action);
        let device = |verb| vec![Device { verb }];
        let disk = WEAK;
        match self {
            Step::Write => with_file(write(slot, 1000, 3000)),
            Step::Append => with_file(write(slot, 8192, 500)),
            Step::Commit => {
                vec![open("a", slot), write(slot, 4096, 100), Fsync { dataset, slot }, close]
            }
            Step::Truncate => with_file(Truncate { dataset, slot, size: 700 }),
            Step::TruncateDurably => {
                vec![open("a", slot), Truncate { dataset, slot, size: 700 }, Fsync { dataset, slot }, close]
            }
            Step::Unlink => vec![Unlink { dataset, path: path("a"), is_dir: false }],
            Step::UnlinkOpen => {
                vec![open("a", OPEN), Unlink { dataset, path: path("a"), is_dir: false }, write(OPEN, 0, 10)]
            }
            Step::Rename => vec![Rename { dataset, from: path("a"), to: path("b"), exchange: false }],
            Step::Exchange => vec![Rename { dataset, from: path("a"), to: path("b"), exchange: true }],
            Step::Link => vec![Link { dataset, from: path("a"), to: path("c") }],
            Step::Mkdir => vec![Make { dataset, path: path("d"), link_to: None }],
            Step::Symlink => vec![Make { dataset, path: path("e"), link_to: Some("target".into()) }],
            Step::SetXattr => {
                let value = vec![next as u8; 300].into();
                vec![SetXattr { dataset, path: path("a"), name: "user.one".into(), value }]
            }
            Step::Chmod => vec![Chmod { dataset, path: path("a"), mode: 0o640 }],
            Step::RmCommand => vec![CommandRemove { dataset, path: path("a") }],
            Step::MkdirCommand => vec![CommandMake { dataset, path: path("d") }],
            Step::Copy => {
                let copy =
                    |from, to| Copy { dataset, from: Source::Open(slot), offset: from, slot, to, len: 1000 };
                with_file(copy(0, 2000))
            }
            Step::CopyOfSnapshot => {
                let copy = |name| {
                    let from = Source::Snapshot(name, path("a"));
                    Copy { dataset, from, offset: 0, slot, to: 0, len: 4096 }
                };
                last(FILES).map_or_else(Vec::new, |name| with_file(copy(name)))
            }
            Step::WriteVolume => {
                vec![WriteBlocks { dataset: VOLUME, block: 3, data: blocks(6), is_durable: false }]
            }
            Step::WriteDurably => {
                vec![WriteBlocks { dataset: VOLUME, block: 4, data: blocks(1), is_durable: true }]
            }
            Step::ZeroVolume => vec![ZeroBlocks { dataset: VOLUME, block: 2, count: 4 }],
            Step::FlushVolume => vec![
                WriteBlocks { dataset: VOLUME, block: 1, data: blocks(1), is_durable: false },
                FlushVolume { dataset: VOLUME },
            ],
            Step::CreateFiles => vec![Create { name: name("f"), volume_blocks: None }],
            Step::CreateVolume => vec![Create { name: name("v"), volume_blocks: Some(VOLUME_BLOCKS) }],
            Step::Snapshot => vec![Snapshot { dataset, name: format!("s{next}") }],
            Step::SnapshotVolume => vec![Snapshot { dataset: VOLUME, name: format!("s{next}") }],
            Step::Rollback => one(of_files.map(|name| Rollback { dataset, name })),
            Step::RollbackVolume => one(of_volume.map(|name| Rollback { dataset: VOLUME, name })),
            Step::DestroySnapshot => one(of_files.map(|name| DestroySnapshot { dataset, name })),
            Step::Clone => one(of_files.map(|snapshot| Clone { dataset, snapshot, name: name("k") })),
            Step::Receive => one(of_files.map(|snapshot| Receive {
                dataset,
                snapshot,
                name: name("n"),
                received: format!("r{next}"),
            })),
            Step::WriteClone => clone.map_or_else(Vec::new, |dataset| {
                let data = format!("{next} ").into_bytes().repeat(2000).into();
                let (creates, excludes) = (true, false);
                vec![
                    Open { dataset, path: path("a"), slot, creates, excludes },
                    Write { dataset, slot, offset: 0, data },
                    Close { dataset, slot },
                ]
            }),
            Step::SnapshotClone => one(clone.map(|dataset| Snapshot { dataset, name: format!("s{next}") })),
            Step::RollbackClone => {
                let last = clone.and_then(|dataset| Some(Rollback { dataset, name: last(dataset)? }));
                one(last)
            }
            Step::DestroySnapshotOfClone => one(clone.and_then(|dataset| {
                let name = state.datasets.get(&dataset)?.snapshots.last()?.name.clone();
                Some(DestroySnapshot { dataset, name })
            })),
            Step::SnapshotAndRollback => {
                let name = format!("s{next}");
                let dataset = VOLUME;
                vec![Snapshot { dataset, name: name.clone() }, Rollback { dataset, name }]
            }
            Step::SnapshotAndClone => {
                let (dataset, snapshot) = (VOLUME, format!("s{next}"));
                vec![
                    Snapshot { dataset, name: snapshot.clone() },
                    Clone { dataset, snapshot, name: name("k") },
                ]
            }
            Step::Promote => one(clone.map(|dataset| Promote { dataset })),
            Step::DestroyClone => one(clone.map(|dataset| Destroy { dataset })),
            Step::Destroy => vec![Destroy { dataset: VOLUME }],
            Step::RenameDataset => vec![RenameDataset { dataset, name: name("r") }],
            Step::Hold => one(of_files.map(|snapshot| Hold { dataset, snapshot, tag: "tag".into() })),
            Step::Release => one(of_files.map(|snapshot| Release { dataset, snapshot, tag: "tag".into() })),
            Step::SetCompression => vec![set("compression", "zle")],
            Step::SetRecordsize => vec![set("recordsize", "4K")],
            Step::Inherit => vec![Inherit { dataset, property: "compression".into() }],
            Step::Sync => vec![Pool { verb: "sync".into() }],
            Step::Scrub => vec![Pool { verb: "scrub".into() }],
            Step::Trim => vec![Pool { verb: "trim".into() }],
            Step::Verify => vec![Pool { verb: "verify".into() }],
            Step::RemoveDisk => device(DeviceVerb::Remove(path_of(WEAK).to_string_lossy().into_owned())),
            Step::StopRemoval => device(DeviceVerb::StopRemoval),
            Step::Checkpoint => device(DeviceVerb::Checkpoint { discard: false }),
            Step::DiscardCheckpoint => device(DeviceVerb::Checkpoint { discard: true }),
            Step::Offline => device(DeviceVerb::Offline { disk, temporarily: false }),
            Step::Online => device(DeviceVerb::Online(disk)),
            Step::Reopen => device(DeviceVerb::Reopen),
            Step::Clear => device(DeviceVerb::Clear),
            Step::Resilver => device(DeviceVerb::Resilver),
            Step::Replace => device(DeviceVerb::Replace { disk, by: SPARE, sequential: false }),
            Step::Rebuild => device(DeviceVerb::Replace { disk, by: SPARE, sequential: true }),
            Step::Attach => device(DeviceVerb::Attach { disk: STRONG, new: SPARE, sequential: false }),
            Step::Detach => device(DeviceVerb::Detach(disk)),
            Step::Vanish
            | Step::FailWrites
            | Step::FailFlushes
            | Step::FailReads
            | Step::Hang
            | Step::LoseWrites
            | Step::TearWrites
            | Step::Heal => Vec::new(),
        }
    }
}
