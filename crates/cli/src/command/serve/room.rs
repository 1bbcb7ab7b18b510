//! The set of pools of a daemon, with its memory limits, and the export of all pools at its end.

use std::path::PathBuf;
use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_control::session::lost;
use cenote_fuse::SessionOptions;
use cenote_host::memory::{Bounds, keep_memory};
use cenote_host::pools::{ExportError, InUse, OpenPool, Pools};
use cenote_host::tuning::Tuning;
use cenote_pool::PoolState;
use cenote_runtime::AbortOnDrop;
use futures::future::join_all;

use crate::allocator::set_freed;
use crate::message::say;
use crate::session::Session;

/// An empty set of open pools. While the returned task is kept, they stay within `memory` bytes ([`cache`])
/// and within this machine's memory.
pub fn room_for_pools(
    session: &Session,
    memory: Option<u64>,
    fuse: SessionOptions,
    state: PathBuf,
) -> (Arc<Pools>, AbortOnDrop<()>) {
    let runtime = session.runtime();
    let tuning = Tuning::new(runtime, cache(session, memory));
    let pools = Arc::new(Pools::new(runtime, session.disks().to_vec(), fuse, tuning, state, |text| {
        say!("{text}");
    }));
    let memory = keep_memory(runtime.clone(), Arc::downgrade(&pools), set_freed);
    (pools, runtime.spawn(memory).abort_on_drop())
}

/// The shared cache of a daemon's pools: `memory` bytes, or the value of `--cache`, or OpenZFS's default on
/// this machine.
fn cache(session: &Session, memory: Option<u64>) -> CacheOptions {
    let machine = || Bounds::of_machine(session.runtime().memory_bytes()).most_bytes;
    let typed = session.common().cache.as_ref().map(|_| session.cache().budget_bytes as u64);
    let bytes = memory.or(typed).unwrap_or_else(machine);
    let budget_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    CacheOptions { budget_bytes, data: true, ..session.cache() }
}

/// Exports all pools at the end of a daemon; busy mounts are detached from the tree.
pub async fn export_all(pools: &Pools) {
    let export = async |pool: Arc<OpenPool>| {
        // File systems that are not busy are unmounted normally first.
        let exported = match pool.leave_at_any_cost(PoolState::Exported, InUse::ClientsGo).await {
            Err(ExportError::Mounts(_)) => pool.leave_at_any_cost(PoolState::Exported, InUse::Goes).await,
            done => done,
        };
        match exported {
            Ok(left) => lost(&pool.name, left).into_iter().for_each(|text| say!("{text}")),
            Err(error) => say!("pool '{}' could not be exported: {error}", pool.name),
        }
        pools.remove(&pool.name);
    };
    join_all(pools.all().into_iter().map(export)).await;
}
