//! Command line of `zfs holds`.

use cenote_control::zfs::points::holds::Holds as Request;
use cenote_shown::numbers::Numbers;
use cenote_shown::zfs::holds;

use crate::command::zfs::Holds;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

impl Holds {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Request { snapshots: self.snapshots, recursive: self.recursive };
        let answered = session.control().run(request).await?;
        let (held, numbers) = (&answered.answer, Numbers { exact: self.parsable, ..Numbers::default() });
        session.show(|| holds::table(held, numbers).text(self.script), || holds::json(held))?;
        Ok(answered.outcome)
    }
}
