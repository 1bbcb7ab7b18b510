//! The daemon's pools, for rules that read what commands print.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_host::cancel::Cancel;
use cenote_host::kstat;
use cenote_host::pools::Pools;
use cenote_lab::machine::zpool::Engine;
use cenote_lab::{LabError, Result};
use cenote_runtime::Runtime;
use cenote_serve::run;
use cenote_serve::socket::Serving;
use tokio::runtime::Handle;

use crate::daemon::Commands;
use crate::session::Session;
use crate::streams::streams;

/// What a command may print: the properties of tens of thousands of datasets.
const OUTPUT_BYTES_MAX: usize = 256 << 20;

/// They, and the daemon's commands. Its calls block, so they are made on threads for that.
pub struct Held {
    commands: Arc<dyn Serving>,
    pools: Arc<Pools>,
    runtime: Runtime,
    handle: Handle,
    /// Of the client who asks.
    cancel: Cancel,
}

impl Held {
    /// Those of the daemon in which this command runs.
    pub fn new(session: &Session, pools: &Arc<Pools>) -> Held {
        let runtime = session.runtime().clone();
        let commands = Commands { runtime: runtime.clone(), pools: pools.clone() };
        let cancel = streams().client.as_ref().map(|client| client.cancel.clone()).unwrap_or_default();
        Held {
            commands: Arc::new(commands),
            pools: pools.clone(),
            runtime,
            handle: Handle::current(),
            cancel,
        }
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl Engine for Held {
    fn command(&self, words: &[&str]) -> Result<String> {
        let failed = |what| LabError::Program { program: words.join(" "), what };
        let text = run::text(&self.commands, words.iter().copied(), OUTPUT_BYTES_MAX);
        self.handle.block_on(async {
            tokio::select! {
                text = text => text.map_err(failed),
                () = self.cancel.cancelled() => Err(failed("interrupted".into())),
            }
        })
    }

    fn kstats(&self) -> BTreeMap<String, String> {
        self.handle.block_on(kstat::texts(&self.pools)).into_iter().collect()
    }

    fn counted_s(&self) -> f64 {
        // The daemon's clock begins with it.
        self.runtime.now().as_ns() as f64 / 1e9
    }
}
