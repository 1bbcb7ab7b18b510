//! Events of the daemon's pools: `zpool events`.
//!
//! Idea: a ring in memory, like the kernel module's. Old events make room for new ones, and all are lost with
//! the daemon. Classes and members are OpenZFS's.
//!
//! Locking: the ring has one lock, held for one look or change; waiters are woken after it.
//!
//! Source: OpenZFS `zfs_fm.c`, `sys/sysevent/eventdefs.h`.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_engine::{Engine, WeakEngine};
use cenote_format::history::key;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::units::Guid;
use cenote_pool::{ErrorCounts, VdevState};
use cenote_runtime::Runtime;
use parking_lot::Mutex;
use tokio::sync::Notify;

const MAX_EVENTS: usize = 1024;
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// An event.
#[derive(Debug, Clone)]
pub struct Event {
    /// Counts up from 1.
    pub id: u64,
    /// Its class, such as `sysevent.fs.zfs.pool_import`.
    pub class: &'static str,
    /// The pool's name.
    pub pool: String,
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    /// All members.
    pub members: Nvlist,
}

/// The last events. Clones share them.
#[derive(Debug, Clone)]
pub struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    runtime: Runtime,
    ring: Mutex<Ring>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Ring {
    last_id: u64,
    events: VecDeque<Event>,
}

impl Events {
    /// An empty ring.
    pub fn new(runtime: &Runtime) -> Events {
        let (ring, more) = Default::default();
        Events(Arc::new(Shared { runtime: runtime.clone(), ring, more }))
    }

    /// Posts an event of a pool.
    pub fn post(&self, class: &'static str, pool: &str, guid: Guid, more: Nvlist) {
        let unix_ns = self.0.runtime.unix_time_ns();
        let mut members = Nvlist::new();
        members.insert("version", NvValue::Byte(0));
        members.insert("class", text(class));
        members.insert("pool", text(pool));
        members.insert("pool_guid", NvValue::Uint64(guid.0));
        members.insert("pool_state", NvValue::Int32(0));
        members.insert("pool_context", NvValue::Int32(0));
        for (name, value) in more.iter() {
            members.insert(name, value.clone());
        }
        let time = vec![(unix_ns / 1_000_000_000) as i64, (unix_ns % 1_000_000_000) as i64];
        members.insert("time", NvValue::Int64Array(time));
        {
            let mut ring = self.0.ring.lock();
            ring.last_id += 1;
            let id = ring.last_id;
            members.insert("eid", NvValue::Uint64(id));
            if ring.events.len() == MAX_EVENTS {
                ring.events.pop_front();
            }
            ring.events.push_back(Event { id, class, pool: pool.into(), unix_ns, members });
        }
        self.0.more.notify_waiters();
    }

    /// Events after `id`.
    pub fn after(&self, id: u64) -> Vec<Event> {
        let ring = self.0.ring.lock();
        ring.events.iter().filter(|event| event.id > id).cloned().collect()
    }

    /// Waits for events after `id`.
    #[boxed]
    pub async fn wait_after(&self, id: u64) {
        loop {
            let more = self.0.more.notified();
            if self.0.ring.lock().last_id > id {
                return;
            }
            more.await;
        }
    }

    /// Drops all events; returns their number.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut self.0.ring.lock().events).len()
    }

    /// Posts an event for each record of a pool's history.
    pub fn listen(&self, engine: &Engine, pool: &str) {
        let (events, pool, weak) = (self.clone(), pool.to_owned(), engine.weak());
        engine.history().listen(move |record| {
            let mut members = Nvlist::new();
            for (shown, name) in [
                ("history_command", key::CMD),
                ("history_hostname", key::HOST),
                ("history_dsname", key::DSNAME),
                ("history_internal_str", key::INT_STR),
                ("history_internal_name", key::INT_NAME),
            ] {
                if let Some(value) = record.get_str(name) {
                    members.insert(shown, text(value));
                }
            }
            for (shown, name) in
                [("history_dsid", key::DSID), ("history_txg", key::TXG), ("history_time", key::TIME)]
            {
                if let Some(number) = record.get_u64(name) {
                    members.insert(shown, NvValue::Uint64(number));
                }
            }
            let Ok(engine) = weak.upgrade() else { return };
            events.post("sysevent.fs.zfs.history_event", &pool, engine.pool().tree().guid(), members);
        });
    }

    /// Posts a device's error, with its count if any.
    pub fn report(&self, class: &'static str, engine: &Engine, pool: &str, leaf: Guid, count: Option<u64>) {
        let device = seen(engine).into_iter().find(|device| device.guid == leaf);
        let mut members = device.map_or_else(Nvlist::new, |device| device.members());
        if let Some(count) = count {
            members.insert("count", NvValue::Uint64(count));
        }
        self.post(class, pool, engine.pool().tree().guid(), members);
    }

    /// Posts changes of a pool's device states, until the pool is closed.
    #[boxed]
    pub async fn watch(self, engine: WeakEngine, pool: String) {
        let look = || engine.upgrade().map(|engine| (engine.pool().tree().guid(), seen(&engine)));
        let Ok((_, mut before)) = look() else { return };
        loop {
            self.0.runtime.sleep(LOOK_INTERVAL).await;
            let Ok((guid, now)) = look() else { return };
            for device in &now {
                let was = before.iter().find(|was| was.guid == device.guid);
                let Some(was) = was.filter(|was| was.state != device.state) else { continue };
                let mut members = device.members();
                members.insert("vdev_state", text(&device.state.to_string()));
                members.insert("vdev_laststate", text(&was.state.to_string()));
                if device.state == VdevState::Removed {
                    self.post("resource.fs.zfs.removed", &pool, guid, members.clone());
                }
                self.post("resource.fs.zfs.statechange", &pool, guid, members);
            }
            before = now;
        }
    }
}

fn text(text: &str) -> NvValue {
    NvValue::String(text.as_bytes().to_vec())
}

struct Seen {
    guid: Guid,
    path: Option<String>,
    state: VdevState,
    errors: ErrorCounts,
}

impl Seen {
    fn members(&self) -> Nvlist {
        let mut members = Nvlist::new();
        members.insert("vdev_guid", NvValue::Uint64(self.guid.0));
        if let Some(path) = &self.path {
            members.insert("vdev_path", text(path));
        }
        members.insert("vdev_read_errors", NvValue::Uint64(self.errors.read));
        members.insert("vdev_write_errors", NvValue::Uint64(self.errors.write));
        members.insert("vdev_cksum_errors", NvValue::Uint64(self.errors.checksum));
        members
    }
}

fn seen(engine: &Engine) -> Vec<Seen> {
    let mut seen = Vec::new();
    engine.pool().status().root.walk(&mut |vdev| {
        let (guid, path, state, errors) = (vdev.guid, vdev.path.clone(), vdev.state, vdev.errors);
        seen.push(Seen { guid, path, state, errors });
    });
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_last_events() {
        let runtime = Runtime::real(Some(1));
        let events = Events::new(&runtime);
        for _ in 0..MAX_EVENTS + 10 {
            events.post("sysevent.fs.zfs.config_sync", "tank", Guid(7), Nvlist::new());
        }
        let all = events.after(0);
        assert_eq!((all.len(), all[0].id), (MAX_EVENTS, 11));
        assert_eq!(events.after(MAX_EVENTS as u64 + 8).len(), 2);
        runtime.block_on(events.wait_after(0));
        assert_eq!((events.clear(), events.after(0).len()), (MAX_EVENTS, 0));
        events.post("sysevent.fs.zfs.pool_export", "tank", Guid(7), Nvlist::new());
        assert_eq!(events.after(0)[0].id, MAX_EVENTS as u64 + 11);
    }
}
