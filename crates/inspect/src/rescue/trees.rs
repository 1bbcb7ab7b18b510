//! The pool as of each txg that an uberblock still leads to, opened on demand.
//!
//! Memory: one block cache for all trees, which share most of their blocks.

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_cache::BlockCache;
use cenote_dataset::import::import_sharing;
use cenote_dataset::{ImportOptions, Mos, Rewind};
use cenote_format::units::Txg;
use cenote_object::DatasetError;
use cenote_pool::FoundPool;
use cenote_runtime::Runtime;

use super::options::RescueOptions;

/// The trees, newest first.
pub(super) struct Trees {
    runtime: Runtime,
    found: FoundPool,
    import: ImportOptions,
    cache: Arc<BlockCache>,
    txgs: Vec<Txg>,
    opened: Vec<Result<Mos, DatasetError>>,
}

impl Trees {
    /// The newest tree that the options allow, and those before it.
    pub fn new(runtime: &Runtime, found: &FoundPool, options: &RescueOptions) -> Trees {
        let newest = match options.import.rewind {
            Rewind::Txg(txg) => txg,
            Rewind::Newest | Rewind::Back => Txg(u64::MAX),
        };
        // Uberblocks are ordered newest first.
        let mut txgs: Vec<Txg> =
            found.uberblocks.iter().map(|u| u.txg).filter(|txg| *txg <= newest).collect();
        txgs.dedup();
        txgs.truncate(options.back.saturating_add(1));
        let import = ImportOptions { checkpoint: false, salvage: true, ..options.import.clone() };
        let cache = Arc::new(BlockCache::new(import.cache));
        Trees { runtime: runtime.clone(), found: found.clone(), import, cache, txgs, opened: Vec::new() }
    }

    /// The number of trees.
    pub fn len(&self) -> usize {
        self.txgs.len()
    }

    /// The txg of a tree.
    pub fn txg(&self, index: usize) -> Txg {
        self.txgs.get(index).copied().unwrap_or_default()
    }

    /// Opens a tree, or returns why it doesn't open.
    #[boxed]
    pub async fn get(&mut self, index: usize) -> Result<Mos, DatasetError> {
        while self.opened.len() <= index.min(self.txgs.len().saturating_sub(1)) {
            let options =
                ImportOptions { rewind: Rewind::Txg(self.txg(self.opened.len())), ..self.import.clone() };
            let opened = import_sharing(&self.runtime, &self.found, &options, &self.cache).await;
            self.opened.push(opened);
        }
        match self.opened.get(index) {
            Some(opened) => opened.clone(),
            None => {
                Err(cenote_pool::PoolError::NoUberblock { pool: self.found.name().into(), txg: Txg(0) }
                    .into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_testkit::golden;

    #[test]
    fn all_trees_share_one_cache() {
        let pool = golden("single");
        let runtime = Runtime::real(None);
        runtime.block_on(async {
            let found = cenote_pool::discover(&runtime, &[pool.images()]).await.pools.remove(0);
            let options = RescueOptions {
                import: ImportOptions::default(),
                snapshots: false,
                datasets: Vec::new(),
                back: 8,
                metadata: false,
            };
            let mut trees = Trees::new(&runtime, &found, &options);
            let mut opened = Vec::new();
            for index in 0..trees.len() {
                opened.extend(trees.get(index).await.ok());
            }
            assert!(opened.len() > 1, "{}", opened.len());
            let first = opened[0].objset().cache();
            assert!(opened.iter().all(|mos| Arc::ptr_eq(mos.objset().cache(), first)));
        });
    }
}
