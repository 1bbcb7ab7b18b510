//! Command line of `zpool import`.

mod cachefile;

use cenote_control::zpool::whole::import::{Import as Request, Purpose};
use cenote_shown::zpool::import::Layout;

use super::Import;
use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, print, print_json};

impl Import {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        self.check_options()?;
        let request = self.request(session)?;
        let layout = Layout {
            were_opened: request.purpose == Purpose::Open,
            dry_run: self.dry_run,
            extreme: self.extreme,
            names: self.names.into(),
        };
        let answered = session.control().run(request).await?;
        let (done, outcome) = (answered.answer, answered.outcome);
        if session.json() {
            return match layout.json(&done) {
                Some(document) => Ok(outcome.printed(print_json(&document))),
                None => Ok(outcome),
            };
        }
        if let Some(why) = done.nothing {
            return Err(CliError::NotFound(why));
        }
        Ok(outcome.printed(print(layout.text(&done))))
    }

    /// Whether this is about a pool on disks, not about opening one for good.
    pub fn is_for_disks(&self) -> bool {
        self.dry_run || self.is_read_only()
    }

    fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "readonly=on")
    }

    fn request(&self, session: &Session) -> Result<Request, CliError> {
        let disks = match &self.cache_file {
            Some(file) => cachefile::devices(file)?,
            None => session.common().disks.clone(),
        };
        let stays = session.control().is_with_daemon() && !self.is_for_disks();
        let opens = match session.json() {
            true => stays && (self.pool.is_some() || self.all),
            false => self.pool.is_some() || self.all,
        };
        let altroot = self.options.iter().find_map(|option| option.strip_prefix("altroot="));
        Ok(Request {
            pool: self.pool.clone(),
            purpose: if opens { Purpose::Open } else { Purpose::Describe },
            disks,
            destroyed: self.destroyed,
            force: self.force,
            no_mount: self.no_mount,
            root: self.altroot.as_deref().or(altroot).map(Into::into),
            load_keys: self.load_keys,
            new_name: self.new_name.clone(),
            temporary: self.temporary,
            missing_log: self.missing_log,
            rewind: session.common().rewind,
            extreme: self.extreme,
            rewind_to_checkpoint: self.rewind_to_checkpoint,
            dry_run: self.dry_run,
            read_only: self.is_read_only(),
        })
    }

    fn check_options(&self) -> Result<(), CliError> {
        // These would only affect a kernel.
        let is_idle = |option: &str| ["altroot=", "cachefile="].iter().any(|name| option.starts_with(name));
        match self.options.iter().find(|option| *option != "readonly=on" && !is_idle(option)) {
            None => Ok(()),
            Some(option) => Err(CliError::Usage(format!(
                "-o {option}: not possible: an import only looks; commands that write open the pool \
                 themselves"
            ))),
        }
    }
}
