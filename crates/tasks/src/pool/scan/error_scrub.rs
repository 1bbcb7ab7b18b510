//! Error scrubs (`zpool scrub -e`): verify the blocks in the error log and repair them if possible. Mended
//! and vanished blocks leave the log.
//!
//! ```text
//!   errlog_last --some of it--> find the block's dataset now --> read all copies --> mended: dropped
//!                                                                               `--> lost:   errlog_scrub
//! ```
//!
//! Idea: the rest of `errlog_last` is the rest of the work. So an interrupted scrub continues without a
//! cursor, and OpenZFS, which starts at the recorded cursor, visits the rest. If the scrub stops, or a scan
//! begins, both logs are merged: only mended errors are dropped. (OpenZFS drops the unvisited ones.)
//!
//! Source: OpenZFS `dsl_scan.c` (`dsl_errorscrub_*`), `dsl_errorscrub_phys_t`.

use std::collections::BTreeMap;

use cenote_dataset::errlog::LoggedError;
use cenote_dataset::mos::error_scrub_in;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::errlog::BlockBookmark;
use cenote_format::scan::{
    DSS_CANCELED, DSS_ERRORSCRUBBING, DSS_FINISHED, ErrorScrubPhys, POOL_SCAN_ERRORSCRUB,
};
use cenote_format::units::Txg;
use cenote_format::words::Phys;
use cenote_object::{DatasetError, Result, Zap, ZapEdit, ZapValue};
use cenote_pool::{Fault, IoClass, VerifyItem, Zbookmark};

use crate::pool::errors::{has_head_errlog, known, log, looked_at, rotate, unite};

/// Examined errors, to be recorded.
pub(super) struct Looked {
    /// The scrub's start.
    start_time_s: u64,
    errors: Vec<LoggedError>,
    lost: BTreeMap<BlockBookmark, Txg>,
    /// Errors whose path in the tree is unreadable.
    in_doubt: Vec<LoggedError>,
    pub(super) written_bytes: u64,
}

impl Looked {
    /// Number of blocks not mended.
    pub(super) fn remaining(&self) -> u64 {
        (self.lost.len() + self.in_doubt.len()) as u64
    }
}

/// Starts or resumes an error scrub while no scan is in progress. Returns whether there are errors.
pub(super) async fn start(context: &mut SyncContext) -> Result<bool> {
    if !has_head_errlog(context).await? {
        return Err(refused(context, "unsupported version or feature: feature@head_errlog is disabled"));
    }
    if let Some(scrub) = running(context).await? {
        if !scrub.is_paused() {
            return Err(refused(
                context,
                "currently error scrubbing; use 'zpool scrub -s' to cancel error scrub",
            ));
        }
        put(context, &ErrorScrubPhys { paused: 0, ..scrub }).await?;
        return Ok(true);
    }
    let to_examine = known(context).await?;
    if to_examine == 0 {
        return Ok(false);
    }
    let empty = nothing(context)?;
    let (func, state, start_time_s) = (POOL_SCAN_ERRORSCRUB, DSS_ERRORSCRUBBING, context.now_s());
    put(context, &ErrorScrubPhys { func, state, start_time_s, to_examine, ..empty }).await?;
    let what = format!("func={func} mintxg=0 maxtxg={}", context.txg());
    context.log_event("error scrub setup", &what).await?;
    Ok(true)
}

/// Refuses a scrub during an error scrub.
pub(super) async fn refuse_beside(context: &SyncContext) -> Result<()> {
    match running(context).await? {
        None => Ok(()),
        Some(scrub) if scrub.is_paused() => {
            Err(refused(context, "error scrub is paused; use 'zpool scrub -e' to resume error scrub"))
        }
        Some(_) => {
            Err(refused(context, "currently error scrubbing; use 'zpool scrub -s' to cancel error scrub"))
        }
    }
}

/// Returns `false` if none is in progress.
pub(super) async fn pause(context: &mut SyncContext) -> Result<bool> {
    let Some(scrub) = running(context).await? else { return Ok(false) };
    if scrub.is_paused() {
        return Err(refused(context, "error scrub is paused; use 'zpool scrub -e' to resume error scrub"));
    }
    put(context, &ErrorScrubPhys { paused: 1, ..scrub }).await?;
    context.log_event("error scrub paused", &format!("func={POOL_SCAN_ERRORSCRUB}")).await?;
    Ok(true)
}

/// Returns `false` if none is in progress.
pub(super) async fn cancel(context: &mut SyncContext) -> Result<bool> {
    let Some(scrub) = running(context).await? else { return Ok(false) };
    unite(context).await?;
    let errors = known(context).await?;
    context.log_event("error scrub canceled", &format!("errors={errors}")).await?;
    put(context, &ErrorScrubPhys { state: DSS_CANCELED, end_time_s: context.now_s(), ..scrub }).await?;
    Ok(true)
}

/// Ends the error scrub and clears its state, since a scan begins.
pub(super) async fn give_way(context: &mut SyncContext) -> Result<()> {
    cancel(context).await?;
    match of(context).await? {
        Some(_) => put(context, &nothing(context)?).await,
        None => Ok(()),
    }
}

/// Verifies some of the rest. `None`: no error scrub is running.
pub(super) async fn look(engine: &Engine) -> Result<Option<Looked>> {
    let mos = engine.mos_to_mend().await?;
    let scrub = mos.error_scrub_status().await?.filter(|scrub| scrub.is_running() && !scrub.is_paused());
    let Some(ErrorScrubPhys { start_time_s, .. }) = scrub else { return Ok(None) };
    let errors = mos.error_log().await?.into_iter().filter(|error| !error.by_last_scrub);
    let errors: Vec<LoggedError> =
        errors.take(engine.background().settings().error_blocks_per_txg()).collect();
    let (mut in_doubt, mut items, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for (error, block) in errors.iter().zip(mos.logged_blocks(&errors).await) {
        match block {
            Ok(Some((dataset, bp))) => {
                let BlockBookmark { object, level, block, .. } = error.place;
                let level = u8::try_from(level).unwrap_or(0);
                items.push(VerifyItem { bp, place: Zbookmark { dataset, object, level, block } });
                places.push((BlockBookmark { dataset, ..error.place }, bp.allocation_birth()));
            }
            Ok(None) => {}
            Err(_) => in_doubt.push(*error),
        }
    }
    let pool = mos.pool().for_class(IoClass::Scrub);
    let (findings, healed) = pool.repair().scrub(items).await;
    // Failed flushes show in the counters.
    drop(pool.flush(Txg(pool.uberblock().txg.0 + 1)).await);
    let lost = findings.iter().filter(|finding| finding.fault == Fault::Lost);
    let lost = lost.map(|finding| places[finding.item]).collect();
    Ok(Some(Looked { start_time_s, errors, lost, in_doubt, written_bytes: healed.written_bytes }))
}

/// Removes examined errors from the log; ends the scrub with the last one.
pub(super) async fn note(context: &mut SyncContext, looked: Looked) -> Result<()> {
    let running = running(context).await?;
    let Some(mut scrub) = running.filter(|it| it.start_time_s == looked.start_time_s) else { return Ok(()) };
    scrub.examined = scrub.examined.saturating_add(looked.errors.len() as u64);
    scrub.errors = scrub.errors.saturating_add(looked.remaining());
    log(context, looked.lost).await?;
    scrub.to_examine = looked_at(context, &looked.errors, &looked.in_doubt).await?;
    // Malformed keys stay.
    if scrub.to_examine == 0 || looked.errors.is_empty() {
        rotate(context).await?;
        let errors = known(context).await?;
        context.log_event("error scrub done", &format!("errors={errors}")).await?;
        (scrub.state, scrub.end_time_s) = (DSS_FINISHED, context.now_s());
    }
    put(context, &scrub).await
}

async fn running(context: &SyncContext) -> Result<Option<ErrorScrubPhys>> {
    Ok(of(context).await?.filter(ErrorScrubPhys::is_running))
}

async fn of(context: &SyncContext) -> Result<Option<ErrorScrubPhys>> {
    error_scrub_in(&Zap::open_id(&context.edit().view(), DMU_POOL_DIRECTORY_OBJECT).await?).await
}

async fn put(context: &SyncContext, scrub: &ErrorScrubPhys) -> Result<()> {
    let edit = context.edit();
    let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
    directory.update(names::ERRORSCRUB, &ZapValue::from_words(&scrub.to_words())).await
}

fn nothing(context: &SyncContext) -> Result<ErrorScrubPhys> {
    ErrorScrubPhys::from_words(&[0; 9]).map_err(|_| context.damaged("can't note an error scrub"))
}

fn refused(context: &SyncContext, why: &str) -> DatasetError {
    DatasetError::unsuitable(context.pool().name(), why)
}
