//! `zpool events`: what of a pool's events is on its disks.
//!
//! OpenZFS keeps events in memory, and they are gone with the machine. What remains are the internal events of the history, each
//! of which was such an event, and the error log, which says where but not when.

use std::fmt::Write as _;

use cenote_dataset::errlog::LoggedError;
use cenote_format::history::key;
use cenote_format::nvlist::Nvlist;

use super::Events;
use crate::outcome::{CliError, Outcome};
use crate::render::{ctime, escape_terminal};
use crate::session::{Session, print};

impl Events {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let mut outcome = Outcome::Done;
        if !self.script {
            print(format!("{:<30} CLASS\n", "TIME"))?;
        }
        for found in session.find_pools(&self.pools).await? {
            let gathered = async {
                let mos = session.open_without_asking(&found).await?;
                Ok::<_, CliError>((mos.history().await?, mos.error_log().await?))
            };
            match gathered.await {
                Ok((records, errors)) => {
                    let is_event =
                        |record: &&Nvlist| record.contains(key::INT_NAME) || record.contains(key::INT_EVENT);
                    let events = records.iter().filter(is_event).map(|record| self.event(record));
                    let errors = errors.iter().map(|error| self.error(error));
                    print(events.chain(errors).collect::<String>())?;
                }
                Err(error) => outcome = outcome.and(super::complain(found.name(), &error)),
            }
        }
        Ok(outcome)
    }

    fn line(&self, time: &str, class: &str) -> String {
        if self.script { format!("{time}\t{class}\n") } else { format!("{time:<30} {class}\n") }
    }

    fn event(&self, record: &Nvlist) -> String {
        let time = record.get_u64(key::TIME).map_or_else(|| "-".into(), |s| event_time(s.cast_signed()));
        let mut out = self.line(&time, "sysevent.fs.zfs.history_event");
        if self.verbose {
            for line in record.to_string().lines() {
                let _ = writeln!(out, "        {}", escape_terminal(line.as_bytes()));
            }
            out.push('\n');
        }
        out
    }

    fn error(&self, error: &LoggedError) -> String {
        // The log does not say when.
        let mut out = self.line("-", "ereport.fs.zfs.data");
        if self.verbose {
            let place = &error.place;
            let _ = writeln!(out, "        zio_objset: {:#x}", place.dataset.0);
            let _ = writeln!(out, "        zio_object: {:#x}", place.object.0);
            let _ = writeln!(out, "        zio_level: {}", place.level);
            let _ = writeln!(out, "        zio_blkid: {:#x}", place.block.0);
            if let Some(birth) = error.birth {
                let _ = writeln!(out, "        birth: {birth}");
            }
            out.push('\n');
        }
        out
    }
}

/// `Nov 21 2026 07:20:22.000000000`; the history counts whole seconds.
fn event_time(seconds: i64) -> String {
    let text = ctime(seconds);
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [_, month, day, clock, year] => format!("{month} {day:>2} {year} {clock}.000000000"),
        _ => text,
    }
}
