//! Steps of small programs, on a file system (1) and a volume (2) with a snapshot each, and a clone.

use std::str::FromStr;
use std::sync::Arc;

use crate::client::admin::VOLUME_BLOCKS;
use crate::machine::POOL;
use crate::model::{Action, BLOCK_BYTES, Dataset, DatasetId, Source};
use crate::scene::Scene;

/// The file system: the call that creates it.
pub const FILES: DatasetId = 1;
/// The volume.
pub const VOLUME: DatasetId = 2;
const SLOT: usize = 0;
/// Of a file that stays open.
const OPEN: usize = 1;

macro_rules! steps {
    ($($step:ident)*) => {
        /// A step.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)] // as their names say
        pub enum Step { $($step),* }

        impl Step {
            /// All of them.
            pub const ALL: &[Step] = &[$(Step::$step),*];
        }
    };
}

steps! {
    Write Append Commit Truncate Unlink UnlinkOpen Rename Exchange Link Mkdir Symlink SetXattr Chmod
    RmCommand MkdirCommand
    Copy CopyOfSnapshot WriteVolume WriteDurably ZeroVolume FlushVolume
    CreateFiles CreateVolume Snapshot SnapshotVolume Rollback RollbackVolume DestroySnapshot Clone Receive
    Promote DestroyClone Destroy RenameDataset Hold Release SetCompression SetRecordsize Inherit
    Sync Scrub
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let found = Step::ALL.iter().find(|step| format!("{step:?}") == text);
        found.copied().ok_or_else(|| format!("no step '{text}'; there are {:?}", Step::ALL))
    }
}

fn path(name: &str) -> Vec<String> {
    vec!["common".into(), name.into()]
}

fn last(dataset: Option<&Arc<Dataset>>) -> Option<String> {
    dataset?.snapshots.last().map(|snapshot| snapshot.name.clone())
}

impl Step {
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
        match self {
            Step::Write => with_file(write(slot, 1000, 3000)),
            Step::Append => with_file(write(slot, 8192, 500)),
            Step::Commit => {
                vec![open("a", slot), write(slot, 4096, 100), Fsync { dataset, slot }, close]
            }
            Step::Truncate => with_file(Truncate { dataset, slot, size: 700 }),
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
        }
    }
}
