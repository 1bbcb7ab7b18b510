//! Opens the pools of a daemon: at its start, and later until each has opened.
//!
//! Idea: the start tries each pool once, so that every pool that opens is served when the daemon reports
//! READY. The others wait (`cenote_host::waiting`), and one thread retries them in turn.
//!
//! A pool that another machine has taken over, or that was destroyed, does not wait: it would be opened when
//! the other machine exports it, perhaps for a third one.

use std::sync::Arc;
use std::thread::JoinHandle;

use cenote_control::{ControlError, Outcome, Session};
use cenote_host::cancel::Cancel;
use cenote_host::pools::Pools;
use cenote_host::record::NotedPool;

/// Why a pool is not open.
enum Unopened {
    /// It may open later.
    Yet(ControlError),
    /// It is no longer this machine's.
    Gone(ControlError),
}

impl From<ControlError> for Unopened {
    fn from(error: ControlError) -> Unopened {
        Unopened::Yet(error)
    }
}

/// Opens pools with the daemon's options.
pub struct Opening {
    pub session: Session,
    pub pools: Arc<Pools>,
    pub load_keys: bool,
    pub no_mount: bool,
    pub say: fn(&str),
}

impl Opening {
    /// Tries each pool once that is named or that the last daemon had open, except those that move among
    /// machines. Those that fail wait.
    pub async fn begin(&self, named: &[String], moves: impl Fn(&str) -> bool) -> Outcome {
        let mut outcome = Outcome::Done;
        let noted = self.pools.noted().pools.clone();
        // A recorded pool is known by more than its name.
        let is_noted = |name: &&String| noted.iter().any(|pool| pool.name == **name || pool.key() == **name);
        let unknown = named.iter().filter(|name| !is_noted(name)).map(|name| NotedPool::named(name));
        for pool in unknown.chain(noted.iter().cloned()).filter(|pool| !moves(&pool.name)) {
            outcome = outcome.and(self.attempt(pool, true).await);
        }
        outcome
    }

    /// Retries waiting pools until `stop` is cancelled.
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
                    biased;
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
                    (self.say)(&format!("pool '{}' is open", pool.name));
                }
                outcome
            }
            // A command has imported it meanwhile, or has removed it from the record.
            Err(_) if self.pools.is_open(&pool) => Outcome::Done,
            Err(_) if !is_first && self.pools.waiting.named(&pool.key()).is_empty() => Outcome::Done,
            Err(Unopened::Gone(error)) => {
                self.pools.forget(&pool.key());
                (self.say)(&format!("pool '{}' is left alone: {error}", pool.name));
                Outcome::Done
            }
            Err(Unopened::Yet(error)) => {
                let why = error.to_string();
                if self.pools.wait(self.session.runtime(), pool.clone(), &why) {
                    (self.say)(&format!("pool '{}' waits to be opened: {why}", pool.name));
                }
                // It may open later.
                Outcome::Done
            }
        }
    }

    async fn open(&self, pool: &NotedPool) -> Result<Outcome, Unopened> {
        let session = &self.session;
        let found = session.find_noted(pool).await?;
        let takes_it = format!("`cenote zpool import -f {}`", found.name());
        session.check_unused_or(&found, &takes_it).map_err(Unopened::Gone)?;
        let open = session.hold(&found, None).await?;
        // The pool is open from here on: later failures are reported, but are no reason to open it again.
        let tell = |error| session.caller().tell(&open.name, &error);
        let loaded = match self.load_keys {
            true => session.load_keys(&open, None).await.unwrap_or_else(tell),
            false => Outcome::Done,
        };
        let mounted = match self.no_mount {
            true => Outcome::Done,
            false => session.mount_all(&open).await.unwrap_or_else(tell),
        };
        Ok(loaded.and(mounted))
    }
}
