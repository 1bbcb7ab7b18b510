//! The record of pools, `pools.json`: the daemon's pools and their devices.
//!
//! ```text
//!   the engine writes its configuration --on_config--> changes + 1 --> a task, and each command: note
//!   note: new file, fsync, rename, fsync of the folder          (nothing, if unchanged)
//! ```
//!
//! Idea: one hook, where configurations are written, sees every change of a pool's devices. A command's
//! change is recorded before it returns, others a moment later. A leaf whose device is missing keeps its last
//! place.
//!
//! Locking: `noted` is held while the file is written, so that an earlier state never overwrites a later one.
//! It is not awaited under another lock.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_device::Place;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{VdevConfig, VdevKind};
use cenote_runtime::Runtime;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::own;

/// Contents of the record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Pools open, or waiting to be opened.
    pub pools: Vec<NotedPool>,
}

/// A recorded pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedPool {
    /// Its name.
    pub name: String,
    /// Its guid; 0: unknown.
    #[serde(default)]
    pub guid: u64,
    /// Its devices.
    pub devices: Vec<NotedDevice>,
}

/// A recorded device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct NotedDevice {
    /// Its leaf's guid; 0: unknown.
    pub guid: u64,
    /// Its last place; a path is absolute.
    pub path: Place,
}

/// A device in the file: old files have only paths.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Path(Place),
    Device { guid: u64, path: Place },
}

impl From<Written> for NotedDevice {
    fn from(written: Written) -> NotedDevice {
        match written {
            Written::Path(path) => NotedDevice { guid: 0, path },
            Written::Device { guid, path } => NotedDevice { guid, path },
        }
    }
}

impl State {
    /// Parses a file; empty if invalid.
    pub fn parse(json: &[u8]) -> State {
        serde_json::from_slice(json).unwrap_or_default()
    }
}

impl NotedPool {
    /// An open pool's current state; `before` has the places of missing devices.
    pub fn of(name: &str, engine: &Engine, before: Option<&NotedPool>) -> NotedPool {
        let pool = engine.pool();
        let (config, found) = (pool.tree().config(), pool.tree().found());
        let known: BTreeMap<u64, &Place> =
            before.iter().flat_map(|pool| &pool.devices).map(|device| (device.guid, &device.path)).collect();
        let place = |leaf: &VdevConfig| {
            let here = found.device(leaf.guid).map(|device| device.place().absolute());
            let here = here.or_else(|| known.get(&leaf.guid.0).map(|&place| place.clone()));
            // The label's path may be another machine's, but is better than none.
            let is_absolute = |path: &&String| Path::new(path).is_absolute();
            let in_label = leaf.path.as_ref().filter(is_absolute);
            here.or_else(|| in_label.map(|path| Place::from(Path::new(path))))
        };
        let is_device = |leaf: &&VdevConfig| matches!(leaf.kind, VdevKind::Disk | VdevKind::File);
        let leaves = config.vdevs.iter().flat_map(VdevConfig::leaves).chain(&config.spares);
        let leaves = leaves.chain(&config.l2cache).filter(is_device);
        let device = |leaf: &VdevConfig| Some(NotedDevice { guid: leaf.guid.0, path: place(leaf)? });
        let mut devices: Vec<NotedDevice> = leaves.filter_map(device).collect();
        devices.sort_by(|one, other| (&one.path, one.guid).cmp(&(&other.path, other.guid)));
        devices.dedup();
        NotedPool { name: name.into(), guid: pool.tree().guid().0, devices }
    }

    /// A pool known only by name.
    pub fn named(name: &str) -> NotedPool {
        NotedPool { name: name.into(), guid: 0, devices: Vec::new() }
    }

    /// The guid to search for, or the name.
    pub fn key(&self) -> String {
        if self.guid == 0 { self.name.clone() } else { self.guid.to_string() }
    }

    /// Whether it is this pool.
    pub fn is(&self, name: &str, guid: Guid) -> bool {
        if self.guid == 0 { self.name == name } else { self.guid == guid.0 }
    }

    /// Last places of its devices.
    pub fn places(&self) -> Vec<Place> {
        self.devices.iter().map(|device| device.path.clone()).collect()
    }
}

/// Checks that no other user can write a record.
///
/// # Errors
/// Another user can, or it can't be read.
pub fn check(path: &Path) -> io::Result<()> {
    own::read(path).map(drop)
}

/// The record's file.
pub struct Record {
    path: PathBuf,
    /// Counts changes of the pools.
    changes: AtomicU64,
    changed: Notify,
    noted: tokio::sync::Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    state: State,
    /// Changes included.
    changes: u64,
    /// Set when the daemon ends: pools closed from now on stay in the record.
    is_final: bool,
}

impl Record {
    /// Reads the record in this file.
    pub fn read(path: PathBuf) -> (Record, State) {
        let json = own::read(&path).ok().flatten();
        let state = json.map(|json| State::parse(&json)).unwrap_or_default();
        let noted = Noted { state: state.clone(), ..Noted::default() };
        let (changes, changed) = Default::default();
        (Record { path, changes, changed, noted: noted.into() }, state)
    }

    /// Notes that a pool has come, gone, or changed.
    pub fn has_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// Waits for the next change.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Freezes the file.
    pub async fn end(&self) {
        self.noted.lock().await.is_final = true;
    }

    /// Updates the file; `now` computes the new contents from the old.
    ///
    /// # Errors
    /// The file can't be written, and is unchanged.
    pub async fn note(
        self: Arc<Record>,
        runtime: &Runtime,
        now: impl Fn(&State) -> State + Send + 'static,
    ) -> io::Result<()> {
        let blocking = runtime.clone();
        let note = async move {
            let mut noted = self.noted.lock().await;
            let changes = self.changes.load(Ordering::Acquire);
            if noted.changes == changes || noted.is_final {
                return Ok(());
            }
            let state = now(&noted.state);
            if state != noted.state {
                let (json, path) = (serde_json::to_vec_pretty(&state)?, self.path.clone());
                blocking.blocking(move || own::replace(&path, &json)).await?;
            }
            (noted.state, noted.changes) = (state, changes);
            Ok(())
        };
        runtime.to_end(note).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(devices: &[(u64, &str)]) -> NotedPool {
        let device = |&(guid, path): &(u64, &str)| NotedDevice { guid, path: Path::new(path).into() };
        NotedPool { name: "tank".into(), guid: 7, devices: devices.iter().map(device).collect() }
    }

    #[test]
    fn a_record_of_an_older_version_is_understood() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pools.json");
        std::fs::write(&path, r#"{"pools": [{"name": "tank", "devices": ["/dev/sda"]}]}"#).unwrap();
        let (_, state) = Record::read(path);
        assert_eq!(state.pools, [NotedPool { guid: 0, ..pool(&[(0, "/dev/sda")]) }]);
        assert_eq!(state.pools[0].key(), "tank");
    }

    #[test]
    fn a_change_is_in_the_file_that_the_next_start_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pools.json");
        let runtime = Runtime::real(Some(1));
        let record = Arc::new(Record::read(path.clone()).0);
        let state = State { pools: vec![pool(&[(1, "/dev/sda"), (2, "/dev/sdb")])] };
        let note = |state: &State| {
            let state = state.clone();
            runtime.block_on(record.clone().note(&runtime, move |_| state.clone())).unwrap();
        };
        note(&state);
        assert_eq!(Record::read(path.clone()).1, State::default());
        record.has_changed();
        note(&state);
        assert_eq!(Record::read(path.clone()).1, state);
        runtime.block_on(record.end());
        record.has_changed();
        note(&State::default());
        assert_eq!(Record::read(path.clone()).1, state);
        assert!(!path.with_extension("new").exists());
    }
}
