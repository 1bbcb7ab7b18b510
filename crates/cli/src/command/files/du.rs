//! Command line of `cenote du`.

use std::sync::Arc;

use cenote_control::files::du::{Du as Request, Total};
use cenote_shown::files::du;
use cenote_shown::numbers::Numbers;
use parking_lot::Mutex;

use super::Du;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

impl Du {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let depth = if self.summarize { Some(0) } else { self.depth };
        let request = Request { targets: self.targets, depth, apparent: self.apparent };
        let take = |all: &mut Vec<Total>, totals| {
            all.extend(totals);
            Ok(())
        };
        let totals = Arc::new(Mutex::new(Vec::new()));
        let answered = session.control().run_in_parts(request, &totals, take).await?;
        let (totals, numbers) = (totals.lock(), Numbers { exact: self.bytes, ..Numbers::default() });
        session.show(|| du::text(&totals, numbers), || du::json(&totals))?;
        Ok(answered.outcome)
    }
}
