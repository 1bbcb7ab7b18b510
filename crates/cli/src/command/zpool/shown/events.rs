//! Command line of `zpool events`.

use cenote_control::zpool::shown::events::{Events as Request, Order};
use cenote_shown::zpool::events::{self, Layout};
use serde_json::json;

use crate::command::zpool::Events;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

impl Events {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let ask = async |after, order| {
            session.control().run(Request { pools: self.pools.clone(), after, order }).await
        };
        if self.clear {
            let cleared = ask(0, Order::Clear).await?.answer.cleared;
            session.show(|| format!("cleared {cleared} events\n"), || json!({"cleared": cleared}))?;
            return Ok(Outcome::Done);
        }
        let layout = Layout { verbose: self.verbose, script: self.script };
        if self.follow {
            if !session.json() {
                print(layout.heading())?;
            }
            let mut last = 0;
            loop {
                let seen = ask(last, Order::Await).await?.answer;
                last = seen.last;
                for event in &seen.events {
                    session.show(|| layout.text(event), || events::event_json(event))?;
                }
            }
        }
        let answered = ask(0, Order::Show).await?;
        let seen = &answered.answer;
        let text =
            || layout.heading() + &seen.events.iter().map(|event| layout.text(event)).collect::<String>();
        session.show(text, || events::json(seen))?;
        Ok(answered.outcome)
    }
}
