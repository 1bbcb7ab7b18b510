//! Reports and handles suspended pools.
//!
//! ```text
//!   suspended   failmode=wait, continue   the event ereport.fs.zfs.io_failure, a message
//!               failmode=panic            a message, and the program ends at once
//!   resumed                               the event resource.org.cenote.pool_resumed, a message
//! ```
//!
//! Source: OpenZFS `zio_suspend`, `FM_EREPORT_ZFS_IO_FAILURE` (`sys/fm/fs/zfs.h`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_engine::WeakEngine;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_pool::{Cause, FailMode, Suspended};

use crate::events::Events;

/// Event class: a pool is suspended.
pub const SUSPENDED: &str = "ereport.fs.zfs.io_failure";
/// Event class: a pool has resumed.
pub const RESUMED: &str = "resource.org.cenote.pool_resumed";

/// Prints a message of the daemon.
pub type Say = fn(&str);

/// Returns when a pool is suspended or resumed after event `seen`, and advances `seen`.
pub async fn turned(events: Events, seen: Arc<AtomicU64>) {
    loop {
        let after = seen.load(Ordering::Acquire);
        let new = events.after(after);
        seen.fetch_max(new.last().map_or(after, |last| last.id), Ordering::AcqRel);
        if new.iter().any(|event| [SUSPENDED, RESUMED].contains(&event.class)) {
            return;
        }
        events.wait_after(seen.load(Ordering::Acquire)).await;
    }
}

/// Watches a pool while its engine lives.
pub(crate) async fn keep_saying(engine: WeakEngine, pool: String, events: Events, say: Say) {
    loop {
        // A view does not keep the engine alive.
        let Ok(view) = engine.upgrade().map(|engine| engine.pool()) else { return };
        let Some(Suspended { txg, vdev, why, cause, .. }) = view.suspension().suspended_or_not(true).await
        else {
            continue;
        };
        let mode = view.suspension().failmode().unwrap_or(FailMode::Wait);
        let mut members = Nvlist::new();
        members.insert("pool_failmode", NvValue::String(mode.name().into()));
        events.post(SUSPENDED, &pool, view.tree().guid(), members);
        let what = match cause {
            Cause::Multihost => format!("pool '{pool}' is suspended: {why}: another machine may import it"),
            Cause::Devices => {
                format!("pool '{pool}' is suspended: txg {} can't be written: vdev {vdev}: {why}", txg.0)
            }
        };
        if mode == FailMode::Panic {
            say(&format!("{what}; failmode=panic: the program ends"));
            std::process::abort();
        }
        let next = match cause {
            Cause::Multihost => {
                format!("`zpool export -f {pool}` lets it go, `zpool import {pool}` opens it again")
            }
            Cause::Devices => {
                format!("it goes on when the devices work again, and `zpool clear {pool}` tries at once")
            }
        };
        say(&format!("{what}; {next}"));
        view.suspension().suspended_or_not(false).await;
        if let Ok(engine) = engine.upgrade() {
            // Resilver writes that devices have missed meanwhile.
            engine.background().scans.order();
        }
        events.post(RESUMED, &pool, view.tree().guid(), Nvlist::new());
        say(&format!("pool '{pool}' goes on"));
    }
}
