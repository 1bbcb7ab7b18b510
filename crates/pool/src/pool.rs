//! An assembled pool: a cheap, immutable handle through which blocks are read.

use crate::config::{PoolConfig, VdevClass};
use crate::crypt::DatasetKey;
use crate::discover::FoundPool;
use crate::error::{PoolError, Result};
use crate::health::{ErrorCounts, PoolHealth};
use crate::place::Place;
use crate::vdev::{IndirectMapping, VdevTree};
use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, VdevId};
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
    found: FoundPool,
    salt: Option<[u8; 32]>,
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
    /// The configuration in the MOS (`PoolConfig::from_mos`).
    pub config: PoolConfig,
    /// For each removed top-level vdev its mapping, sorted by source offset.
    pub indirect: BTreeMap<VdevId, Vec<IndirectMapping>>,
    /// `org.illumos:checksum_salt`.
    pub checksum_salt: Option<[u8; 32]>,
}

impl Pool {
    /// Assembles a pool from labels alone, as of `uberblock` (one of `found.uberblocks`).
    ///
    /// Enough to read the MOS; a removed vdev's blocks and salted checksums need [`Pool::with_trusted`].
    pub async fn assemble(rt: &Runtime, found: &FoundPool, uberblock: &Uberblock) -> Result<Pool> {
        Ok(Pool(Arc::new(Inner {
            runtime: rt.clone(),
            config: found.config.clone(),
            uberblock: *uberblock,
            vdevs: VdevTree::new(found.config.clone()),
            found: found.clone(),
            salt: None,
        })))
    }

    /// The same pool, devices and error counters, with what the MOS says in place of what labels say.
    pub async fn with_trusted(&self, trusted: Trusted) -> Result<Pool> {
        Ok(Pool(Arc::new(Inner {
            runtime: self.0.runtime.clone(),
            config: trusted.config.clone(),
            uberblock: self.0.uberblock,
            vdevs: VdevTree::new(trusted.config),
            found: self.0.found.clone(),
            salt: trusted.checksum_salt,
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
        self.0.found.status()
    }

    /// Errors so far of each leaf, by guid.
    pub fn error_counters(&self) -> Vec<(Guid, ErrorCounts)> {
        self.0.found.devices.keys().map(|&guid| (guid, ErrorCounts::default())).collect()
    }

    /// The allocation class of a top-level vdev.
    pub fn class_of(&self, vdev: VdevId) -> Option<VdevClass> {
        self.0.vdevs.class_of(vdev)
    }

    /// Reads a block: verified, decrypted, decompressed; `lsize` bytes.
    pub async fn read(&self, bp: &Blkptr, ctx: &ReadContext) -> Result<Bytes> {
        self.read_physical(bp, ctx).await
    }

    /// Reads a block as stored: verified, neither decrypted nor decompressed; `psize` bytes.
    pub async fn read_physical(&self, _bp: &Blkptr, ctx: &ReadContext) -> Result<Bytes> {
        let _ = self.0.salt;
        Err(PoolError::BadPointer { place: ctx.place, why: "not read yet".into() })
    }

    /// Reads many blocks, neighbours on disk together; results in the order asked.
    pub async fn read_many(&self, requests: Vec<(Blkptr, ReadContext)>) -> Vec<Result<Bytes>> {
        let mut results = Vec::with_capacity(requests.len());
        for (bp, ctx) in &requests {
            results.push(self.read(bp, ctx).await);
        }
        results
    }

    /// Reads a log block: its checksum is inside, and its pointer's says which block it must be. At most
    /// `lsize` bytes, decrypted if a key is given; an error if it is not the block (the chain's end).
    pub async fn read_log_block(&self, bp: &Blkptr, ctx: &ReadContext) -> Result<Bytes> {
        self.read_physical(bp, ctx).await
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} txg {})", self.name(), self.0.uberblock.txg)
    }
}
