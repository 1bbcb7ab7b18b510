//! `cenote`: the one program. Parses the command line, runs one command, turns its outcome into an exit status.
//!
//! Everything of substance is in the crates below; here are options, wording and layout.

mod args;
mod command;
mod outcome;
mod render;
mod session;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, Deferred};
use outcome::{CliError, Outcome};
use session::Session;

/// Blocks come and go by the megabyte. The system's allocator gives such memory back each time, so that every page of every
/// block is zeroed by the kernel first: with it, sequential reading takes three times the CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // clap prints help and usage errors itself and exits with 0 and 2.
    let argv: Vec<_> = std::env::args_os().collect();
    let command = args::as_noted(&argv);
    let cli = Cli::parse_from(args::words(argv));
    let session = match Session::new(cli.common, command) {
        Ok(session) => session,
        Err(error) => return report(&error),
    };
    let runtime = session.runtime().clone();
    match runtime.block_on(run(cli.command, &session)) {
        Ok(outcome) => outcome.into(),
        Err(error) => report(&error),
    }
}

async fn run(command: Command, session: &Session) -> Result<Outcome, CliError> {
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
        Command::Volume(Deferred(volume)) => volume.run(session).await,
        Command::Scan(Deferred(scan)) => scan.run(session).await,
        Command::Verify(Deferred(verify)) => verify.run(session).await,
        Command::Rescue(Deferred(rescue)) => rescue.run(session).await,
        Command::Lab(Deferred(lab)) => lab.run(session).await,
        Command::Dump(Deferred(dump)) => dump.run(session).await,
        Command::Demo(Deferred(demo)) => demo.run(session).await,
        Command::Completions(Deferred(completions)) => completions.run(),
    }
}

fn report(error: &CliError) -> ExitCode {
    if error.is_broken_pipe() {
        // Whoever read the output (head, less) has seen enough.
        return ExitCode::SUCCESS;
    }
    eprintln!("cenote: {error}");
    error.outcome().into()
}
