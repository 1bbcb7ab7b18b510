//! The output of `zfs destroy`: `-v` for people, `-p` for scripts, `--json`.

use cenote_dataset::Dataset;
use serde_json::{Value, json};

use super::Destroy;
use crate::command::json::version;
use crate::outcome::CliError;
use crate::render::nice_bytes;
use crate::session::{Session, print, print_json};

enum Line {
    Destroys(String),
    Reclaims(u64),
}

/// The lines of a plan, in order.
#[derive(Default)]
pub struct Report(Vec<Line>);

impl Report {
    /// Adds a dataset, snapshot or clone that will be destroyed.
    pub fn destroys(&mut self, dataset: &Dataset) {
        self.0.push(Line::Destroys(dataset.name().into()));
    }

    /// Adds the space that the snapshots so far free.
    pub fn reclaims(&mut self, bytes: u64) {
        self.0.push(Line::Reclaims(bytes));
    }

    /// Prints the plan in the requested format, if any.
    pub fn print(&self, session: &Session, options: &Destroy) -> Result<(), CliError> {
        match () {
            () if !options.verbose && !options.parsable => Ok(()),
            () if session.json() => print_json(&self.json(options.dry_run)),
            () => print(self.0.iter().map(|line| line.text(options)).collect::<String>()),
        }
    }

    fn json(&self, dry_run: bool) -> Value {
        let names = self.0.iter().filter_map(|line| match line {
            Line::Destroys(name) => Some(name.as_str()),
            Line::Reclaims(_) => None,
        });
        let bytes = self.0.iter().find_map(|line| match line {
            Line::Reclaims(bytes) => Some(*bytes),
            Line::Destroys(_) => None,
        });
        json!({
            "output_version": version("zfs destroy"),
            "dry_run": dry_run,
            "destroy": names.collect::<Vec<_>>(),
            "reclaim_bytes": bytes,
        })
    }
}

impl Line {
    fn text(&self, options: &Destroy) -> String {
        let when = if options.dry_run { "would" } else { "will" };
        match (self, options.parsable) {
            (Line::Destroys(name), true) => format!("destroy\t{name}\n"),
            (Line::Destroys(name), false) => format!("{when} destroy {name}\n"),
            (Line::Reclaims(bytes), true) => format!("reclaim\t{bytes}\n"),
            (Line::Reclaims(bytes), false) => format!("{when} reclaim {}\n", nice_bytes(*bytes)),
        }
    }
}
