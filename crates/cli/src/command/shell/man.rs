//! `cenote man`: a man page for each command, made from the same descriptions as `--help`.
//!
//! Packages call it when they are built, so that pages and program never disagree.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use crate::outcome::{CliError, Outcome};

/// `cenote man`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    cenote man ~/.local/share/man/man1\n  \
    man cenote-zpool-create")]
pub struct Man {
    /// Directory for the pages, created if missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

impl Man {
    /// Runs the command. `all`: every command with its options.
    pub fn run(self, all: Command) -> Result<Outcome, CliError> {
        write(all, &self.dir).map_err(CliError::io(self.dir.display().to_string()))?;
        Ok(Outcome::Done)
    }
}

fn write(all: Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut all = all.disable_help_subcommand(true);
    all.build();
    let name = all.get_name().to_owned();
    write_page(all, &name, &name, dir)
}

/// The page of a command and those of its subcommands. `name`: its words, joined by dashes. `typed`: the same
/// words, joined by spaces; a verb may have a dash of its own.
fn write_page(command: Command, name: &str, typed: &str, dir: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let (name, typed) = (format!("{name}-{}", verb.get_name()), format!("{typed} {}", verb.get_name()));
        write_page(verb.clone(), &name, &typed, dir)?;
    }
    // Clap names a deferred command after the program and its own last word only.
    let command = command.display_name(name).bin_name(typed);
    let page = clap_mangen::Man::new(command).source(concat!("Cenote ", env!("CARGO_PKG_VERSION")));
    page.generate_to(dir).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_command_has_a_page_under_its_full_name() {
        let folder = tempfile::tempdir().unwrap();
        write(Cli::command(), folder.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page("cenote.1").contains("cenote\\-zpool(1)"));
        assert!(page("cenote-zpool-create.1").contains("\\fBcenote zpool create\\fR"));
        assert!(page("cenote-zfs-create.1").contains("\\fBcenote zfs create\\fR"));
        assert!(page("cenote-zfs-load-key.1").contains("\\fBcenote zfs load\\-key\\fR"));
        assert!(!folder.path().join("cenote-complete.1").exists(), "a hidden command has a page");
    }
}
