//! What passes to and from the vdevs of an open pool, as its devices and queues have counted it.

use std::collections::BTreeMap;

use cenote_device::{Counters, Counts, Op};
use cenote_format::units::Guid;
use cenote_pool::{ClassLoad, IoClass, VdevStatus};
use serde::{Deserialize, Serialize};

use crate::pools::OpenPool;

/// What passes to and from a vdev.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads of its devices.
    pub read: Counts,
    /// Writes.
    pub write: Counts,
    /// Discards.
    pub discard: Counts,
    /// By class, in the order of [`IoClass::ALL`].
    pub queues: [ClassLoad; IoClass::ALL.len()],
}

/// What waits and is under way at leaves, by guid.
pub type Loads = BTreeMap<Guid, [ClassLoad; IoClass::ALL.len()]>;

/// The loads of a pool now.
pub fn loads(pool: &OpenPool) -> Loads {
    pool.engine.pool().queue_loads().into_iter().collect()
}

impl Traffic {
    /// That of one device, without queues.
    pub fn of_device(counters: &Counters) -> Traffic {
        let [read, write, discard] = [Op::Read, Op::Write, Op::Discard].map(|op| counters.of(op));
        Traffic { read, write, discard, queues: Default::default() }
    }

    /// That of a vdev and all below.
    pub fn of(pool: &OpenPool, loads: &Loads, vdev: &VdevStatus) -> Traffic {
        let (mut sum, taps) = (Traffic::default(), pool.engine.pool().taps());
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

    /// Operations of a class, waiting and under way.
    pub fn queue(&self, class: IoClass) -> &ClassLoad {
        &self.queues[class as usize]
    }

    /// How long operations of some classes waited on average before they began.
    pub fn queued_ns(&self, classes: &[IoClass]) -> Option<u64> {
        let mut sum = ClassLoad::default();
        classes.iter().for_each(|class| sum.add(self.queue(*class)));
        sum.average_wait_ns()
    }

    /// What has passed since an earlier look.
    pub fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            read: self.read.since(&before.read),
            write: self.write.since(&before.write),
            discard: self.discard.since(&before.discard),
            queues: std::array::from_fn(|class| self.queues[class].since(&before.queues[class])),
        }
    }
}
