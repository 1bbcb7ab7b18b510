//! I/O counters of an open pool's vdevs, from their devices and queues.

use std::collections::BTreeMap;

use cenote_device::{Counters, Counts, Op};
use cenote_format::units::Guid;
use cenote_pool::{ClassLoad, IoClass, VdevStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pools::OpenPool;

/// I/O of a vdev.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Reads of its devices.
    pub read: Counts,
    /// Writes.
    pub write: Counts,
    /// Discards.
    pub discard: Counts,
    /// Queues by class, in the order of [`IoClass::ALL`].
    pub queues: [ClassLoad; IoClass::ALL.len()],
}

/// Queued and active operations of leaves, by guid.
pub type Loads = BTreeMap<Guid, [ClassLoad; IoClass::ALL.len()]>;

/// A pool's current loads.
pub fn loads(pool: &OpenPool) -> Loads {
    pool.engine.pool().counters().loads().into_iter().collect()
}

impl Traffic {
    /// One device's I/O, without queues.
    pub fn of_device(counters: &Counters) -> Traffic {
        let [read, write, discard] = [Op::Read, Op::Write, Op::Discard].map(|op| counters.of(op));
        Traffic { read, write, discard, queues: Default::default() }
    }

    /// I/O of a vdev and all vdevs below.
    pub fn of(pool: &OpenPool, loads: &Loads, vdev: &VdevStatus) -> Traffic {
        let (mut sum, taps) = (Traffic::default(), pool.engine.pool().counters().leaf_io());
        vdev.walk(&mut |vdev| {
            if let Some(taps) = &taps {
                let Traffic { read, write, discard, .. } = Traffic::of_device(&taps.of(vdev.guid).counters);
                sum.read.add(&read);
                sum.write.add(&write);
                sum.discard.add(&discard);
            }
            if let Some(load) = loads.get(&vdev.guid) {
                sum.queues.iter_mut().zip(load).for_each(|(sum, load)| sum.add(load));
            }
        });
        sum
    }

    /// A class's queued and active operations.
    pub fn queue(&self, class: IoClass) -> &ClassLoad {
        &self.queues[class as usize]
    }

    /// Average queueing time, in nanoseconds, of some classes.
    pub fn queued_ns(&self, classes: &[IoClass]) -> Option<u64> {
        let mut sum = ClassLoad::default();
        classes.iter().for_each(|class| sum.add(self.queue(*class)));
        sum.average_wait_ns()
    }

    /// The difference from an earlier look.
    pub fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            read: self.read.since(&before.read),
            write: self.write.since(&before.write),
            discard: self.discard.since(&before.discard),
            queues: std::array::from_fn(|class| self.queues[class].since(&before.queues[class])),
        }
    }
}
