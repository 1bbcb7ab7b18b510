//! The error log: blocks that reads and scans found lost.
//!
//! ```text
//!   lost block -> errlog_last, or errlog_scrub while a scan goes on
//!   scan ends  -> errlog_last is thrown away; errlog_scrub takes its place
//! ```
//!
//! Idea: what a whole scrub does not find any more is not damaged any more. So repaired files leave the log
//! with the next scrub, whatever `zpool clear` does to the counters.
//!
//! Source: OpenZFS `spa_errlog.c` (`spa_log_error`, `spa_errlog_sync`, `spa_errlog_rotate`,
//! `spa_delete_dataset_errlog`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_dataset::mos::scan_in;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::errlog::{BlockBookmark, ErrorBookmark, parse_head_key};
use cenote_format::features::Feature;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::{DatasetError, NewZap, Result, Zap, ZapEdit, ZapValue};

/// Notes blocks that could not be read since the last time.
#[boxed]
pub(crate) async fn note_lost(engine: &Engine) -> Result<()> {
    let lost = engine.pool().take_lost();
    if lost.is_empty() {
        return Ok(());
    }
    engine.run(move |context| Box::pin(async move { log(context, lost).await })).await
}

/// A scan has ended, in whatever way: what it has found takes the place of what was known before.
pub(crate) async fn rotate(context: &mut SyncContext) -> Result<()> {
    let (last, scrub) = (find(context, names::ERRLOG_LAST).await?, find(context, names::ERRLOG_SCRUB).await?);
    if last.is_none() && scrub.is_none() {
        return Ok(());
    }
    if let Some(last) = last {
        for list in lists(context, last).await?.into_values() {
            context.edit().destroy(list).await?;
        }
        context.edit().destroy(last).await?;
    }
    let edit = context.edit();
    let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
    directory.update(names::ERRLOG_LAST, scrub.map_or(0, |scrub| scrub.0)).await?;
    directory.update(names::ERRLOG_SCRUB, 0).await
}

/// A live dataset is gone, and what was lost of it.
pub(crate) async fn forget(context: &SyncContext, head: ObjectId) -> Result<()> {
    for name in [names::ERRLOG_LAST, names::ERRLOG_SCRUB] {
        let Some(log) = find(context, name).await? else { continue };
        if let Some(list) = lists(context, log).await?.remove(&key(DatasetId(head.0))) {
            let edit = context.edit();
            ZapEdit::new(&edit, log).remove(key(DatasetId(head.0)).as_str()).await?;
            edit.destroy(list).await?;
        }
    }
    Ok(())
}

async fn log(context: &mut SyncContext, lost: BTreeMap<BlockBookmark, Txg>) -> Result<()> {
    let directory = Zap::open_id(&context.edit().view(), DMU_POOL_DIRECTORY_OBJECT).await?;
    let scan = scan_in(&directory).await?;
    let is_scanned = scan.is_some_and(|scan| scan.is_running() && (scan.is_scrub() || scan.is_resilver()));
    let name = if is_scanned { names::ERRLOG_SCRUB } else { names::ERRLOG_LAST };
    let edit = context.edit();
    let log = match find(context, name).await? {
        Some(log) => log,
        None => {
            let log = NewZap::of(ObjectType::ERROR_LOG).create(&edit).await?;
            ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).update(name, log.0).await?;
            log
        }
    };
    let unnamed = ZapValue::from_text("");
    let feature = Feature::by_name("head_errlog");
    let by_head = match feature {
        Some(feature) => context.count_of(feature).await?.is_some(),
        None => false,
    };
    if !by_head {
        for place in lost.keys() {
            ZapEdit::new(&edit, log).update(place.to_key().as_str(), &unnamed).await?;
        }
        return Ok(());
    }
    let mut lists = lists(context, log).await?;
    for (place, birth) in lost {
        let key = key(head_of(context, place.dataset).await?);
        let list = match lists.get(&key) {
            Some(list) => *list,
            None => {
                let list = NewZap::of(ObjectType::ERROR_LOG).create(&edit).await?;
                ZapEdit::new(&edit, log).add(key.as_str(), list.0).await?;
                lists.insert(key, list);
                list
            }
        };
        let BlockBookmark { object, level, block, .. } = place;
        let error = ErrorBookmark { object, level, block, birth };
        ZapEdit::new(&edit, list).update(error.to_key().as_str(), &unnamed).await?;
    }
    Ok(())
}

/// The live dataset of whose chain a dataset is; what is none stays as it is.
async fn head_of(context: &SyncContext, dataset: DatasetId) -> Result<DatasetId> {
    let head = async {
        let dir = context.dataset_phys(ObjectId(dataset.0)).await?.dir;
        Ok(DatasetId(context.dir_phys(dir).await?.head_dataset.0))
    };
    match head.await {
        Err(DatasetError::NoObject { .. } | DatasetError::Format { .. }) => Ok(dataset),
        head => head,
    }
}

async fn find(context: &SyncContext, name: &str) -> Result<Option<ObjectId>> {
    Ok(context.find_directory_object(name).await?.filter(|log| log.0 != 0))
}

/// The lists of a log by dataset; none without `head_errlog`.
async fn lists(context: &SyncContext, log: ObjectId) -> Result<BTreeMap<String, ObjectId>> {
    let entries = Zap::open_id(&context.edit().view(), log).await?.to_vec().await?;
    let list = |entry: &cenote_object::ZapEntry| {
        parse_head_key(&entry.name).ok()?;
        Some((String::from_utf8(entry.name.to_vec()).ok()?, ObjectId(entry.value.as_u64()?)))
    };
    Ok(entries.iter().filter_map(list).collect())
}

fn key(dataset: DatasetId) -> String {
    format!("{:x}", dataset.0)
}
