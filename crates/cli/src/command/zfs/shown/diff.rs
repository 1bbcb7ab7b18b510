//! Command line of `zfs diff`.

use std::sync::Arc;

use cenote_control::zfs::points::diff::{Diff as Request, DiffLine, DiffStyle};
use cenote_shown::zfs::diff;
use parking_lot::Mutex;

use crate::command::zfs::Diff;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, Stdout, stdout};

impl Diff {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let style = DiffStyle {
            scripted: self.script,
            classify: self.classify,
            timestamps: self.timestamp,
            verbatim: self.raw_names,
        };
        let style = (!session.json()).then_some(style);
        let out = Arc::new(Mutex::new((style, stdout())));
        let take = |(style, out): &mut (Option<DiffStyle>, Stdout), lines: Vec<DiffLine>| {
            diff::write(&lines, *style, out)
        };
        let request = Request { from: self.from, to: self.to };
        Ok(session.control().run_in_parts(request, &out, take).await?.outcome)
    }
}
