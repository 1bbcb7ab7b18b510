//! Command line of `cenote ls`.

use std::sync::Arc;

use cenote_control::files::ls::{Depth, Ls as Request};
use cenote_shown::files::Shape;
use cenote_shown::files::ls::{Layout, Listing};
use cenote_shown::numbers::Numbers;
use cenote_shown::output::Output;
use parking_lot::Mutex;

use super::Ls;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, Stdout, stdout};
use crate::streams::streams;

impl Ls {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let layout = Layout {
            shape: Shape {
                long: self.long,
                numbers: Numbers { exact: !self.human, ..Numbers::default() },
                inodes: self.inode,
                colors: streams().stdout_screen().is_some() && std::env::var_os("NO_COLOR").is_none(),
            },
            print0: self.print0,
            titles: !self.print0 && self.targets.len() > 1,
            recursive: self.recursive && !self.directory,
        };
        let depth = match (self.directory, layout.recursive) {
            (true, _) => Depth::Itself,
            (false, true) => Depth::All { links: self.long || session.json() },
            (false, false) => Depth::Files,
        };
        let request = Request { targets: self.targets, all: self.all, depth };
        let listing = Listing::new(Output::new(stdout(), session.json()), layout);
        let listing = Arc::new(Mutex::new(Some(listing)));
        let take = |listing: &mut Option<Listing<Stdout>>, part| match listing {
            Some(listing) => listing.take(part),
            None => Ok(()),
        };
        let answered = session.control().run_in_parts(request, &listing, take).await;
        let listing = listing.lock().take();
        let outcome = answered?.outcome;
        listing.map_or(Ok(()), Listing::end)?;
        Ok(outcome)
    }
}
