//! Command line of `zpool history`.

use cenote_control::zpool::shown::history::History as Request;
use cenote_shown::zpool::history::Layout;

use crate::command::zpool::History;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

impl History {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let answered = session.control().run(Request { pools: self.pools }).await?;
        let layout = Layout { internal: self.internal, long: self.long };
        match session.json() {
            true => print_json(&layout.json(&answered.answer))?,
            false => answered.answer.iter().try_for_each(|pool| print(layout.text(pool)))?,
        }
        Ok(answered.outcome)
    }
}
