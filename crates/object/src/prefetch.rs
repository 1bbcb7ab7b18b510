//! Read-ahead for sequential readers of files and volumes.
//!
//! Idea: all states of an open object set share one [`Prefetcher`], which sees each read of data ([`stream`]
//! judges them) and starts tasks that read ahead, a window each. A task has its own view of the set and
//! queues I/O as [`IoClass::AsyncRead`], behind waiting readers.
//!
//! Cancelling: tasks end with the prefetcher, when the set is no longer open. A reader waits for a task only
//! if it needs one of its blocks, and reads the block itself if the task is cancelled.
//!
//! Locking: streams lie in shards by object, each behind a mutex held for some arithmetic. A read served from
//! the cache skips a busy shard: streams tolerate unseen accesses. The list of tasks has its own mutex, taken
//! last.
//!
//! Memory: streams of [`MOST_OBJECTS`] objects; windows within [`cenote_cache::Prefetch::permit`].
//!
//! Source: OpenZFS `dmu_zfetch.c`.

mod stream;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use cenote_cache::{Looked, Permit, Scope};
use cenote_format::units::{BlockId, ObjectId};
use cenote_pool::IoClass;
use cenote_runtime::AbortOnDrop;
use parking_lot::Mutex;

use crate::live::layer::Shown;
use crate::object::Object;

use stream::{Access, Ahead, Streams, WINDOW_BYTES};

const SHARDS: usize = 8;
const MOST_OBJECTS: usize = 512;

#[derive(Default)]
pub(crate) struct Prefetcher {
    objects: [Mutex<BTreeMap<ObjectId, Streams>>; SHARDS],
    tasks: Mutex<Vec<Task>>,
}

struct Task {
    alive: Weak<()>,
    _task: AbortOnDrop<()>,
}

impl Prefetcher {
    pub(crate) fn note(&self, object: &Object, blocks: Range<u64>, looked: Looked) {
        let (objset, last_block) = (object.objset(), object.dnode().max_block_id.0);
        // Without cached data, sequential readers read ahead themselves.
        if last_block < 2 || object.dnode().object_type.is_metadata() || !objset.cache().caches_data() {
            return;
        }
        let (shared, caching) = (objset.cache().prefetch(), objset.caching().get());
        let values = shared.settings().values();
        if values.is_disabled || caching.prefetch == Scope::None {
            return;
        }
        let most_bytes = shared.most_active_bytes();
        let access = Access {
            blocks,
            last_block,
            block_bytes: object.block_bytes().max(1),
            now_ns: objset.pool().runtime().coarse_now().as_ns(),
            looked,
            with_data: caching.prefetch == Scope::All && caching.primary == Scope::All,
            most_bytes,
            is_full: shared.active_bytes() > most_bytes / 2,
        };
        let (seen, ahead) = {
            let objects = &self.objects[object.id().0 as usize % SHARDS];
            let objects = if looked == Looked::default() { objects.try_lock() } else { Some(objects.lock()) };
            let Some(mut objects) = objects else { return };
            make_room(&mut objects, object.id());
            objects.entry(object.id()).or_default().access(&access, &values)
        };
        shared.note(seen);
        self.start(object, &ahead);
    }

    fn start(&self, object: &Object, ahead: &Ahead) {
        let shared = object.objset().cache().prefetch();
        let window = (WINDOW_BYTES / object.block_bytes().max(1)).max(1);
        let mut at = ahead.data.start;
        while at < ahead.data.end {
            let end = (at + window).min(ahead.data.end);
            let Some(permit) = shared.permit((end - at).saturating_mul(object.block_bytes())) else { return };
            self.spawn(object, 0, at..end, permit);
            at = end;
        }
        // Indirect blocks that begin in the range; the one before was requested already.
        let shift = object.dnode().fanout_shift();
        let indirect = ahead.indirect.start.div_ceil(1 << shift)..ahead.indirect.end.div_ceil(1 << shift);
        if object.dnode().levels > 1 && !indirect.is_empty() {
            let bytes = (indirect.end - indirect.start) << object.dnode().indirect_block_shift;
            if let Some(permit) = shared.permit(bytes) {
                self.spawn(object, 1, indirect, permit);
            }
        }
    }

    fn spawn(&self, object: &Object, level: u8, blocks: Range<u64>, permit: Permit) {
        let alive = Arc::new(());
        let still = Arc::downgrade(&alive);
        let objset = object.objset().apart(IoClass::AsyncRead);
        let object = Object::new(objset, object.id(), object.dnode().clone());
        let task = object.objset().pool().runtime().clone().spawn(async move {
            object.read_ahead(level, blocks).await;
            drop((permit, alive));
        });
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| task.alive.strong_count() > 0);
        tasks.push(Task { alive: still, _task: task.abort_on_drop() });
    }
}

/// Evicts the longest unused.
fn make_room(objects: &mut BTreeMap<ObjectId, Streams>, object: ObjectId) {
    if objects.len() >= MOST_OBJECTS / SHARDS && !objects.contains_key(&object) {
        let oldest = objects.iter().min_by_key(|(_, streams)| streams.used_ns()).map(|(&id, _)| id);
        oldest.map(|id| objects.remove(&id));
    }
}

impl Object {
    /// Errors are left to later readers.
    async fn read_ahead(&self, level: u8, blocks: Range<u64>) {
        let objset = self.objset();
        let mut requests = Vec::new();
        for run in self.pointers(level, blocks).await {
            for (block, bp) in (run.first.0..).map(BlockId).zip(run.pointers.unwrap_or_default()) {
                // Changed blocks are in memory.
                let is_wanted = level > 0 || objset.layers().block(self.id(), block) == Shown::Below;
                if !bp.is_hole() && is_wanted {
                    requests.push((bp, objset.context(self.id(), level, block)));
                }
            }
        }
        objset.cache().read_ahead(objset.pool(), requests, objset.caching().get()).await;
    }
}
