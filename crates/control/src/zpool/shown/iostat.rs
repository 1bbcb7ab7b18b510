//! `zpool iostat`: I/O counters of devices of the daemon's pools.
//!
//! Idea: an answer counts since each pool was opened. The caller computes rates from two.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_iostat`), zpool-iostat(8).

use std::collections::BTreeMap;

use cenote_dataset::usage::VdevUsage;
use cenote_format::units::{Guid, VdevId};
use cenote_host::pools::OpenPool;
use cenote_host::traffic::{Traffic, loads};
use cenote_pool::{PoolHealth, VdevClass, VdevStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show I/O statistics of the daemon's pools and devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Iostat {
    /// Name or guid; empty: all of the daemon's pools.
    #[serde(default)]
    pub pools: Vec<String>,
}

/// A pool's counters at one moment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Counted {
    /// Pool's name.
    pub pool: String,
    /// Nanoseconds since the pool was opened and counting began.
    pub open_ns: u64,
    /// Vdevs.
    pub health: PoolHealth,
    /// Space of the pool (without logs), top-level vdevs and cache devices.
    pub space: BTreeMap<Guid, Space>,
    /// I/O of each vdev, interior vdevs and cache devices included.
    pub traffic: BTreeMap<Guid, Traffic>,
}

/// Space of a pool or vdev.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Space {
    /// Allocated.
    pub allocated_bytes: u64,
    /// Free.
    pub free_bytes: u64,
}

impl Verb for Iostat {
    const NAME: &'static str = "zpool iostat";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Vec<Counted>;

    /// # Errors
    /// No daemon; a named pool is missing.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Counted>>, ControlError> {
        let Some(pools) = session.pools() else {
            let why =
                "no daemon runs (`cenote serve`), so no pool is in use; `cenote lab run` measures storage";
            return Err(ControlError::Refused(format!("cannot show I/O statistics: {why}")));
        };
        let mut held = pools.all();
        if !self.pools.is_empty() {
            held.clear();
            for name in &self.pools {
                held.extend(session.held(&session.find_pool(name).await?));
            }
        }
        let mut counted = Vec::with_capacity(held.len());
        for pool in held {
            counted.push(Counted::now(&pool).await?);
        }
        Ok(counted.into())
    }
}

impl Counted {
    /// Counters of an open pool.
    ///
    /// # Errors
    /// Its space can't be read.
    pub async fn now(pool: &OpenPool) -> Result<Counted, ControlError> {
        let mos = pool.engine.mos().await?;
        let (health, usage) = (mos.pool().status(), mos.usage().await?);
        let loads = loads(pool);
        let (mut space, mut traffic) = (BTreeMap::new(), BTreeMap::new());
        health.root.walk(&mut |vdev| _ = traffic.insert(vdev.guid, Traffic::of(pool, &loads, vdev)));
        for top in &health.root.children {
            let own = usage.iter().find(|usage| usage.vdev == VdevId(top.id)).map(space_of);
            space.extend(own.map(|own| (top.guid, own)));
        }
        space.insert(health.root.guid, sum(&health.root, &usage));
        for device in pool.engine.l2arc().devices().usage() {
            let free_bytes = device.capacity_bytes.saturating_sub(device.used_bytes);
            space.insert(device.vdev, Space { allocated_bytes: device.used_bytes, free_bytes });
            traffic.insert(device.vdev, Traffic::of_device(&device.counters));
        }
        let open_ns = pool.engine.runtime().now().since(pool.since).as_nanos() as u64;
        Ok(Counted { pool: pool.name.clone(), open_ns, health, space, traffic })
    }
}

fn space_of(usage: &VdevUsage) -> Space {
    let free_bytes = usage.size_bytes.saturating_sub(usage.allocated_bytes);
    Space { allocated_bytes: usage.allocated_bytes, free_bytes }
}

/// Space of all vdevs but logs.
fn sum(root: &VdevStatus, usage: &[VdevUsage]) -> Space {
    let is_log = |usage: &VdevUsage| {
        root.children.iter().any(|top| VdevId(top.id) == usage.vdev && top.class == VdevClass::Log)
    };
    let all = usage.iter().filter(|usage| !is_log(usage)).map(space_of);
    all.fold(Space::default(), |sum, one| Space {
        allocated_bytes: sum.allocated_bytes + one.allocated_bytes,
        free_bytes: sum.free_bytes + one.free_bytes,
    })
}
