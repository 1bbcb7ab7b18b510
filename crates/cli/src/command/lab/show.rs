//! `cenote lab show`: summaries of results, in the terminal.

use std::io::IsTerminal;
use std::path::PathBuf;

use cenote_lab::analysis::report::{self, Study, Style};
use cenote_lab::result::ResultFolder;
use clap::Args;

use super::failed;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print_bytes, print_json};

/// `cenote lab show`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote lab show pools-20261122T101500Z")]
pub struct Show {
    /// Folders of results
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
}

/// Line width if the terminal's width is unknown.
const WIDTH: usize = 120;

/// Colour only on a terminal, lines as wide as it is.
pub fn style() -> Style {
    let width = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| size.ws_col.into());
    let width = if width == 0 { WIDTH } else { width };
    Style { colour: std::io::stdout().is_terminal(), width }
}

/// A result's summary, as text.
pub fn essentials(study: &Study<'_>) -> String {
    report::text(&study.document(report::essentials), style())
}

impl Show {
    /// Runs the command.
    pub fn run(self, session: &Session) -> Result<Outcome, CliError> {
        for path in &self.results {
            let folder = ResultFolder::open(path).map_err(failed)?;
            if session.json() {
                print_json(&folder.summary().map_err(failed)?)?;
            } else {
                print_bytes(essentials(&Study::read(&folder).map_err(failed)?))?;
            }
        }
        Ok(Outcome::Done)
    }
}
