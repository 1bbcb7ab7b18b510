//! `cenote trace record POOL FILE -- COMMAND...`: runs the command in the client's process while the daemon
//! records.
//!
//! The daemon writes the file's head once it records, so a non-empty file means that the command may begin.
//! When the command has ended, the recording is cancelled as by Ctrl-C.

use std::ffi::OsString;
use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use crate::message::say;

const TICK: Duration = Duration::from_millis(10);
/// The exit status of shells for a command that can't be run.
const NOT_RUN: u8 = 127;
/// Shells add this to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;

/// A command that runs once its recording has begun.
pub struct Around {
    is_over: Arc<AtomicBool>,
    /// Returns the command's exit status; `None`: it never began.
    thread: JoinHandle<Option<u8>>,
}

impl Around {
    /// Waits for the recording to `file`, runs the command, and ends the recording. `None`: no command.
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

    /// Returns the command's exit status, after the recording has ended.
    pub fn status(self) -> Option<u8> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().ok().flatten()
    }
}

/// Waits until the recording has begun; false if it ended before.
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
