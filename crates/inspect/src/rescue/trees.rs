//! The pool as it was at each transaction group that an uberblock still leads to, opened when asked for.

use cenote_dataset::{DatasetError, ImportOptions, Mos, Rewind, Txg, import};
use cenote_pool::FoundPool;
use cenote_runtime::Runtime;

use super::RescueOptions;

/// Trees, newest first.
pub(super) struct Trees {
    runtime: Runtime,
    found: FoundPool,
    import: ImportOptions,
    txgs: Vec<Txg>,
    opened: Vec<Result<Mos, DatasetError>>,
}

impl Trees {
    /// The newest tree that the options allow and those before it.
    pub fn new(runtime: &Runtime, found: &FoundPool, options: &RescueOptions) -> Trees {
        let newest = match options.import.rewind {
            Rewind::Txg(txg) => txg,
            Rewind::Newest | Rewind::Back => Txg(u64::MAX),
        };
        // Uberblocks come newest first.
        let mut txgs: Vec<Txg> =
            found.uberblocks.iter().map(|u| u.txg).filter(|txg| *txg <= newest).collect();
        txgs.dedup();
        txgs.truncate(options.back.saturating_add(1));
        let import = ImportOptions { checkpoint: false, ..options.import.clone() };
        Trees { runtime: runtime.clone(), found: found.clone(), import, txgs, opened: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.txgs.len()
    }

    /// The group of a tree.
    pub fn txg(&self, index: usize) -> Txg {
        self.txgs.get(index).copied().unwrap_or_default()
    }

    /// A tree, if it opens; why not, if it doesn't.
    pub async fn get(&mut self, index: usize) -> Result<Mos, DatasetError> {
        while self.opened.len() <= index.min(self.txgs.len().saturating_sub(1)) {
            let options =
                ImportOptions { rewind: Rewind::Txg(self.txg(self.opened.len())), ..self.import.clone() };
            let opened = import(&self.runtime, &self.found, &options).await;
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
