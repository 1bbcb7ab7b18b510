//! A program that uses files: chooses its next call.

use cenote_runtime::Rng;

use super::perform::Performer;
use super::{Stage, choose, data, pick};
use crate::model::call::Path;
use crate::model::{Action, ClientId, Content, DatasetId, Source};

/// Kinds of calls: see [`Chooser::choose`].
pub const KINDS: usize = 19;
/// Names of directories in those of clients.
pub const DIRS: [&str; 2] = ["x", "y"];
/// Names of files.
pub const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Most open files.
const SLOTS: usize = 4;
/// The longest file, about.
const FILE_BYTES: u64 = 96 << 10;
const WRITE_BYTES: u64 = 48 << 10;
const PAGE_BYTES: u64 = 4096;

/// Chooses the next call of a client.
#[allow(missing_docs)] // as their types say
pub struct Chooser<'a> {
    pub stage: &'a Stage,
    pub client: ClientId,
    pub rng: &'a mut Rng,
    pub performer: &'a Performer,
}

impl Chooser<'_> {
    /// The next call; `None`: this kind is not possible now.
    pub fn choose(&mut self) -> Option<Action> {
        match choose(self.rng, &self.stage.swarm.posix) {
            0 => self.open(),
            1 => Some(Action::Make { dataset: self.dataset()?, path: self.dir(), link_to: None }),
            2..=4 => self.write(),
            5 | 6 => {
                let ((dataset, slot, _), (offset, len)) = (self.slot()?, self.range(PAGE_BYTES));
                // Longer reads are not atomic.
                Some(Action::Read { dataset, slot, offset, len })
            }
            7 => {
                let ((dataset, slot, _), size) = (self.slot()?, self.rng.below(FILE_BYTES));
                Some(Action::Truncate { dataset, slot, size })
            }
            8 => self.slot().map(|(dataset, slot, _)| Action::Fsync { dataset, slot }),
            9 => self.slot().map(|(dataset, slot, _)| Action::Close { dataset, slot }),
            18 => self.copy(),
            kind => self.use_name(kind),
        }
    }

    /// A copy to an open file; its source is the client's own, or never changes. Blocks can be shared if
    /// both places are boundaries of records.
    fn copy(&mut self) -> Option<Action> {
        let (dataset, slot, is_shared) = self.slot()?;
        let from = self.source(dataset, slot)?;
        let record = [PAGE_BYTES, 16 << 10, 128 << 10][self.rng.below(3) as usize];
        let place = |rng: &mut Rng| match rng.below(8) {
            0..=3 => 0,
            4..=6 => rng.below(FILE_BYTES / record + 1) * record,
            _ => rng.below(FILE_BYTES),
        };
        let (offset, to) = (place(self.rng), place(self.rng));
        let to_the_end = 2 * FILE_BYTES;
        let len = if self.rng.chance(0.6) { to_the_end } else { record * (1 + self.rng.below(3)) };
        // Copies of several pages are not atomic.
        let (to, len) = if is_shared { (to - to % PAGE_BYTES, PAGE_BYTES) } else { (to, len) };
        Some(Action::Copy { dataset, from, offset, slot, to, len })
    }

    /// A file of any snapshot, or an open one.
    fn source(&mut self, dataset: DatasetId, target: usize) -> Option<Source> {
        let is_own = |slot: &usize| self.performer.open_file(*slot) == Some((dataset, false));
        let own = self.performer.slots().filter(is_own);
        // A file has seldom room for a copy of itself.
        let (one, others): (Vec<usize>, Vec<usize>) = own.partition(|slot| *slot == target);
        let open = if others.is_empty() || self.rng.chance(0.1) { one } else { others };
        let state = self.stage.scene.state();
        let snapshots = state.datasets.get(&dataset)?.snapshots.iter();
        let files = snapshots.flat_map(|snapshot| match &snapshot.content {
            Content::Files(tree) => {
                tree.regular_files().into_iter().map(|path| (&snapshot.name, path)).collect::<Vec<_>>()
            }
            Content::Blocks(_) => Vec::new(),
        });
        let files: Vec<(&String, Path)> = files.collect();
        match pick(self.rng, &files) {
            Some((snapshot, path)) if open.is_empty() || self.rng.chance(0.5) => {
                Some(Source::Snapshot((*snapshot).clone(), path.clone()))
            }
            _ => pick(self.rng, &open).map(|slot| Source::Open(*slot)),
        }
    }

    /// A mounted file system.
    fn dataset(&mut self) -> Option<DatasetId> {
        let state = self.stage.scene.state();
        let files = state.datasets.iter().filter(|(_, dataset)| matches!(dataset.content, Content::Files(_)));
        let ids: Vec<DatasetId> = files.map(|(id, _)| *id).collect();
        pick(self.rng, &ids).copied()
    }

    fn top(&mut self) -> String {
        if self.rng.chance(0.4) { "common".into() } else { format!("c{}", self.client) }
    }

    /// A file's path: in the common directory, the client's own, or one below.
    fn path(&mut self) -> Path {
        let top = self.top();
        self.path_below(&top)
    }

    /// The same in a given top-level directory: no file changes between these.
    fn path_below(&mut self, top: &str) -> Path {
        let name = NAMES[self.rng.below(NAMES.len() as u64) as usize].to_owned();
        match top == "common" || self.rng.chance(0.6) {
            true => vec![top.to_owned(), name],
            false => vec![top.to_owned(), self.dir_name(), name],
        }
    }

    fn dir_name(&mut self) -> String {
        DIRS[self.rng.below(DIRS.len() as u64) as usize].to_owned()
    }

    fn dir(&mut self) -> Path {
        let top = self.top();
        match top == "common" || self.rng.chance(0.4) {
            true => vec![top],
            false => vec![top, self.dir_name()],
        }
    }

    /// An open file, and whether others may use it.
    fn slot(&mut self) -> Option<(DatasetId, usize, bool)> {
        let slots: Vec<usize> = self.performer.slots().collect();
        let slot = *pick(self.rng, &slots)?;
        self.performer.open_file(slot).map(|(dataset, is_shared)| (dataset, slot, is_shared))
    }

    fn open(&mut self) -> Option<Action> {
        let (dataset, path) = (self.dataset()?, self.path());
        let Some(slot) = (0..SLOTS).find(|slot| self.performer.open_file(*slot).is_none()) else {
            return self.slot().map(|(dataset, slot, _)| Action::Close { dataset, slot });
        };
        let (creates, excludes) =
            [(true, false), (true, false), (true, true), (false, false)][self.rng.below(4) as usize];
        // Directories come first.
        let state = self.stage.scene.state();
        let parent = &path[..path.len() - 1];
        match &state.datasets.get(&dataset)?.content {
            Content::Files(tree) if creates && tree.find(parent).is_err() && self.rng.chance(0.9) => {
                Some(Action::Make { dataset, path: parent.to_vec(), link_to: None })
            }
            _ => Some(Action::Open { dataset, path, slot, creates, excludes }),
        }
    }

    /// A range, within a page if `most` is one.
    fn range(&mut self, most: u64) -> (u64, u64) {
        let page = self.rng.below(FILE_BYTES / PAGE_BYTES) * PAGE_BYTES;
        let within = self.rng.below(PAGE_BYTES);
        match most {
            PAGE_BYTES if self.rng.chance(0.3) => (page, PAGE_BYTES),
            PAGE_BYTES => (page + within, 1 + self.rng.below(PAGE_BYTES - within)),
            _ => (page + within, 1 + self.rng.below(most)),
        }
    }

    fn write(&mut self) -> Option<Action> {
        let (dataset, slot, is_shared) = self.slot()?;
        let most = if is_shared || self.rng.chance(0.5) { PAGE_BYTES } else { WRITE_BYTES };
        let (offset, len) = self.range(most);
        let data = data(self.rng, self.client, self.stage.scene.next(), len as usize);
        Some(Action::Write { dataset, slot, offset, data })
    }

    fn use_name(&mut self, kind: usize) -> Option<Action> {
        let (dataset, path) = (self.dataset()?, self.path());
        let half = self.rng.chance(0.5);
        Some(match kind {
            10 if self.rng.chance(0.2) => Action::Unlink { dataset, path: self.dir(), is_dir: true },
            10 => Action::Unlink { dataset, path, is_dir: false },
            11 | 12 => {
                let (to, exchange) = (self.path_below(&path[0]), self.rng.chance(0.2));
                Action::Rename { dataset, from: path, to, exchange }
            }
            13 => {
                let to = self.path_below(&path[0]);
                Action::Link { dataset, from: path, to }
            }
            14 if half => {
                let target = format!("target-{}", self.rng.below(100));
                Action::Make { dataset, path, link_to: Some(target) }
            }
            14 => Action::Readlink { dataset, path },
            15 => {
                let name = ["user.one", "user.two"][self.rng.below(2) as usize].to_owned();
                let len = 1 + self.rng.below(300) as usize;
                let value = data(self.rng, self.client, self.stage.scene.next(), len);
                match half {
                    true => Action::SetXattr { dataset, path, name, value },
                    false => Action::GetXattr { dataset, path, name },
                }
            }
            16 if half => {
                let mode = [0o600, 0o640, 0o755, 0o4755][self.rng.below(4) as usize];
                Action::Chmod { dataset, path, mode }
            }
            16 => Action::Stat { dataset, path },
            _ => Action::List { dataset, path: self.dir() },
        })
    }
}
