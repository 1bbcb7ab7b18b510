//! Opening and closing a pool such that an unchanged pool stays the same, byte for byte.
//!
//! ```text
//!   take           nothing is written: the devices lie behind a gate
//!   prepare        pending work (logs to replay, unlinked files to free) waits behind the gate
//!   first change   unless others wrote to the pool: labels say ACTIVE, the gate opens; the txg follows
//!   close          the last txg says EXPORTED. Without any change: nothing, if all devices have the newest
//! ```
//!
//! Idea: a sync task checks before it changes, and a txg without changes is not written, so a refusal leaves
//! the gate closed. A command sees the replayed state of logs; the replay reaches the disk only if the
//! command succeeds.
//!
//! After a power cut at any moment the pool opens: in the txg it was found in, until the first txg is whole,
//! with labels exported or in use by this host; afterwards in the last whole txg.
//!
//! Source: our own; the states are those of OpenZFS `spa.c` (`spa_import`, `spa_export_common`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote_device::Gate;
use cenote_format::label::{PoolConfig, PoolState};
use cenote_format::units::Txg;
use cenote_object::Result;
use cenote_pool::label::read_labels;
use cenote_pool::{Pool, PoolError};
use parking_lot::Mutex;

use crate::host::Host;

/// Devices checked for foreign writes: an importer writes to all.
const WITNESSES: usize = 3;
/// Most bytes that may wait behind the gate, besides one txg. A longer replay is written even if the command
/// is refused.
pub(crate) const HELD_BYTES_MAX: u64 = 64 << 20;

/// The pool as found, until its first change.
pub(crate) struct OpenState {
    pub(crate) gate: Gate,
    pub(crate) host: Host,
    pub(crate) found_state: PoolState,
    pub(crate) found_txg: Txg,
    /// Some devices lack that txg's uberblock.
    pub(crate) is_uneven: bool,
    /// Of the newest labels.
    pub(crate) found_label_txg: Txg,
    /// For the labels, before the first change.
    pub(crate) mark: Mutex<Option<PoolConfig>>,
    pub(crate) preparing: AtomicUsize,
    /// A preparation has begun.
    pub(crate) is_prepared: AtomicBool,
}

/// A running preparation, until dropped.
pub(crate) struct BehindGate<'a>(&'a OpenState);

impl BehindGate<'_> {
    pub(crate) fn of(taking: &OpenState) -> BehindGate<'_> {
        taking.preparing.fetch_add(1, Ordering::AcqRel);
        BehindGate(taking)
    }
}

impl Drop for BehindGate<'_> {
    fn drop(&mut self) {
        self.0.preparing.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Checks that no other system has taken the pool since it was opened, when its labels did not say ACTIVE.
pub(crate) async fn refuse_changed(pool: &Pool, taking: &OpenState) -> Result<()> {
    for device in taking.gate.devices().iter().take(WITNESSES) {
        for label in read_labels(&**device).await {
            let field = |name| label.config.as_ref().and_then(|config| config.get_u64(name));
            // A device that was away may have older, irrelevant labels.
            let is_new = field("txg").is_some_and(|txg| Txg(txg) >= taking.found_label_txg);
            let is_active = field("state").map(PoolState::from) == Some(PoolState::Active);
            let is_taken = is_new && is_active && taking.found_state != PoolState::Active;
            if is_taken || label.uberblocks.iter().any(|uberblock| uberblock.txg > taking.found_txg) {
                let why = "another program or machine has taken it since it was opened; nothing was written";
                return Err(PoolError::Config { pool: pool.name().into(), why: why.into() }.into());
            }
        }
    }
    Ok(())
}
