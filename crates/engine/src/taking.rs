//! Taking a pool and giving it back, such that one that was not changed is left as it was, byte for byte.
//!
//! ```text
//!   take           nothing is written: the devices lie behind a gate
//!   prepare        what was left to do (logs to replay, files without names to free) waits behind the gate
//!   first change   nobody else has written to the pool: labels say ACTIVE, the gate opens; the txg follows
//!   close          the last txg says EXPORTED. Without any change: nothing, if all devices know the newest
//! ```
//!
//! Idea: a command is judged before anything is written. A sync task checks before it changes, and a txg in
//! which nothing has changed is not written, so a refusal ends with the gate closed. This goes for pools with
//! logs to replay, too: a command is judged against the replayed state, which is on disk only if the command
//! is not refused.
//!
//! Cut at any moment, the pool opens: in the txg that it was found in until the first txg is whole, exported
//! or in use by this host, whatever the labels had come to; in that of the last whole txg afterwards.
//!
//! Source: our own; which states there are, OpenZFS `spa.c` (`spa_import`, `spa_export_common`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote_device::Gate;
use cenote_format::label::{PoolConfig, PoolState};
use cenote_format::units::Txg;
use cenote_object::Result;
use cenote_pool::label::read_labels;
use cenote_pool::{Pool, PoolError};
use parking_lot::Mutex;

use crate::host::Host;

/// Devices that are looked at for what others have written: who takes a pool writes to all of them.
const WITNESSES: usize = 3;
/// So much waits behind the gate at most, and one txg: a replay of more than that is written whatever becomes
/// of the command.
pub(crate) const HELD_BYTES_MAX: u64 = 64 << 20;

/// How the pool was found, until it is changed.
pub(crate) struct Taking {
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
    /// How many prepare.
    pub(crate) preparing: AtomicUsize,
    /// Somebody has begun to.
    pub(crate) is_prepared: AtomicBool,
}

/// Ends a preparation, also one that is given up.
pub(crate) struct Preparing<'a>(&'a Taking);

impl Preparing<'_> {
    pub(crate) fn of(taking: &Taking) -> Preparing<'_> {
        taking.preparing.fetch_add(1, Ordering::AcqRel);
        Preparing(taking)
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.0.preparing.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Since the pool was opened nobody else has taken it: until now it did not say that it is in use.
pub(crate) async fn refuse_changed(pool: &Pool, taking: &Taking) -> Result<()> {
    for device in taking.gate.devices().iter().take(WITNESSES) {
        for label in read_labels(&**device).await {
            let field = |name| label.config.as_ref().and_then(|config| config.get_u64(name));
            // A device that was away may have older labels, which tell of another time.
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
