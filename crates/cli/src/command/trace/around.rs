//! `cenote trace record POOL FILE -- COMMAND...`: the command runs where it was typed, while the daemon
//! records.
//!
//! The daemon writes the file's head when it records, so a file that is not empty says that the command may
//! begin; when the command has ended, the recording is cancelled, as by Ctrl-C.

use std::ffi::OsString;
use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use crate::message::say;

const TICK: Duration = Duration::from_millis(10);
/// As shells answer for a command that can't be run.
const NOT_RUN: u8 = 127;
/// What shells add to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;

/// A command that runs once its recording has begun.
pub struct Around {
    is_over: Arc<AtomicBool>,
    /// Answers its exit status; `None`: it never began.
    thread: JoinHandle<Option<u8>>,
}

impl Around {
    /// Waits for the recording to `file`, runs the command, and ends the recording. `None`: there is none.
    pub fn start(words: &[OsString], file: File, end: impl Fn() + Send + 'static) -> Option<Around> {
        let (program, arguments) = words.split_first()?;
        let mut command = Command::new(program);
        command.args(arguments);
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = {
            let is_over = is_over.clone();
            spawn(move || {
                wait_for(&file, &is_over).then(|| {
                    let status = run(&mut command);
                    end();
                    status
                })
            })
        };
        Some(Around { is_over, thread })
    }

    /// The recording has ended. Answers the command's exit status.
    pub fn status(self) -> Option<u8> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().ok().flatten()
    }
}

/// Whether the recording has begun; not, if it ended before.
fn wait_for(file: &File, is_over: &AtomicBool) -> bool {
    while !is_over.load(Ordering::Relaxed) {
        if file.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            return true;
        }
        sleep(TICK);
    }
    false
}

fn run(command: &mut Command) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match command.status() {
        Ok(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
            code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
        }
        Err(error) => {
            say!("cannot run '{}': {error}", command.get_program().display());
            NOT_RUN
        }
    }
}
