//! The error log: blocks that reads and scans found lost.
//!
//! ```text
//!   lost block -> errlog_last, or errlog_scrub during a scan
//!   scan ends  -> errlog_scrub replaces errlog_last
//!   known errors scrubbed -> leave errlog_last; those that remain go to errlog_scrub
//! ```
//!
//! Idea: damage that a complete scrub no longer finds is gone: repaired files leave the log with the next
//! scrub. `zpool clear` only resets counters.
//!
//! Source: OpenZFS `spa_errlog.c` (`spa_log_error`, `spa_errlog_sync`, `spa_errlog_rotate`,
//! `spa_delete_dataset_errlog`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_dataset::errlog::LoggedError;
use cenote_dataset::mos::{error_scrub_in, scan_in};
use cenote_engine::{Engine, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::errlog::{BlockBookmark, ErrorBookmark, parse_head_key};
use cenote_format::features::Feature;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::{DatasetError, Edit, NewZap, Result, Zap, ZapEdit, ZapValue};

/// Logs blocks that have become unreadable since the last call.
#[boxed]
pub(crate) async fn note_lost(engine: &Engine) -> Result<()> {
    let lost = engine.pool().read_errors().take_lost();
    if lost.is_empty() {
        return Ok(());
    }
    engine.run_on_pool(move |context| Box::pin(async move { log(context, lost).await })).await
}

/// Replaces the known errors with those of an ended scan, complete or not.
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

/// Merges the results of an interrupted error scrub with the errors it did not reach.
pub(crate) async fn unite(context: &mut SyncContext) -> Result<()> {
    let (last, scrub) = (find(context, names::ERRLOG_LAST).await?, find(context, names::ERRLOG_SCRUB).await?);
    let (Some(last), Some(scrub)) = (last, scrub) else {
        return if scrub.is_some() { rotate(context).await } else { Ok(()) };
    };
    let edit = context.edit();
    let known = lists(context, last).await?;
    for entry in Zap::open_id(&edit.view(), scrub).await?.to_vec().await? {
        let list = std::str::from_utf8(&entry.name).ok().and_then(|key| known.get(key)).copied();
        let (Some(into), Some(from)) = (list, entry.value.as_u64().map(ObjectId)) else {
            ZapEdit::new(&edit, last).update(&*entry.name, &entry.value).await?;
            continue;
        };
        for error in Zap::open_id(&edit.view(), from).await?.to_vec().await? {
            ZapEdit::new(&edit, into).update(&*error.name, &error.value).await?;
        }
        edit.destroy(from).await?;
    }
    edit.destroy(scrub).await?;
    ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).update(names::ERRLOG_SCRUB, 0).await
}

/// Removes examined errors from `errlog_last`; those `in_doubt` go to `errlog_scrub`. Returns the number
/// left.
pub(crate) async fn looked_at(
    context: &mut SyncContext,
    errors: &[LoggedError],
    in_doubt: &[LoggedError],
) -> Result<u64> {
    let edit = context.edit();
    let birth = |error: &LoggedError| error.birth.unwrap_or(Txg(0));
    if !in_doubt.is_empty() {
        let mut log = Log::find_or_make(context, names::ERRLOG_SCRUB).await?;
        for error in in_doubt {
            log.add(&edit, error.place, birth(error)).await?;
        }
    }
    let Some(log) = Log::find(context, names::ERRLOG_LAST).await? else { return Ok(0) };
    for error in errors {
        log.remove(&edit, error.place, birth(error)).await?;
    }
    log.count(&edit).await
}

/// Number of known errors, without those of a scan in progress.
pub(crate) async fn known(context: &SyncContext) -> Result<u64> {
    match Log::find(context, names::ERRLOG_LAST).await? {
        Some(log) => log.count(&context.edit()).await,
        None => Ok(0),
    }
}

/// Drops the errors of a destroyed head.
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

/// Logs lost blocks with their births.
pub(crate) async fn log(context: &mut SyncContext, lost: BTreeMap<BlockBookmark, Txg>) -> Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    let directory = Zap::open_id(&context.edit().view(), DMU_POOL_DIRECTORY_OBJECT).await?;
    let is_scan =
        scan_in(&directory).await?.is_some_and(|it| it.is_running() && (it.is_scrub() || it.is_resilver()));
    let is_error_scrub = error_scrub_in(&directory).await?.is_some_and(|it| it.is_running());
    let name = if is_scan || is_error_scrub { names::ERRLOG_SCRUB } else { names::ERRLOG_LAST };
    let mut log = Log::find_or_make(context, name).await?;
    let edit = context.edit();
    for (place, birth) in lost {
        let dataset = match log.lists {
            Some(_) => head_of(context, place.dataset).await?,
            None => place.dataset,
        };
        log.add(&edit, BlockBookmark { dataset, ..place }, birth).await?;
    }
    Ok(())
}

/// One of the two logs.
struct Log {
    id: ObjectId,
    /// With `head_errlog`: one list per head.
    lists: Option<BTreeMap<String, ObjectId>>,
}

impl Log {
    async fn find(context: &SyncContext, name: &str) -> Result<Option<Log>> {
        let Some(id) = find(context, name).await? else { return Ok(None) };
        Ok(Some(Log { id, lists: Log::lists(context, id).await? }))
    }

    async fn find_or_make(context: &SyncContext, name: &str) -> Result<Log> {
        if let Some(log) = Log::find(context, name).await? {
            return Ok(log);
        }
        let edit = context.edit();
        let id = NewZap::of(ObjectType::ERROR_LOG).create(&edit).await?;
        ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).update(name, id.0).await?;
        Ok(Log { id, lists: Log::lists(context, id).await? })
    }

    async fn lists(context: &SyncContext, id: ObjectId) -> Result<Option<BTreeMap<String, ObjectId>>> {
        match has_head_errlog(context).await? {
            true => lists(context, id).await.map(Some),
            false => Ok(None),
        }
    }

    async fn add(&mut self, edit: &Edit, place: BlockBookmark, birth: Txg) -> Result<()> {
        let unnamed = ZapValue::from_text("");
        let Some(lists) = &mut self.lists else {
            return ZapEdit::new(edit, self.id).update(place.to_key().as_str(), &unnamed).await;
        };
        let key = key(place.dataset);
        let list = match lists.get(&key) {
            Some(list) => *list,
            None => {
                let list = NewZap::of(ObjectType::ERROR_LOG).create(edit).await?;
                ZapEdit::new(edit, self.id).add(key.as_str(), list.0).await?;
                lists.insert(key, list);
                list
            }
        };
        ZapEdit::new(edit, list).update(in_list(place, birth).as_str(), &unnamed).await
    }

    async fn remove(&self, edit: &Edit, place: BlockBookmark, birth: Txg) -> Result<()> {
        let (list, key) = match &self.lists {
            None => (self.id, place.to_key()),
            Some(lists) => match lists.get(&key(place.dataset)) {
                Some(list) => (*list, in_list(place, birth)),
                None => return Ok(()),
            },
        };
        let list = ZapEdit::new(edit, list);
        match list.get(key.as_str()).await? {
            Some(_) => list.remove(key.as_str()).await,
            None => Ok(()),
        }
    }

    async fn count(&self, edit: &Edit) -> Result<u64> {
        let Some(lists) = &self.lists else { return Ok(Zap::open_id(&edit.view(), self.id).await?.count()) };
        let mut count = 0;
        for list in lists.values() {
            count += Zap::open_id(&edit.view(), *list).await?.count();
        }
        Ok(count)
    }
}

fn in_list(place: BlockBookmark, birth: Txg) -> String {
    let BlockBookmark { object, level, block, .. } = place;
    ErrorBookmark { object, level, block, birth }.to_key()
}

/// The head of a dataset's chain; an unknown dataset stays as it is.
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

/// Whether the pool has the feature `head_errlog`.
pub(crate) async fn has_head_errlog(context: &SyncContext) -> Result<bool> {
    let Some(feature) = Feature::by_name("head_errlog") else { return Ok(false) };
    Ok(context.count_of(feature).await?.is_some())
}

/// A log's lists by head; empty without `head_errlog`.
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
