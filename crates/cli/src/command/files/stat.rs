//! Command line of `cenote stat`.

use std::sync::Arc;

use cenote_control::files::stat::{Known, Stat as Request};
use cenote_shown::files::stat::Received;
use parking_lot::Mutex;

use super::Stat;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

impl Stat {
    /// Runs the command. With JSON, all files are printed at the end.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Request { targets: self.targets, follow: self.follow, blocks: self.blocks };
        let files = Arc::new(Mutex::new((session.json(), Received::default())));
        let take = |(is_json, files): &mut (bool, Received), known: Known| {
            files.take(known);
            let text = if *is_json { None } else { files.next_text() };
            text.map_or(Ok(()), print)
        };
        let answered = session.control().run_in_parts(request, &files, take).await?;
        if session.json() {
            print_json(&files.lock().1.json())?;
        }
        Ok(answered.outcome)
    }
}
