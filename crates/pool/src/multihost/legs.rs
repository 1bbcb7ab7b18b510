//! The leaves of a pool as heartbeats see them: rings of uberblocks, read and written directly.
//!
//! Not through the pool's queues, caches and counters: an import is not sure of the pool yet, and a hung
//! device must not delay the others.

use super::MultihostError;
use crate::config::{PoolConfig, VdevClass, VdevConfig, VdevKind};
use crate::discover::FoundPool;
use crate::label::{last_slot, newest_uberblock, sealed};
use cenote_boxed::boxed;
use cenote_device::Device;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::Guid;
use cenote_runtime::Runtime;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// How long a device may take for its rings; a hung one is left out.
const PATIENCE: Duration = Duration::from_secs(30);

/// All leaves of a pool.
#[derive(Clone)]
pub struct Legs {
    pub(super) runtime: Runtime,
    pub(super) pool: Arc<str>,
    pub(super) host: String,
    pub(super) hostid: u64,
    tops: Vec<TopLegs>,
}

#[derive(Clone)]
struct TopLegs {
    ashift: u32,
    need: Need,
    /// Leaves by child; those of a child hold the same.
    children: Vec<Child>,
}

#[derive(Clone)]
struct Child {
    is_taken_out: bool,
    leaves: Vec<Leg>,
}

#[derive(Clone)]
struct Leg {
    name: String,
    /// `None` if the leaf is missing or taken out.
    device: Option<Arc<dyn Device>>,
}

/// The children of a top-level vdev that must take a claim, so that every machine sees it.
#[derive(Clone, Copy)]
enum Need {
    /// Logs: none, since a pool opens without them.
    None,
    /// Mirrors and single disks: all not known to be out of use.
    All,
    /// RAID-Z, dRAID: one more than may be missing.
    AtLeast(usize),
}

/// The failure to write to some leaves.
enum Failed {
    Missing,
    Error(String),
}

impl Legs {
    /// The leaves of this configuration among the devices found. They must be those below a gate or fence.
    pub fn of(runtime: &Runtime, found: &FoundPool, config: &PoolConfig) -> Legs {
        let tops = config.vdevs.iter().filter(|top| top.kind.holds_data());
        Legs {
            runtime: runtime.clone(),
            pool: found.name().into(),
            host: found.config.hostname.clone().unwrap_or_else(|| "<unknown>".into()),
            hostid: found.config.hostid.unwrap_or(0),
            tops: tops.map(|top| TopLegs::of(found, top)).collect(),
        }
    }

    /// The newest uberblock on any leaf now.
    #[boxed]
    pub async fn newest(&self) -> Option<Uberblock> {
        let read = self.devices().map(|device| async move {
            self.runtime.timeout(PATIENCE, newest_uberblock(&**device)).await.ok().flatten()
        });
        join_all(read).await.into_iter().flatten().max_by_key(Uberblock::rank)
    }

    pub(super) fn active(&self) -> MultihostError {
        MultihostError::Active { host: self.host.clone(), hostid: self.hostid }
    }

    fn devices(&self) -> impl Iterator<Item = &Arc<dyn Device>> {
        let children = self.tops.iter().flat_map(|top| &top.children);
        children.flat_map(|child| &child.leaves).filter_map(|leaf| leaf.device.as_ref())
    }

    /// Durably writes an uberblock to the reserved slot of these labels on all leaves that take it. At least
    /// one must.
    pub(super) async fn write_where_possible(
        &self,
        uberblock: &Uberblock,
        labels: &[u32],
    ) -> Result<(), MultihostError> {
        let leaves = self.tops.iter().flat_map(|top| {
            let leaves = top.children.iter().flat_map(|child| &child.leaves);
            leaves.map(|leaf| self.put(leaf, top.ashift, uberblock, labels))
        });
        let put = join_all(leaves).await;
        let why = put.iter().find_map(|put| match put {
            Err(Failed::Error(why)) => Some(why.clone()),
            _ => None,
        });
        match put.iter().any(Result::is_ok) {
            true => Ok(()),
            false => {
                Err(MultihostError::LegsFailed { legs: "any device".into(), why: why.unwrap_or_default() })
            }
        }
    }

    /// The same on all leaves.
    ///
    /// # Errors
    /// Too few take it for every machine to see it.
    pub(super) async fn write(&self, uberblock: &Uberblock, labels: &[u32]) -> Result<(), MultihostError> {
        let tops = self.tops.iter().map(|top| self.write_top(top, uberblock, labels));
        let tops = join_all(tops).await;
        let fail = |is_meant: fn(&Failed) -> bool| {
            let of = tops.iter().flatten().filter(|(_, failed)| is_meant(failed));
            of.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let missing = fail(|failed| matches!(failed, Failed::Missing));
        if !missing.is_empty() {
            return Err(MultihostError::LegsMissing { legs: missing });
        }
        let error = tops.iter().flatten().find_map(|(_, failed)| match failed {
            Failed::Error(why) => Some(why.clone()),
            Failed::Missing => None,
        });
        match error {
            Some(why) => Err(MultihostError::LegsFailed { legs: fail(|_| true), why }),
            None => Ok(()),
        }
    }

    /// The children that lack it, if too many do.
    async fn write_top(&self, top: &TopLegs, uberblock: &Uberblock, labels: &[u32]) -> Vec<(String, Failed)> {
        let children = join_all(top.children.iter().map(|child| async move {
            let leaves = child.leaves.iter();
            let put = join_all(leaves.map(|leaf| self.put(leaf, top.ashift, uberblock, labels))).await;
            (child, put)
        }));
        let (mut taken, mut lacking) = (0, Vec::new());
        for (child, put) in children.await {
            if put.iter().any(Result::is_ok) {
                taken += 1;
                continue;
            }
            let is_needed = !child.is_taken_out || !matches!(top.need, Need::All);
            let failed = child.leaves.iter().zip(put).filter(|_| is_needed);
            lacking.extend(failed.filter_map(|(leaf, put)| Some((leaf.name.clone(), put.err()?))));
        }
        let is_enough = match top.need {
            Need::None => true,
            Need::All => lacking.is_empty() && taken > 0,
            Need::AtLeast(count) => taken >= count,
        };
        if is_enough { Vec::new() } else { lacking }
    }

    async fn put(
        &self,
        leaf: &Leg,
        ashift: u32,
        uberblock: &Uberblock,
        labels: &[u32],
    ) -> Result<(), Failed> {
        let device = leaf.device.as_ref().ok_or(Failed::Missing)?;
        let (at, slot) = last_slot(uberblock, ashift);
        let parts = labels.iter().map(|&label| sealed(device.size_bytes(), label, at, &slot));
        let parts: Vec<_> = parts.collect::<Option<_>>().ok_or(Failed::Missing)?;
        let write = async {
            for (offset, bytes) in parts {
                device.write_at(offset, bytes).await?;
            }
            device.flush().await
        };
        match self.runtime.timeout(PATIENCE, write).await {
            Ok(done) => done.map_err(|error| Failed::Error(error.to_string())),
            Err(_) => Err(Failed::Error("the device does not answer".into())),
        }
    }
}

impl TopLegs {
    fn of(found: &FoundPool, top: &VdevConfig) -> TopLegs {
        let need = match (top.class, &top.kind) {
            (VdevClass::Log, _) => Need::None,
            (_, VdevKind::Raidz | VdevKind::Draid) => {
                let failure_groups = top.draid.map_or(1, |draid| draid.failure_groups as usize);
                Need::AtLeast(top.parity * failure_groups + 1)
            }
            _ => Need::All,
        };
        let whole = std::slice::from_ref(top);
        let children = if top.children.is_empty() { whole } else { &top.children };
        TopLegs {
            ashift: top.ashift,
            need,
            children: children.iter().map(|one| Child::of(found, one)).collect(),
        }
    }
}

impl Child {
    fn of(found: &FoundPool, child: &VdevConfig) -> Child {
        let leaves = child.leaves().filter(|leaf| leaf.kind != VdevKind::DistributedSpare);
        let leg = |leaf: &VdevConfig| {
            let found = found.device(leaf.guid);
            let name = found.map(|device| device.path.clone()).or_else(|| leaf.path.clone());
            Leg {
                name: name.unwrap_or_else(|| Guid::to_string(&leaf.guid)),
                device: found.filter(|_| !leaf.is_taken_out()).map(|device| device.device.clone()),
            }
        };
        Child { is_taken_out: child.is_taken_out(), leaves: leaves.map(leg).collect() }
    }
}
