//! Channel programs: Lua scripts that administer one pool, each as one sync task (`zfs program`).
//!
//! Idea: a program's changes are all in one txg, and nobody else's lie between them, because the program *is*
//! a sync task. Lua has its own thread, since it computes for as long as its limits allow. Its calls of
//! `zfs.*` are messages to the task:
//!
//! ```text
//!   thread: sandbox                                      task of the syncing txg
//!     dialect       the script as Lua 5.4                 answer     exists, properties, lists
//!     library       zfs.sync.snapshot("p/a@s") --Call-->    change   a Step of cenote-tasks: check or make
//!     value         return values            <--Reply--
//! ```
//!
//! The interpreter is Lua 5.4, whose integers, division and remainder are those that OpenZFS gave its Lua
//! 5.2; `dialect` refuses tokens unknown to 5.2, and `numbers` does the rest of the arithmetic. Libraries,
//! limits, functions and error texts are OpenZFS's.
//!
//! A task that meets a later txg's changes runs again in the next txg ([`DatasetError::NextTxg`]). So does a
//! program, if it has changed nothing yet. Otherwise the call answers EAGAIN.
//!
//! Source: OpenZFS `zcp.c`, `zcp_synctask.c`, `zcp_get.c`, `zcp_iter.c`, zfs-program(8).

#![forbid(unsafe_code)]

mod answer;
mod arguments;
mod calls;
mod dialect;
mod errno;
mod library;
mod numbers;
mod property;
mod sandbox;
mod value;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cenote_boxed::boxed;
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_object::{DatasetError, Result};
use tokio::sync::oneshot;

pub use dialect::script_of;
pub use sandbox::{Ended, Failure};
pub use value::Value;

/// Instructions that a program may run unless it says otherwise (`ZCP_DEFAULT_INSTRLIMIT`).
pub const DEFAULT_INSTRUCTIONS: u64 = 10_000_000;
/// The most it may ask for (`zfs_lua_max_instrlimit`).
pub const MAX_INSTRUCTIONS: u64 = 100_000_000;
/// Memory in bytes unless it says otherwise (`ZCP_DEFAULT_MEMLIMIT`).
pub const DEFAULT_MEMORY_BYTES: u64 = 10 << 20;
/// The most it may ask for (`zfs_lua_max_memlimit`).
pub const MAX_MEMORY_BYTES: u64 = 100 << 20;

/// Stack of the interpreter's thread: Lua nests calls of C functions up to 220 deep, and each may have a
/// buffer of some KiB. Pages that no program uses cost no memory.
const STACK_BYTES: usize = 16 << 20;
/// Times that a program which has changed nothing begins again in the next txg.
const RERUNS_MAX: u32 = 8;

/// A channel program.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its pool: the only one it may name.
    pub pool: String,
    /// Lua.
    pub script: String,
    /// Given to it as `argv`.
    pub arguments: Vec<String>,
    /// Limit of instructions.
    pub instructions: u64,
    /// Limit of memory.
    pub memory_bytes: u64,
    /// It may only look and check (`-n`).
    pub is_read_only: bool,
}

/// How a program ended, and the messages of `zfs.debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its end.
    pub ended: Ended,
    /// Its messages.
    pub debug: Vec<String>,
}

/// Stops the program if its caller goes away.
struct Stopping(Arc<AtomicBool>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs a program in one txg, and returns once that is on disk. A failed program's changes stay.
///
/// # Errors
/// A txg could not be written. A program's own failure is no error.
#[boxed]
pub async fn run(engine: &Engine, program: Program) -> Result<Run> {
    if engine.runtime().is_simulated() {
        // Its thread would run inside the simulator's.
        return Err(DatasetError::unsuitable(&program.pool, "channel programs can't be simulated"));
    }
    let (program, reruns) = (Arc::new(program), Arc::new(AtomicU32::new(0)));
    let stopping = Stopping(Arc::default());
    let check = if program.is_read_only { SpaceCheck::None } else { SpaceCheck::ExtraReserved };
    engine
        .run_when_quiet(check, || {
            let (program, reruns, stop) = (program.clone(), reruns.clone(), stopping.0.clone());
            move |context| Box::pin(async move { run_sync(context, program, &reruns, stop).await })
        })
        .await
}

async fn run_sync(
    context: &mut SyncContext,
    program: Arc<Program>,
    reruns: &AtomicU32,
    stop: Arc<AtomicBool>,
) -> Result<Run> {
    // Its steps note theirs.
    context.touch_nothing();
    let before = context.changes();
    let (port, mut calls) = calls::channel();
    let (done, ended) = oneshot::channel();
    let script = program.clone();
    let thread = std::thread::Builder::new().name("cenote-program".into()).stack_size(STACK_BYTES);
    let execute = move || {
        // The receiver is gone if the program begins again.
        drop(done.send(sandbox::execute(&script, port, &stop)));
    };
    if let Err(error) = thread.spawn(execute) {
        let ended = Ended::failed(format!("no thread for the interpreter: {error}"));
        return Ok(Run { ended, debug: Vec::new() });
    }
    let mut debug = Vec::new();
    while let Some(call) = calls.next().await {
        let reply = match answer::answer(context, &program, call.what(), &mut debug).await {
            Err(answer::Fault::Task(DatasetError::NextTxg { name })) => {
                if context.changes() == before && reruns.fetch_add(1, Ordering::AcqRel) < RERUNS_MAX {
                    return Err(DatasetError::NextTxg { name });
                }
                Ok(calls::Reply::errno(libc::EAGAIN))
            }
            Err(answer::Fault::Task(error)) => return Err(error),
            Err(answer::Fault::Lua(raised)) => Err(raised),
            Ok(reply) => Ok(reply),
        };
        call.reply(reply);
    }
    let ended = ended.await.unwrap_or_else(|_| Ended::failed("the interpreter has failed"));
    Ok(Run { ended, debug })
}
