//! The daemon's pools, for rules that read the output of commands.
//!
//! In a client, each command is another process of this program, which asks the daemon. In the daemon itself,
//! for HTTP, commands run in its process.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_control::running::kstat::{Counted, Counters, Kstat};
use cenote_host::cancel::Cancel;
use cenote_lab::machine::zpool::Engine;
use cenote_lab::{LabError, Result};
use cenote_serve::run;
use cenote_serve::socket::Serving;
use tokio::runtime::Handle;

use crate::daemon::Commands;
use crate::outcome::CliError;
use crate::session::Session;
use crate::streams::streams;

/// Limit of a command's output: the properties of tens of thousands of datasets.
const OUTPUT_BYTES_MAX: usize = 256 << 20;

/// The daemon's pools, and its counters.
#[derive(Debug)]
pub struct Held {
    kstats: BTreeMap<String, String>,
    counted_s: f64,
    inside: Option<Inside>,
}

/// The commands of the daemon that runs this one. Calls block, so they use threads for blocking calls.
struct Inside {
    commands: Arc<dyn Serving>,
    handle: Handle,
    /// The requesting client's.
    cancel: Cancel,
}

impl Held {
    /// The pools of the daemon that runs this command, or that this command asks.
    pub async fn new(session: &Session) -> std::result::Result<Held, CliError> {
        let answer = session.control().run(Kstat { name: None, all: true }).await?.answer;
        let all = if let Counted::All(all) = answer { all } else { Vec::new() };
        let now_ns = all.iter().find_map(|(_, counters)| match counters {
            Counters::Counts { now_ns, .. } => Some(*now_ns),
            _ => None,
        });
        let inside = session.pools().map(|pools| {
            let (runtime, pools) = (session.runtime().clone(), pools.clone());
            let cancel = streams().client.as_ref().map(|client| client.cancel.clone()).unwrap_or_default();
            Inside { commands: Arc::new(Commands { runtime, pools }), handle: Handle::current(), cancel }
        });
        Ok(Held {
            kstats: all.iter().map(|(name, counters)| (name.clone(), counters.to_string())).collect(),
            // The daemon's clock begins at its start.
            counted_s: now_ns.unwrap_or(0) as f64 / 1e9,
            inside,
        })
    }
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}

impl Inside {
    fn text(&self, words: &[&str]) -> std::result::Result<String, String> {
        let text = run::text(&self.commands, words.iter().copied(), OUTPUT_BYTES_MAX);
        self.handle.block_on(async {
            tokio::select! {
                text = text => text,
                () = self.cancel.cancelled() => Err("interrupted".into()),
            }
        })
    }
}

/// The output of this program.
fn own_text(words: &[&str]) -> std::result::Result<String, String> {
    let run = || std::process::Command::new(std::env::current_exe()?).args(words).output();
    let done = run().map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
    }
}

impl Engine for Held {
    fn command(&self, words: &[&str]) -> Result<String> {
        let text = self.inside.as_ref().map_or_else(|| own_text(words), |inside| inside.text(words));
        text.map_err(|what| LabError::Program { program: words.join(" "), what })
    }

    fn kstats(&self) -> BTreeMap<String, String> {
        self.kstats.clone()
    }

    fn counted_s(&self) -> f64 {
        self.counted_s
    }
}
