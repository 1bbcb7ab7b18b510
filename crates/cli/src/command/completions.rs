//! `cenote completions`: what a shell needs to complete commands and options.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::outcome::{CliError, Outcome};
use crate::session::print;

/// `cenote completions`
#[derive(Debug, Args)]
#[command(
    after_help = "Example: cenote completions bash > ~/.local/share/bash-completion/completions/cenote"
)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

impl Completions {
    /// Runs the command.
    pub fn run(self) -> Result<Outcome, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "cenote", &mut script);
        print(script)?;
        Ok(Outcome::Done)
    }
}
