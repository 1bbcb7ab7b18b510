//! Thorough scrubs: blocks that match their checksums must also decrypt and decompress.
//!
//! Idea: a checksum covers the stored bytes, so it does not show that a faulty writer stored nonsense. Blocks
//! without a loaded key are only verified, as in OpenZFS.
//!
//! Source: OpenZFS `dsl_scan.c` (`scan_exec_io`, `dsl_scan_scrub_done`).

use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use cenote_dataset::Mos;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::DatasetId;
use cenote_object::Result;
use cenote_pool::{DatasetKey, ReadContext, VerifyItem};

/// `enum zio_compress`: off.
const UNCOMPRESSED: u8 = 2;

/// Loaded keys of the datasets met.
#[derive(Default)]
pub(super) struct Keys(BTreeMap<DatasetId, Option<Arc<DatasetKey>>>);

impl Keys {
    async fn of(&mut self, mos: &Mos, dataset: DatasetId) -> Option<Arc<DatasetKey>> {
        match self.0.entry(dataset) {
            Entry::Occupied(known) => known.get().clone(),
            // A dataset may be gone, or its directory damaged: the scrub finds that elsewhere.
            Entry::Vacant(new) => new.insert(loaded(mos, dataset).await.unwrap_or_default()).clone(),
        }
    }
}

/// The key of a dataset, if it is loaded; nobody is asked for it.
async fn loaded(mos: &Mos, dataset: DatasetId) -> Result<Option<Arc<DatasetKey>>> {
    let dataset = mos.dataset_by_id(dataset).await?;
    match dataset.dir().encryption().await? {
        Some(info) if mos.keyring().has(info.root_dir).await => dataset.key().await,
        _ => Ok(None),
    }
}

/// How to decode these blocks, by index, except those without a loaded key.
pub(super) async fn contexts(
    mos: &Mos,
    keys: &mut Keys,
    blocks: &[VerifyItem],
) -> BTreeMap<usize, ReadContext> {
    let mut contexts = BTreeMap::new();
    for (index, VerifyItem { bp, place }) in blocks.iter().enumerate() {
        let key = if bp.uses_crypt() { keys.of(mos, place.dataset).await } else { None };
        if needs_decoding(bp) && (key.is_some() || !bp.is_encrypted()) {
            contexts.insert(index, ReadContext::new(*place).with_key(key));
        }
    }
    contexts
}

fn needs_decoding(bp: &Blkptr) -> bool {
    bp.uses_crypt() || bp.compression_id() != UNCOMPRESSED
}
