//! `cenote`: the program. Parses the command line, runs one command, and maps its outcome to an exit status.
//!
//! The engine is in the crates below; this crate has options, wording and layout.

mod allocator;
mod args;
mod command;
mod console;
mod daemon;
mod limits;
mod message;
mod outcome;
mod session;
mod streams;

use std::io::{self, Write};
use std::process::ExitCode;

use args::{Cli, Command, Deferred, run_typed};
use cenote_serve::sandbox;
use clap::CommandFactory;
use outcome::{CliError, Outcome, Say};
use session::Session;

fn main() -> ExitCode {
    allocator::give_back_soon();
    limits::raise_open_files();
    if let Err(error) = streams::take_own() {
        // No other channel is left for the error.
        writeln!(io::stderr(), "cenote: the standard streams can't be used: {error}").ok();
        return Outcome::Failed.into();
    }
    let argv: Vec<_> = std::env::args_os().collect();
    let command = args::as_noted(&argv);
    let asks_for_json = args::asks_for_json(&argv);
    let mut cli = match Cli::read(argv) {
        Ok(cli) => cli,
        Err(help) if asks_for_json && help.use_stderr() => {
            message::use_json();
            return report(&CliError::Usage(help.to_string().trim().into()));
        }
        Err(help) => return show(&help),
    };
    if cli.as_tool {
        streams::streams().use_no_name();
    }
    if cli.common.json {
        message::use_json();
    }
    if let Command::Serve(Deferred(serve)) = &mut cli.command {
        let read = serve.read_config(&mut cli.common);
        let moves_addresses = serve.ha.is_some();
        let dropped = sandbox::drop_capabilities(moves_addresses).map_err(CliError::io("capabilities"));
        if let Err(error) = read.and(dropped) {
            return report(&error);
        }
    }
    if let Command::Guard(Deferred(guard)) = &cli.command {
        return guard.run().map_or_else(|error| report(&error), Outcome::into);
    }
    let daemon = match daemon::link(&cli) {
        Ok(daemon) => daemon,
        Err(error) => return report(&error),
    };
    if daemon.is_none() {
        allocator::for_long();
    }
    let as_tool = cli.as_tool;
    let session = match Session::new(cli.common, command, daemon) {
        Ok(session) => session,
        Err(error) => return report(&error),
    };
    let runtime = session.runtime().clone();
    match runtime.block_on(run(cli.command, &session)) {
        // OpenZFS's tools succeed if a scrub ends, whatever it has found.
        Ok(Outcome::Damaged) if as_tool => Outcome::Done.into(),
        Ok(outcome) => session.status(outcome).into(),
        Err(error) => report(&session.of_older_state(error)),
    }
}

async fn run(command: Command, session: &Session) -> Result<Outcome, CliError> {
    limits::survive_file_size().map_err(CliError::io("signals"))?;
    run_typed! {
        Command, command, session;
        Zpool Zfs Ls Stat Cat Cp Mkdir Rm Find Du Mount Serve Volume Scan Verify Rebalance Rescue Stream
        Replicate Lab Trace Arcstat Ha Inject Top Kstat Tunable Features Dump Demo;
        Command::Guard(Deferred(guard)) => guard.run(),
        Command::Completions(Deferred(completions)) => completions.run(Cli::command()),
        Command::Man(Deferred(man)) => man.run(Cli::command()),
        Command::Complete(Deferred(complete)) => complete.run(Cli::command(), session).await,
    }
}

/// Shows help or a usage error; clap has the text ready.
fn show(help: &clap::Error) -> ExitCode {
    let shown = help.print().and_then(|()| io::stdout().flush());
    match shown.map_err(CliError::io("standard output")) {
        // The exit status must show a usage error even if the message can't be read.
        _ if help.use_stderr() => Outcome::Misused.into(),
        Ok(()) => Outcome::Done.into(),
        Err(error) => report(&error),
    }
}

fn report(error: &CliError) -> ExitCode {
    if error.is_broken_pipe() {
        // The reader of our output (head, less) has seen enough.
        return ExitCode::SUCCESS;
    }
    error.say().into()
}
