//! How the agent runs verbs: in the daemon, each on a thread of its own; in a simulation, as the world wants.

use std::sync::Arc;

use cenote_control::Verb;
use cenote_serve::run::{Heard, ask};
use cenote_serve::socket::Serving;

/// Runs verbs as the daemon's own user.
pub trait Commands: Send + Sync + 'static {
    /// Runs a verb. `command`: for the pool's history, if it changes a pool.
    fn ask<V: Verb>(&self, request: V, command: &str) -> impl Future<Output = Heard<V::Answer>>
    where
        V::Answer: Send;
}

impl Commands for Arc<dyn Serving> {
    async fn ask<V: Verb>(&self, request: V, command: &str) -> Heard<V::Answer>
    where
        V::Answer: Send,
    {
        ask(self, request, command).await
    }
}
