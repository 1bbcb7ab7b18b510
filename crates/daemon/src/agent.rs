//! The daemon's agent: its rules, and delivery of its alerts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cenote_agent::{Program, Rules, Tell, Webhook, keep_watch};
use cenote_control::ControlError;
use cenote_host::pools::Pools;
use cenote_host::suspended::turned;
use cenote_runtime::{AbortOnDrop, Runtime};
use cenote_serve::socket::Serving;
use futures::FutureExt;

/// An agent with its rules.
pub struct Agent {
    rules: Rules,
    webhook: Option<Webhook>,
}

impl Agent {
    /// Reads the rules.
    pub fn read(path: &Path) -> Result<Agent, ControlError> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(ControlError::io(shown.to_string()))?;
        let rules = Rules::parse(&text);
        let rules =
            rules.map_err(|why| ControlError::Usage(format!("--agent {shown}: {}", why.trim_end())))?;
        let webhook = rules.alerts.webhook.as_deref().map(Webhook::new).transpose()?;
        Ok(Agent { rules, webhook })
    }

    /// Runs the agent until the returned guard is dropped.
    pub fn start(
        self,
        runtime: &Runtime,
        say: fn(&str),
        commands: Arc<dyn Serving>,
        (pools, program): (Arc<Pools>, Program),
    ) -> AbortOnDrop<()> {
        let by_webhook = |webhook: Webhook| -> Tell { Box::new(move |alert| webhook.post(alert)) };
        let tell = self.webhook.map(by_webhook).into_iter().collect();
        let seen = Arc::new(AtomicU64::new(0));
        let events = pools.events.clone();
        let roused = move || turned(events.clone(), seen.clone()).boxed();
        let say = move |text: &str| say(&format!("agent: {text}"));
        let watch = keep_watch(runtime.clone(), commands, (pools, program), self.rules, tell, say, roused);
        runtime.spawn(watch).abort_on_drop()
    }
}
