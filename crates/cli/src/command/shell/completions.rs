//! `cenote completions`: shell code that completes commands, options, and names of pools, datasets and
//! properties.
//!
//! For bash, zsh and fish this is a function that calls `cenote complete`, which knows the command line and
//! reads the disks. For other shells it is a static description of commands and options.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::outcome::{CliError, Outcome};
use crate::session::print_bytes;

/// `cenote completions`
#[derive(Debug, Args)]
#[command(after_help = "In bash, zsh and fish, completions include names of pools, datasets, snapshots and \
    properties, also for links to cenote named zpool and zfs.\n\n\
    Example: cenote completions bash > ~/.local/share/bash-completion/completions/cenote")]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

impl Completions {
    /// Runs the command. `all`: every command with its options.
    pub fn run(self, mut all: Command) -> Result<Outcome, CliError> {
        let script: Vec<u8> = match self.shell {
            Shell::Bash => include_str!("completions/cenote.bash").into(),
            Shell::Zsh => include_str!("completions/cenote.zsh").into(),
            Shell::Fish => include_str!("completions/cenote.fish").into(),
            shell => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut all, "cenote", &mut script);
                script
            }
        };
        print_bytes(script)?;
        Ok(Outcome::Done)
    }
}
