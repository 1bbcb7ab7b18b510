//! The set of pools of a daemon, with its memory limits, and the export of all pools at its end.

use std::path::PathBuf;
use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_control::Session;
use cenote_control::session::lost;
use cenote_fuse::SessionOptions;
use cenote_host::memory::{Bounds, keep_memory};
use cenote_host::pools::{ExportError, InUse, OpenPool, Pools};
use cenote_host::tuning::Tuning;
use cenote_pool::PoolState;
use cenote_runtime::AbortOnDrop;
use futures::future::join_all;

use crate::process::Process;

/// An empty set of open pools. While the returned task is kept, they stay within `memory` bytes (none:
/// OpenZFS's default on this machine) and within this machine's memory. `state`: the record of open pools;
/// empty: nothing is recorded.
pub fn room_for_pools(
    session: &Session,
    process: Process,
    memory: Option<u64>,
    fuse: SessionOptions,
    state: PathBuf,
) -> (Arc<Pools>, AbortOnDrop<()>) {
    let runtime = session.runtime();
    let tuning = Tuning::new(runtime, cache(session, memory));
    let disks = session.disks().to_vec();
    let pools = Arc::new(Pools::new(runtime, disks, fuse, tuning, state, process.say));
    let memory = keep_memory(runtime.clone(), Arc::downgrade(&pools), process.set_freed);
    (pools, runtime.spawn(memory).abort_on_drop())
}

/// The shared cache of a daemon's pools.
fn cache(session: &Session, memory: Option<u64>) -> CacheOptions {
    let bytes = memory.unwrap_or_else(|| Bounds::of_machine(session.runtime().memory_bytes()).most_bytes);
    let budget_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    CacheOptions { budget_bytes, data: true, ..session.cache() }
}

/// Exports all pools at the end of a daemon; busy mounts are detached from the tree.
pub async fn export_all(pools: &Pools, say: fn(&str)) {
    let export = async |pool: Arc<OpenPool>| {
        // File systems not busy are unmounted normally first.
        let exported = match pool.leave_at_any_cost(PoolState::Exported, InUse::ClientsGo).await {
            Err(ExportError::Mounts(_)) => pool.leave_at_any_cost(PoolState::Exported, InUse::Goes).await,
            done => done,
        };
        match exported {
            Ok(left) => lost(&pool.name, left).into_iter().for_each(|text| say(&text)),
            Err(error) => say(&format!("pool '{}' could not be exported: {error}", pool.name)),
        }
        pools.remove(&pool.name);
    };
    join_all(pools.all().into_iter().map(export)).await;
}
