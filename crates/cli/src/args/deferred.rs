//! Builds a command's options only if that command was typed.
//!
//! Clap's derived code describes all commands at once, most of the run time of a short one; wrapped in this
//! type, a command is described, with the common options, when clap reaches it.

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use super::common::with_common;

/// Options or commands that are described on demand.
#[derive(Debug)]
pub struct Deferred<T>(pub T);

/// Keeps the one-line summary and the examples from the parent's list, not those of the deferred description.
fn described(command: Command, describe: fn(Command) -> Command) -> Command {
    let (about, after) = (command.get_about().cloned(), command.get_after_help().cloned());
    let mut command = describe(command).about(about.unwrap_or_default());
    if let Some(after) = after {
        command = command.after_help(after);
    }
    with_common(command)
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(Deferred)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| described(command, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Subcommand> Subcommand for Deferred<T> {
    fn augment_subcommands(command: Command) -> Command {
        command.defer(|command| described(command, T::augment_subcommands))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}

/// Runs the command that was typed, one of those named or of the match arms after them.
macro_rules! run_typed {
    ($commands:ident, $typed:expr, $session:ident; $($verb:ident)*; $($other:tt)*) => {
        match $typed {
            $($commands::$verb($crate::args::Deferred(verb)) => verb.run($session).await,)*
            $($other)*
        }
    };
}
pub(crate) use run_typed;
