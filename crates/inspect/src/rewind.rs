//! Finds the newest intact state, to which a pool can be rewound.
//!
//! Idea: each uberblock in the ring leads to a state. A state is refused if its space maps call blocks free
//! that are in use: the next write would destroy them. In the last few states no block can have been
//! overwritten since ([`OlderState::is_kept`]); for older ones all blocks are read. As a last resort damaged
//! files are accepted.
//!
//! ```text
//!   newest -> opens? -> kept? -yes-> space intact? -----------yes-------------> intact
//!      |        no        '-no-> metadata and space intact? -yes-> extreme, or all files intact?
//!      '-- the next older <----------- no -----------'             yes: intact     no: refused
//! ```
//!
//! Source: OpenZFS `spa.c` (`spa_load_best`, `spa_load_verify`).

use cenote_boxed::boxed;
use cenote_dataset::ImportOptions;
use cenote_engine::OlderState;
use cenote_object::DatasetError;
use cenote_pool::FoundPool;
use cenote_runtime::Runtime;

use crate::error::{InspectError, Result};
use crate::verify::{Finding, Progress, Severity, VerifyOptions, verify};

/// How much of the older state may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing (`zpool import -F`).
    Whole,
    /// Blocks of files overwritten since, or damaged (`zpool import -FX`).
    Extreme,
}

/// The newest state that opens. Unless its blocks are kept, it may not be intact.
///
/// # Errors
/// None opens; or this program can't write to the pool.
#[boxed]
pub async fn newest_that_opens(
    rt: &Runtime,
    found: &FoundPool,
    options: &ImportOptions,
) -> Result<OlderState> {
    newest(rt, found, options, async |_| Ok(())).await
}

/// Finds the newest intact state; writes nothing. `progress` is called while blocks are read.
///
/// # Errors
/// No state is intact; the newest with intact metadata has damaged files and `reach` does not allow that; or
/// this program can't write to the pool.
pub async fn newest_whole(
    rt: &Runtime,
    found: &FoundPool,
    options: &ImportOptions,
    reach: Reach,
    progress: impl Fn(Progress),
) -> Result<OlderState> {
    let state = newest(rt, found, options, async |state| is_sound(state, &progress).await).await?;
    if reach == Reach::Whole && !state.is_kept() {
        files_are_whole(found, &state, &progress).await?;
    }
    Ok(state)
}

async fn newest(
    rt: &Runtime,
    found: &FoundPool,
    options: &ImportOptions,
    check: impl AsyncFn(&OlderState) -> Result<()>,
) -> Result<OlderState> {
    let mut failure = None;
    for uberblock in &found.uberblocks {
        let checked = async {
            let state = OlderState::open(rt, found, uberblock, options).await?;
            check(&state).await.map(|()| state)
        };
        match checked.await {
            Ok(state) => return Ok(state),
            Err(error) if is_final(&error) => return Err(error),
            // Report the error of the newest state.
            Err(error) => _ = failure.get_or_insert(error),
        }
    }
    let (newest, oldest) = (found.uberblocks.first(), found.uberblocks.last());
    Err(InspectError::NoWholeState {
        pool: found.name().into(),
        states: found.uberblocks.len(),
        oldest: oldest.map_or(0, |uberblock| uberblock.txg.0),
        newest: newest.map_or(0, |uberblock| uberblock.txg.0),
        why: failure.map_or("no device has a valid uberblock".into(), |error| error.to_string()),
    })
}

/// Whether every other state would fail the same way.
fn is_final(error: &InspectError) -> bool {
    use DatasetError::{UnsupportedFeatures, UnsupportedVersion};
    error.dataset().is_some_and(|error| {
        error.is_refusal() || matches!(error, UnsupportedFeatures { .. } | UnsupportedVersion { .. })
    })
}

/// Whether this state can be written to, and no metadata was overwritten since.
async fn is_sound(state: &OlderState, progress: &impl Fn(Progress)) -> Result<()> {
    let options = VerifyOptions { data: false, ..VerifyOptions::default() };
    let report = verify(state.mos(), options, progress).await?;
    // Lost redundancy does not prevent writing; nor does damage, which other kept states have as well.
    let is_overwritten = |finding: &Finding| !state.is_kept() && finding.severity() == Severity::Lost;
    match report.findings.iter().find(|finding| is_unsafe(finding) || is_overwritten(finding)) {
        Some(finding) => Err(InspectError::Request(format!("txg {}: {finding}", report.txg))),
        None => Ok(()),
    }
}

/// Whether the next writes could overwrite blocks in use.
fn is_unsafe(finding: &Finding) -> bool {
    matches!(finding, Finding::NotAllocated(_) | Finding::DoublyAllocated(_) | Finding::Unchecked { .. })
}

async fn files_are_whole(found: &FoundPool, state: &OlderState, progress: &impl Fn(Progress)) -> Result<()> {
    let options = VerifyOptions { space: false, max_findings: 1, ..VerifyOptions::default() };
    match verify(state.mos(), options, progress).await?.lost_blocks {
        0 => Ok(()),
        blocks => Err(InspectError::FilesDamaged {
            pool: found.name().into(),
            txg: state.uberblock().txg.0,
            blocks,
        }),
    }
}
