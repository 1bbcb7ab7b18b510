//! The mounts of a pool, by dataset, by name and by directory.
//!
//! Idea: a command looks only at the mounts that it concerns.
//!
//! ```text
//!   entries   dataset             --> mount
//!   names     (name, dataset)         tank/a, tank/a/b, tank/a/c: those below a name follow one another
//!   dirs      (directory, number)     the same for directories; of two on one directory the upper comes last
//!   ended     mounts that ended by themselves, removed at the next look
//! ```
//!
//! Invariants: all three hold the same mounts. A mount keeps its directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_format::units::DatasetId;
use cenote_fuse::Mounted;
use cenote_runtime::JoinHandle;
use parking_lot::Mutex;

use super::options::{Properties, Temporary};
use crate::files::Files;

/// A mount.
pub(super) struct Entry {
    /// Changed only by [`Table::rename`].
    pub name: String,
    /// Increasing: of two on one directory, the later one is on top.
    pub number: u64,
    /// Unmounted by another process; no operation is left.
    pub has_ended: Arc<AtomicBool>,
    pub mounted: Mounted,
    pub files: Files,
    pub properties: Properties,
    pub temporary: Temporary,
    pub ended: JoinHandle<()>,
}

/// Where a dataset is mounted.
pub(super) struct Place {
    pub id: DatasetId,
    pub name: String,
    pub dir: PathBuf,
    /// See [`Entry::number`].
    pub number: u64,
}

/// Takes note of the end of mounts.
pub(super) type Ended = Arc<Mutex<Vec<(DatasetId, u64)>>>;

#[derive(Default)]
pub(super) struct Table {
    entries: BTreeMap<DatasetId, Entry>,
    names: BTreeSet<(String, DatasetId)>,
    dirs: BTreeSet<(PathBuf, u64, DatasetId)>,
    ended: Ended,
}

impl Table {
    pub fn ended(&self) -> &Ended {
        &self.ended
    }

    /// Removes ended mounts.
    pub fn clear_ended(&mut self) {
        let ended = std::mem::take(&mut *self.ended.lock());
        for (id, number) in ended {
            // Perhaps the dataset is mounted again.
            if self.get(id).is_some_and(|entry| entry.number == number) {
                self.remove(id);
            }
        }
    }

    /// Adds a mount, unless it has ended already.
    pub fn insert(&mut self, id: DatasetId, entry: Entry) {
        self.remove(id);
        if entry.has_ended.load(Ordering::Acquire) {
            return;
        }
        self.names.insert((entry.name.clone(), id));
        self.dirs.insert((entry.mounted.dir().to_owned(), entry.number, id));
        self.entries.insert(id, entry);
    }

    pub fn remove(&mut self, id: DatasetId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.names.remove(&(entry.name.clone(), id));
        self.dirs.remove(&(entry.mounted.dir().to_owned(), entry.number, id));
        Some(entry)
    }

    pub fn rename(&mut self, id: DatasetId, name: &str) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.name, name.into());
        self.names.remove(&(before, id));
        self.names.insert((name.into(), id));
    }

    pub fn get(&self, id: DatasetId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub fn get_mut(&mut self, id: DatasetId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub fn values(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// All mounted datasets.
    pub fn ids(&self) -> Vec<DatasetId> {
        self.entries.keys().copied().collect()
    }

    /// The dataset of this name and those below it.
    pub fn at_or_below(&self, name: &str) -> Vec<DatasetId> {
        let below = format!("{name}/");
        let own = self.names.range((name.to_owned(), DatasetId(0))..).take_while(|(other, _)| other == name);
        let rest = self.names.range((below.clone(), DatasetId(0))..);
        let rest = rest.take_while(|(other, _)| other.starts_with(&below));
        own.chain(rest).map(|(_, id)| *id).collect()
    }

    /// The mounts on a directory and below it.
    pub fn in_dir(&self, dir: &Path) -> impl Iterator<Item = (DatasetId, &Entry)> {
        let inside = self.dirs.range((dir.to_owned(), 0, DatasetId(0))..);
        let inside = inside.take_while(move |(other, ..)| other.starts_with(dir));
        inside.filter_map(|(.., id)| Some((*id, self.get(*id)?)))
    }

    /// The places of these mounts: parents before children, lower before upper.
    pub fn places(&self, ids: impl IntoIterator<Item = DatasetId>) -> Vec<Place> {
        let meant = ids.into_iter().filter_map(|id| Some((id, self.get(id)?)));
        let place = |(id, entry): (DatasetId, &Entry)| {
            let (dir, number) = (entry.mounted.dir().to_owned(), entry.number);
            Place { id, name: entry.name.clone(), dir, number }
        };
        let mut places: Vec<Place> = meant.map(place).collect();
        places.sort_by(|one, other| (&one.dir, one.number).cmp(&(&other.dir, other.number)));
        places
    }

    /// These mounts in unmounting order: children before parents, upper before lower.
    pub fn top_down(&self, ids: impl IntoIterator<Item = DatasetId>) -> Vec<(DatasetId, String)> {
        let mut meant = self.places(ids);
        meant.reverse();
        meant.into_iter().map(|place| (place.id, place.name)).collect()
    }
}
