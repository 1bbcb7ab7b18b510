//! An assembled pool: a cheap, immutable handle through which blocks are read.
//!
//! A pool is assembled twice. Labels alone give a tree that can read the MOS; the MOS gives the trusted
//! configuration, from which the same devices are assembled again.

use crate::config::{PoolConfig, PoolState, VdevClass};
use crate::crypt::DatasetKey;
use crate::discover::FoundPool;
use crate::error::Result;
use crate::health::{ErrorCounts, PoolHealth};
use crate::place::Place;
use crate::vdev::{VdevTree, build};
use cenote_codec::checksum::ChecksumSalt;
use cenote_format::indirect::IndirectMapping;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pool, assembled from devices. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    config: PoolConfig,
    uberblock: Uberblock,
    vdevs: VdevTree,
    found: Arc<FoundPool>,
    behind: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    salt: Option<ChecksumSalt>,
}

/// What a block is read for.
#[derive(Debug, Default, Clone)]
pub struct ReadContext {
    /// Named in errors.
    pub place: Place,
    /// Opens encrypted blocks.
    pub key: Option<Arc<DatasetKey>>,
}

impl ReadContext {
    /// For a block that is not encrypted.
    pub fn new(place: Place) -> ReadContext {
        ReadContext { place, key: None }
    }

    /// The same with a key, if there is one.
    pub fn with_key(mut self, key: Option<Arc<DatasetKey>>) -> ReadContext {
        self.key = key;
        self
    }
}

/// What the MOS knows of the pool and labels don't.
#[derive(Debug, Clone)]
pub struct Trusted {
    /// The configuration in the MOS ([`PoolConfig::from_mos`]).
    pub config: PoolConfig,
    /// Of each removed top-level vdev, where its bytes are now.
    pub indirect: BTreeMap<VdevId, Arc<IndirectMapping>>,
    /// Of leaves that miss any transaction groups, the first and the last of each run of them (their dirty time logs).
    pub behind: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    /// `org.illumos:checksum_salt`.
    pub checksum_salt: Option<[u8; 32]>,
}

impl Pool {
    /// Assembles a pool from labels alone, as of `uberblock` (one of `found.uberblocks`).
    ///
    /// Enough to read the MOS; a removed vdev's blocks and salted checksums need [`Pool::with_trusted`]. Missing
    /// devices are no error here: reading what they alone hold is.
    pub async fn assemble(rt: &Runtime, found: &FoundPool, uberblock: &Uberblock) -> Result<Pool> {
        let found = Arc::new(found.clone());
        let config = found.config.clone();
        let (indirect, behind) = (BTreeMap::new(), BTreeMap::new());
        let material =
            build::Material { uberblock, found: &found, indirect: &indirect, behind: &behind, earlier: &[] };
        let vdevs = build::build(&config, &material);
        Ok(Pool(Arc::new(Inner {
            runtime: rt.clone(),
            config,
            uberblock: *uberblock,
            vdevs,
            found,
            behind,
            salt: None,
        })))
    }

    /// The same pool, devices and error counters, with what the MOS says in place of what labels say.
    pub async fn with_trusted(&self, trusted: Trusted) -> Result<Pool> {
        let inner = &self.0;
        let vdevs = build::build(
            &trusted.config,
            &build::Material {
                uberblock: &inner.uberblock,
                found: &inner.found,
                indirect: &trusted.indirect,
                behind: &trusted.behind,
                earlier: inner.vdevs.leaves(),
            },
        );
        Ok(Pool(Arc::new(Inner {
            runtime: inner.runtime.clone(),
            config: trusted.config,
            uberblock: inner.uberblock,
            vdevs,
            found: inner.found.clone(),
            behind: trusted.behind,
            salt: trusted.checksum_salt.map(ChecksumSalt::new),
        })))
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// Its name for life.
    pub fn guid(&self) -> Guid {
        self.0.config.guid
    }

    /// SPA version as the uberblock says.
    pub fn version(&self) -> u64 {
        self.0.uberblock.version
    }

    /// The root that was chosen.
    pub fn uberblock(&self) -> &Uberblock {
        &self.0.uberblock
    }

    /// The configuration in use.
    pub fn config(&self) -> &PoolConfig {
        &self.0.config
    }

    /// What discovery found.
    pub fn found(&self) -> &FoundPool {
        &self.0.found
    }

    /// The vdev tree.
    pub fn vdevs(&self) -> &VdevTree {
        &self.0.vdevs
    }

    /// State of the pool and every vdev now, with error counters.
    pub fn status(&self) -> PoolHealth {
        crate::status::of_pool(self)
    }

    /// Errors so far of each leaf that has a device, by guid.
    pub fn error_counters(&self) -> Vec<(Guid, ErrorCounts)> {
        self.0.vdevs.leaves().iter().map(|leaf| (leaf.guid, leaf.errors())).collect()
    }

    /// Leaves with a device that is known to lack some of what it should hold: it was away, is taken out of use or is
    /// being filled. Verification does not blame them: what they lack, a resilver brings.
    pub fn lagging_leaves(&self) -> Vec<Guid> {
        self.0.vdevs.leaves().iter().filter(|leaf| leaf.lagging).map(|leaf| leaf.guid).collect()
    }

    /// The transaction groups that a leaf misses, as its dirty time log says: the first and the last of each run.
    pub fn missing_txgs(&self, leaf: Guid) -> &[(Txg, Txg)] {
        self.0.behind.get(&leaf).map_or(&[], Vec::as_slice)
    }

    /// The allocation class of a top-level vdev.
    pub fn class_of(&self, vdev: VdevId) -> Option<VdevClass> {
        self.0.vdevs.class_of(vdev)
    }

    pub(crate) fn salt(&self) -> Option<&ChecksumSalt> {
        self.0.salt.as_ref()
    }

    /// Somebody else may be writing to it now: it was never exported.
    pub(crate) fn may_be_live(&self) -> bool {
        self.0.found.state() == PoolState::Active
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} txg {})", self.name(), self.0.uberblock.txg)
    }
}
