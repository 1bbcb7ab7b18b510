//! The environment of a real watch: this machine's pools and clock, a terminal, a webhook.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cenote_agent::Webhook;
use cenote_lab::advice::Facts;
use cenote_lab::advice::facts::Look;
use cenote_lab::advice::watch::{Event, World};
use cenote_lab::control::Control;
use cenote_lab::{LabError, Result};
use cenote_shown::json;
use cenote_shown::lab::alert;

use super::metrics::Page;
use crate::session::print;

/// How often the stop request is polled.
const TICK: Duration = Duration::from_millis(200);

/// This machine.
pub struct Real {
    pub look: Look,
    pub webhook: Option<Webhook>,
    pub page: Option<Page>,
    /// Print events on standard output as JSON, one per line.
    pub json: bool,
}

impl World for Real {
    fn facts(&mut self) -> Result<Facts> {
        Facts::gather(&self.look)
    }

    fn post(&mut self, event: &Event) -> Result<()> {
        let failed = |what| LabError::Program { program: "webhook".into(), what };
        self.webhook.as_ref().map_or(Ok(()), |webhook| webhook.post(event).map_err(failed))
    }

    fn unix_s(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    fn wait(&mut self, time: Duration, control: &Control) {
        let mut left = time;
        while !left.is_zero() && !control.stopped() {
            let now = left.min(TICK);
            std::thread::sleep(now);
            left -= now;
        }
    }

    fn happened(&mut self, events: &[Event], metrics: String) {
        for event in events {
            let line = match self.json {
                true => json::line(event).unwrap_or_default(),
                false => alert::line(event) + "\n",
            };
            // Standard output may have no reader; the webhook and the metrics still work.
            let _ = print(line);
        }
        if let Some(page) = &self.page {
            *page.lock().unwrap_or_else(|e| e.into_inner()) = metrics;
        }
    }
}
