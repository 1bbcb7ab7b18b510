//! Opens the pools of a daemon: at its start, and as often as it takes.
//!
//! Idea: the start tries each pool once, so that what is there is served when the daemon says that it is
//! ready. Pools that don't open wait (`cenote_host::waiting`), and one thread tries them again, in turn.

use std::sync::Arc;
use std::thread::JoinHandle;

use cenote_host::cancel::Cancel;
use cenote_host::pools::Pools;
use cenote_host::record::NotedPool;

use crate::message::say;
use crate::outcome::{CliError, Outcome, Say};
use crate::session::Session;

/// Opens pools as the daemon was told to.
pub struct Opening {
    pub session: Session,
    pub pools: Arc<Pools>,
    pub load_keys: bool,
    pub no_mount: bool,
}

impl Opening {
    /// Tries each pool that is named, or that the last daemon had, once. Those that don't open wait.
    pub async fn begin(&self, named: &[String]) -> Outcome {
        let mut outcome = Outcome::Done;
        let noted = self.pools.noted().pools.clone();
        // Of a pool that is noted, more is known than its name.
        let is_noted = |name: &&String| noted.iter().any(|pool| pool.name == **name || pool.key() == **name);
        let unknown = named.iter().filter(|name| !is_noted(name)).map(|name| NotedPool::named(name));
        for pool in unknown.chain(noted.iter().cloned()) {
            outcome = outcome.and(self.attempt(pool, true).await);
        }
        outcome
    }

    /// Tries those that wait until `stop` is cancelled.
    pub fn keep(self, stop: Cancel) -> std::io::Result<JoinHandle<()>> {
        let keep = move || {
            let runtime = self.session.runtime().clone();
            let tries = async {
                loop {
                    let next = self.pools.waiting.next(&runtime).await;
                    self.attempt(next, false).await;
                }
            };
            runtime.block_on(async {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tries => {}
                }
            });
        };
        std::thread::Builder::new().name("cenote-opening".into()).spawn(keep)
    }

    async fn attempt(&self, pool: NotedPool, is_first: bool) -> Outcome {
        match self.open(&pool).await {
            Ok(outcome) => {
                if !is_first {
                    say!("pool '{}' is open", pool.name);
                }
                outcome
            }
            // Somebody has imported it meanwhile, or has forgotten it.
            Err(_) if self.pools.is_open(&pool) => Outcome::Done,
            Err(_) if !is_first && self.pools.waiting.named(&pool.key()).is_empty() => Outcome::Done,
            Err(error) => {
                let why = error.to_string();
                if self.pools.wait(self.session.runtime(), pool.clone(), &why) {
                    say!("pool '{}' waits to be opened: {why}", pool.name);
                }
                // It may open yet.
                Outcome::Done
            }
        }
    }

    async fn open(&self, pool: &NotedPool) -> Result<Outcome, CliError> {
        let session = &self.session;
        let found = session.find_noted(pool).await?;
        session.check_unused_or(&found, &format!("`cenote zpool import -f {}`", found.name()))?;
        let open = session.hold(&found, None).await?;
        // From here on it is open: what follows is told, and no reason to open it again.
        let loaded = match self.load_keys {
            true => session.load_keys(&open, None).await.unwrap_or_else(|error| error.tell(&open.name)),
            false => Outcome::Done,
        };
        let mounted = match self.no_mount {
            true => Outcome::Done,
            false => session.mount_all(&open).await.unwrap_or_else(|error| error.tell(&open.name)),
        };
        Ok(loaded.and(mounted))
    }
}
