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

use args::{Cli, Command, Deferred};
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
        let dropped = sandbox::drop_capabilities().map_err(CliError::io("capabilities"));
        if let Err(error) = dropped.and_then(|()| serve.read_config(&mut cli.common)) {
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
    let session = match Session::new(cli.common, command, daemon) {
        Ok(session) => session,
        Err(error) => return report(&error),
    };
    let runtime = session.runtime().clone();
    match runtime.block_on(run(cli.command, &session)) {
        Ok(outcome) => session.status(outcome).into(),
        Err(error) => report(&session.of_older_state(error)),
    }
}

async fn run(command: Command, session: &Session) -> Result<Outcome, CliError> {
    limits::survive_file_size().map_err(CliError::io("signals"))?;
    match command {
        Command::Zpool(Deferred(zpool)) => zpool.run(session).await,
        Command::Zfs(Deferred(zfs)) => zfs.run(session).await,
        Command::Ls(Deferred(ls)) => ls.run(session).await,
        Command::Stat(Deferred(stat)) => stat.run(session).await,
        Command::Cat(Deferred(cat)) => cat.run(session).await,
        Command::Cp(Deferred(cp)) => cp.run(session).await,
        Command::Mkdir(Deferred(mkdir)) => mkdir.run(session).await,
        Command::Rm(Deferred(rm)) => rm.run(session).await,
        Command::Find(Deferred(find)) => find.run(session).await,
        Command::Du(Deferred(du)) => du.run(session).await,
        Command::Mount(Deferred(mount)) => mount.run(session).await,
        Command::Serve(Deferred(serve)) => serve.run(session).await,
        Command::Volume(Deferred(volume)) => volume.run(session).await,
        Command::Scan(Deferred(scan)) => scan.run(session).await,
        Command::Verify(Deferred(verify)) => verify.run(session).await,
        Command::Rebalance(Deferred(rebalance)) => rebalance.run(session).await,
        Command::Rescue(Deferred(rescue)) => rescue.run(session).await,
        Command::Stream(Deferred(stream)) => stream.run(session).await,
        Command::Replicate(Deferred(replicate)) => replicate.run(session).await,
        Command::Lab(Deferred(lab)) => lab.run(session).await,
        Command::Trace(Deferred(trace)) => trace.run(session).await,
        Command::Arcstat(Deferred(arcstat)) => arcstat.run(session).await,
        Command::Inject(Deferred(inject)) => inject.run(session).await,
        Command::Top(Deferred(top)) => top.run(session).await,
        Command::Kstat(Deferred(kstat)) => kstat.run(session).await,
        Command::Tunable(Deferred(tunable)) => tunable.run(session).await,
        Command::Dump(Deferred(dump)) => dump.run(session).await,
        Command::Demo(Deferred(demo)) => demo.run(session).await,
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
