//! Remains of receives: heads whose streams broke off together with their pool.
//!
//! A receive that breaks off destroys its head itself. After a power cut or the end of its daemon nobody
//! does, so the next opening of the pool destroys it. Heads of resumable receives stay.
//!
//! Source: OpenZFS `dsl_destroy.c` (`dsl_destroy_inconsistent`), `spa.c` (`spa_load_impl`).

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_dataset::mos::RECV_CLONE_NAME;
use cenote_engine::Engine;
use cenote_object::{DatasetError, Result};

use super::abort_receive;
use super::resume::resume_state;

/// Destroys the remains of receives in a pool that was just opened. Returns the targets of those that stay,
/// and why.
///
/// # Errors
/// The root dataset is damaged.
#[boxed]
pub async fn destroy_remains(engine: &Engine) -> Result<Vec<(String, DatasetError)>> {
    let (datasets, _) = engine.mos().await?.reachable_datasets().await?;
    let mut left = Vec::new();
    for target in datasets {
        let destroyed = match is_broken(&target).await {
            Ok(true) => abort_receive(engine, target.name()).await,
            done => done.map(drop),
        };
        left.extend(destroyed.err().map(|error| (target.name().to_owned(), error)));
    }
    Ok(left)
}

/// Whether a receive into a dataset broke off and can't be resumed.
async fn is_broken(target: &Dataset) -> Result<bool> {
    if target.phys().is_inconsistent() {
        return Ok(resume_state(target).await?.is_none());
    }
    match target.dir().child(RECV_CLONE_NAME).await? {
        Some(beside) => Ok(resume_state(&beside.head().await?).await?.is_none()),
        None => Ok(false),
    }
}
