//! The agent, as it ships: it looks after the pool by rules whose times are short.
//!
//! Idea: its verbs go through `control`, as any administrator's do. Those that change a pool are calls of a
//! client, so that the oracle, the log and the pairs know them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cenote_agent::{Commands, Program, Rules, keep_watch};
use cenote_control::{Answered, Outcome as Ended, Verb};
use cenote_serve::run::Heard;
use futures::FutureExt;
use futures::future::{pending, select};

use super::Stage;
use crate::less::AGENT;
use crate::model::{Action, Outcome};

/// Rules for all pools. Times are whole seconds there; the world's are shorter.
const RULES: &str = "[[scrub]]\nevery = \"1 s\"\n[[trim]]\nevery = \"1 s\"";

/// One of so many trims is made.
const TRIMS: u64 = 8;

/// Runs verbs for the agent.
struct Asking {
    stage: Stage,
    /// Verbs under way.
    count: Arc<AtomicUsize>,
}

/// Looks after the pool until clients stop. A verb under way ends first.
pub async fn run(stage: &Stage, look: Duration) {
    let mut rules = Rules::parse(RULES).expect("they are rules");
    rules.look = look;
    // Due whenever the last has ended.
    rules.scrub.iter_mut().chain(&mut rules.trim).for_each(|rule| rule.every = Duration::ZERO);
    let count = Arc::new(AtomicUsize::new(0));
    let commands = Asking { stage: stage.clone(), count: count.clone() };
    // No rule replicates: the program is not started.
    let program = Program { path: "/".into(), socket: "/".into() };
    let (runtime, pools, noted) = (stage.runtime.clone(), stage.daemon.pools.clone(), stage.clone());
    let say = move |text: &str| noted.note(&format!("agent: {text}"));
    let watch = keep_watch(runtime, commands, (pools, program), rules, Vec::new(), say, || pending().boxed());
    let is_over = async {
        while !stage.is_over() || count.load(Ordering::Relaxed) > 0 {
            stage.runtime.sleep(look).await;
        }
    };
    select(std::pin::pin!(watch), std::pin::pin!(is_over)).await;
}

impl Commands for Asking {
    async fn ask<V: Verb>(&self, request: V, _command: &str) -> Heard<V::Answer>
    where
        V::Answer: Send,
    {
        let Stage { runtime, scene, daemon, bay, .. } = &self.stage;
        let verb = V::NAME.strip_prefix("zpool ").filter(|verb| ["scrub", "trim"].contains(verb));
        // A trim writes all free space, which takes long in the world, though not in its own time.
        let is_too_often = verb == Some("trim") && !runtime.random_u64().is_multiple_of(TRIMS);
        // A repair waits for the end of all scans.
        let is_in_repair = bay.repair.try_lock().is_err();
        if verb.is_some() && (is_too_often || is_in_repair || !scene.takes(AGENT)) {
            return Heard { answer: None, failed: Some("not now".into()) };
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let call = verb.map(|verb| scene.begin(runtime, None, AGENT, Action::Pool { verb: verb.into() }));
        let (done, said) = daemon.run(request).await;
        let heard = match done {
            Ok(Answered { answer, outcome: Ended::Done }) => Heard { answer: Some(answer), failed: None },
            Ok(Answered { answer, .. }) => Heard { answer: Some(answer), failed: Some(said) },
            Err(error) => Heard { answer: None, failed: Some(format!("{error} {said}")) },
        };
        if let Some(call) = call {
            let outcome = heard.failed.clone().map_or(Outcome::Done, Outcome::Refused);
            scene.end(runtime, call, &outcome);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        heard
    }
}
