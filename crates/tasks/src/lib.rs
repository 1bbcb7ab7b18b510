//! Sync tasks: changes to datasets and to the pool as a whole.
//!
//! ```text
//!   snapshot(&engine, names)     runs when the open txg is written
//!     engine.run_within(..)      cenote-engine: after the txg's datasets; how much of the slop it may use
//!       check                    every refusal happens here, before any change
//!       make, account, ...       objects, chains of versions, deadlists, directory accounts
//!       log_of_dataset           adds the event to the pool's history, in the same txg
//!
//!   datasets   create, clone, snapshot, destroy, destroy_snapshot, rename, promote, rollback, set, hold,
//!              mark, redact, allow, change_key, receive; `step`: several as one task; shared helpers: make,
//!              counts, crypt, remapped
//!   pool       create, vdevs, attach, detach, removal, remove_log, leaves, expand, expansion, health,
//!              sparing, validate, mend, errors, split, reguid, scan, passes, auxiliary, settings, features,
//!              upgrade, checkpoint
//! ```
//!
//! Each task is a function on an [`Engine`]: when it returns, the txg is on disk. Inside, `NAME_sync` runs
//! alone, on a [`SyncContext`], while the txg is written. A task that fails leaves no trace.
//!
//! Source: OpenZFS `dsl_synctask.c`, `dsl_dir.c`, `dsl_dataset.c`, `dsl_destroy.c`, `spa.c`.
//!
//! [`Engine`]: cenote_engine::Engine
//! [`SyncContext`]: cenote_engine::SyncContext

#![forbid(unsafe_code)]

mod allow;
mod change_key;
mod clone;
mod counts;
mod create;
mod crypt;
mod destroy;
mod destroy_snapshot;
mod hold;
mod make;
mod mark;
mod new_dataset;
mod pool;
mod promote;
mod receive;
mod redact;
mod remapped;
mod rename;
mod rollback;
mod set;
mod snapshot;
mod step;
mod touch;
mod whole;
mod zpl_version;

pub use allow::{Withdrawn, allow, unallow};
pub use change_key::{change_key, inherit_key};
pub use clone::{clone_snapshot, clone_snapshots};
pub use create::{KEPT_ELSEWHERE, create_filesystem, create_volume};
pub use destroy::destroy_dataset;
pub use destroy_snapshot::{InUse, destroy_snapshots};
pub use hold::{hold_snapshots, release_snapshots};
pub use mark::{bookmark, bookmark_all, destroy_bookmark};
pub use new_dataset::{Fill, Settings};
pub use pool::attach::{attach, evacuate, replace, spare_in};
pub use pool::autotrim::keep_autotrimming;
pub use pool::auxiliary::{add_cache, add_spares, remove_beside};
pub use pool::checkpoint::{discard_checkpoint, take_checkpoint};
pub use pool::create::{NewPool, create_pool};
pub use pool::detach::detach;
pub use pool::expand::expand;
pub use pool::expansion::{
    Expanded, ExpansionProgress, attach_to_raidz, expansion, keep_expanding, run_expansion,
};
pub use pool::health::{Surroundings, Symptom, keep_healthy, resume_with};
pub use pool::leaves::{Away, Back, bring_back, degrade, take_out};
pub use pool::mend::mend;
pub use pool::passes::{PassOrder, is_passing, keep_passing, order_pass, run_passes};
pub use pool::prune::{Prune, prune_dedup};
pub use pool::rebuild::{Resilver, active as rebuilding, keep_rebuilding, run_rebuild};
pub use pool::reguid::change_guid;
pub use pool::removal::{
    RemovalProgress, Removed, cancel_removal, keep_removing, mapping_bytes_after, removing_vdev, run_removal,
    start_removal,
};
pub use pool::remove_log::remove_log;
pub use pool::scan::{
    ScanProgress, Scanned, ScrubDepth, cancel_scrub, keep_scanning, pause_scrub, run_scan, start_error_scrub,
    start_scrub, start_scrub_between,
};
pub use pool::settings::{PoolSetting, VdevSetting, obey_failmode, set_pool, set_vdev};
pub use pool::split::{SplitOff, split};
pub use pool::validate::validate;
pub use pool::vdevs::add_vdevs;
pub use promote::promote;
pub use receive::correct::{CorrectError, Corrected, Correction, Offer};
pub use receive::finish::{Finish, end_receive};
pub use receive::properties::receive_properties;
pub use receive::raw::{RawKeys, move_to_root};
pub use receive::redacted::RedactedFor;
pub use receive::remains::destroy_remains;
pub use receive::resume::{Progress, ResumeState, note_progress, resume_state, unfinished_receive};
pub use receive::{NewReceive, Receiving, abort_receive, begin_receive};
pub use redact::{RedactedRun, Redaction, redact};
pub use rename::{check_outside, rename, rename_snapshots};
pub use rollback::rollback;
pub use set::{
    Instead, SIZES, check_changes, check_settings, inherit, is_of_owner, is_user_property, set_property,
};
pub use snapshot::{snapshot, snapshot_with};
pub use step::Step;
pub use zpl_version::note_upgrade;
