//! An assembled pool: a cheap, immutable handle for reading and writing blocks.
//!
//! A pool is assembled twice. The labels alone give a tree that can read the MOS; the MOS gives the trusted
//! configuration, from which the same devices are assembled again.
//!
//! Locking: a [`Pool`] never changes, and may be cloned and used from any task. Later views (`at`,
//! `with_*`) share its devices, error counters and missed txgs, which synchronise themselves (`vdev::leaf`,
//! `vdev::missed`).

use crate::config::{PoolConfig, PoolState, VdevClass, VdevConfig};
use crate::crypt::DatasetKey;
use crate::discover::{FoundDevice, FoundPool};
use crate::error::Result;
use crate::health::{ErrorCounts, PoolHealth};
use crate::vdev::missed::{Missed, MissedTxgs};
use crate::vdev::{VdevTree, build};
use crate::zbookmark::Zbookmark;
use cenote_boxed::boxed;
use cenote_codec::checksum::ChecksumSalt;
use cenote_format::features::Since;
use cenote_format::indirect::IndirectMapping;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pool, assembled from devices. Cloning it costs two atomic increments.
#[derive(Clone)]
pub struct Pool {
    parts: Arc<Parts>,
    uberblock: Arc<Uberblock>,
}

/// What stays the same from txg to txg.
#[derive(Clone)]
struct Parts {
    runtime: Runtime,
    config: PoolConfig,
    vdevs: Arc<VdevTree>,
    found: Arc<FoundPool>,
    behind: MissedTxgs,
    missed: Arc<Missed>,
    salt: Option<ChecksumSalt>,
    may_be_live: bool,
}

/// Context of a read: what the block is, and the key for it.
#[derive(Debug, Default, Clone)]
pub struct ReadContext {
    /// Named in errors.
    pub place: Zbookmark,
    /// Opens encrypted blocks.
    pub key: Option<Arc<DatasetKey>>,
}

impl ReadContext {
    /// For a block that is not encrypted.
    pub fn new(place: Zbookmark) -> ReadContext {
        ReadContext { place, key: None }
    }

    /// The same with a key, if there is one.
    pub fn with_key(mut self, key: Option<Arc<DatasetKey>>) -> ReadContext {
        self.key = key;
        self
    }
}

/// What the MOS knows about the pool and labels don't.
#[derive(Debug, Clone)]
pub struct Trusted {
    /// The configuration in the MOS ([`PoolConfig::from_mos`]).
    pub config: PoolConfig,
    /// For each removed top-level vdev, where its bytes are now.
    pub indirect: BTreeMap<VdevId, Arc<IndirectMapping>>,
    /// The txgs that leaves missed, as runs of first and last txg (their dirty time logs, DTL).
    pub behind: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    /// `org.illumos:checksum_salt`.
    pub checksum_salt: Option<[u8; 32]>,
}

impl Pool {
    /// Assembles a pool from labels alone, as of `uberblock` (one of `found.uberblocks`).
    ///
    /// Enough to read the MOS; a removed vdev's blocks and salted checksums need [`Pool::with_trusted`].
    /// Missing devices are no error here, only when something that they alone hold is read.
    #[boxed]
    pub async fn assemble(rt: &Runtime, found: &FoundPool, uberblock: &Uberblock) -> Result<Pool> {
        let found = Arc::new(found.clone());
        let config = found.config.clone();
        let (indirect, behind) = (BTreeMap::new(), BTreeMap::new());
        let material = build::Material {
            runtime: rt,
            uberblock,
            found: &found,
            indirect: &indirect,
            behind: &behind,
            earlier: &[],
        };
        let vdevs = Arc::new(build::build(&config, &material));
        let may_be_live = found.state() == PoolState::Active && !found.is_writable();
        let missed = Arc::default();
        let runtime = rt.clone();
        let parts = Parts { runtime, config, vdevs, found, behind, missed, salt: None, may_be_live };
        Ok(Pool { parts: Arc::new(parts), uberblock: Arc::new(*uberblock) })
    }

    /// The same pool as of another root, after a txg was synced. Devices, counters and configuration are
    /// shared.
    pub fn at(&self, uberblock: &Uberblock) -> Pool {
        Pool { parts: self.parts.clone(), uberblock: Arc::new(*uberblock) }
    }

    /// The same pool, devices and error counters, with the MOS's configuration instead of the labels'.
    #[boxed]
    pub async fn with_trusted(&self, trusted: Trusted) -> Result<Pool> {
        let parts = &self.parts;
        let vdevs = build::build(
            &trusted.config,
            &build::Material {
                runtime: &parts.runtime,
                uberblock: &self.uberblock,
                found: &parts.found,
                indirect: &trusted.indirect,
                behind: &trusted.behind,
                earlier: parts.vdevs.leaves(),
            },
        );
        let parts = Parts {
            runtime: parts.runtime.clone(),
            config: trusted.config,
            vdevs: Arc::new(vdevs),
            found: parts.found.clone(),
            behind: trusted.behind,
            missed: parts.missed.clone(),
            salt: trusted.checksum_salt.map(ChecksumSalt::new),
            may_be_live: parts.may_be_live,
        };
        Ok(Pool { parts: Arc::new(parts), uberblock: self.uberblock.clone() })
    }

    /// The same pool with more devices, which are about to join, for the configuration that
    /// [`Pool::with_trusted`] brings next.
    pub fn with_devices(&self, more: BTreeMap<Guid, FoundDevice>) -> Pool {
        let mut found = FoundPool::clone(&self.parts.found);
        found.devices.extend(more);
        let parts = Parts { found: Arc::new(found), ..Parts::clone(&self.parts) };
        Pool { parts: Arc::new(parts), uberblock: self.uberblock.clone() }
    }

    /// The same pool with vdevs that joined or left, and their devices: writes through it go to the new
    /// ones.
    pub fn with_vdevs(&self, vdevs: Vec<VdevConfig>, joining: BTreeMap<Guid, FoundDevice>) -> Pool {
        let grown = self.with_devices(joining);
        let config = PoolConfig { vdevs, ..grown.parts.config.clone() };
        let material = build::Material {
            runtime: &grown.parts.runtime,
            uberblock: &grown.uberblock,
            found: &grown.parts.found,
            indirect: &grown.parts.vdevs.indirect_maps(),
            behind: &grown.parts.behind,
            earlier: grown.parts.vdevs.leaves(),
        };
        let vdevs = Arc::new(build::build(&config, &material));
        let parts = Parts { config, vdevs, ..Parts::clone(&grown.parts) };
        Pool { parts: Arc::new(parts), uberblock: grown.uberblock }
    }

    /// The device of a leaf.
    pub fn device(&self, leaf: Guid) -> Option<&FoundDevice> {
        self.parts.found.devices.get(&leaf)
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.parts.runtime
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.parts.config.name
    }

    /// Its guid, which never changes.
    pub fn guid(&self) -> Guid {
        self.parts.config.guid
    }

    /// SPA version according to the uberblock.
    pub fn version(&self) -> u64 {
        self.uberblock.version
    }

    /// Whether it has what a version introduced; all pools with feature flags do.
    pub fn has(&self, what: Since) -> bool {
        what.is_in(self.version())
    }

    /// The chosen root.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// The configuration in use.
    pub fn config(&self) -> &PoolConfig {
        &self.parts.config
    }

    /// The result of discovery.
    pub fn found(&self) -> &FoundPool {
        &self.parts.found
    }

    /// The vdev tree.
    pub fn vdevs(&self) -> &VdevTree {
        &self.parts.vdevs
    }

    /// State of the pool and every vdev now, with error counters.
    pub fn status(&self) -> PoolHealth {
        crate::status::of_pool(self)
    }

    /// Errors so far of each leaf that has a device, by guid.
    pub fn error_counters(&self) -> Vec<(Guid, ErrorCounts)> {
        self.parts.vdevs.leaves().iter().map(|leaf| (leaf.guid, leaf.errors())).collect()
    }

    /// Leaves whose devices did not answer an operation and are out of use until the pool is opened again.
    pub fn hung_leaves(&self) -> Vec<Guid> {
        self.parts.vdevs.leaves().iter().filter(|leaf| leaf.is_hung()).map(|leaf| leaf.guid).collect()
    }

    /// Leaves with a device that is known to lack some of what it should hold: it was away, is out of use
    /// or is being filled. Verification does not blame them: a resilver will supply what they lack.
    pub fn lagging_leaves(&self) -> Vec<Guid> {
        self.parts.vdevs.leaves().iter().filter(|leaf| leaf.lagging).map(|leaf| leaf.guid).collect()
    }

    /// The txgs that a leaf missed according to its dirty time log (DTL), as runs of first and last txg.
    pub fn missing_txgs(&self, leaf: Guid) -> &[(Txg, Txg)] {
        self.parts.behind.get(&leaf).map_or(&[], Vec::as_slice)
    }

    /// The txgs in which a write did not reach a leaf since the pool was assembled, in the same form: to be
    /// added to its DTL.
    pub fn missed(&self) -> BTreeMap<Guid, Vec<(Txg, Txg)>> {
        self.parts.missed.all()
    }

    /// The allocation class of a top-level vdev.
    pub fn class_of(&self, vdev: VdevId) -> Option<VdevClass> {
        self.parts.vdevs.class_of(vdev)
    }

    pub(crate) fn missed_here(&self) -> &Missed {
        &self.parts.missed
    }

    pub(crate) fn salt(&self) -> Option<&ChecksumSalt> {
        self.parts.salt.as_ref()
    }

    /// Whether somebody else may be writing to it now: it was never exported, and we don't hold it.
    pub(crate) fn may_be_live(&self) -> bool {
        self.parts.may_be_live
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} txg {})", self.name(), self.uberblock.txg)
    }
}
