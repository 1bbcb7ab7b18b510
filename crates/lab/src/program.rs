//! Running another program to its end: fd, bonnie++, `cenote scan`.
//!
//! The program and all that it starts are one process group: when the work is to stop, the group is killed, and nothing of it stays behind.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::control::Control;
use crate::measurement::CpuTime;
use crate::measurement::tally::nanoseconds;
use crate::{LabError, Result};

/// How often it is looked whether the program has ended, at least: what programs take is told to the millisecond.
const LONGEST_WAIT: Duration = Duration::from_micros(500);
/// What is kept of what it says on its standard error: the end.
const SAID_BYTES: usize = 2000;

/// What came of a program.
#[derive(Debug, Clone)]
pub struct Ran {
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// What it used of the processors, with the programs that it ran.
    pub cpu: CpuTime,
    /// It did not end well: how, and what it said.
    pub failure: Option<String>,
}

impl Ran {
    /// Itself, if it ended well.
    ///
    /// # Errors
    /// It did not.
    pub fn well(self, program: &str) -> Result<Ran> {
        match self.failure {
            Some(what) => Err(LabError::Program { program: program.into(), what }),
            None => Ok(self),
        }
    }
}

/// Where the program of one of these names is, first name first; None if it is not installed.
pub fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect();
    let installed = |name: &&str| folders.iter().map(|dir| dir.join(name)).find(|program| program.is_file());
    names.iter().find_map(installed)
}

/// What the program answers to `--version`: its first line; empty if it says nothing.
pub fn version(program: &Path) -> String {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// The command as it is typed in a shell.
pub fn shown(command: &Command) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%@".contains(c);
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy();
        match !word.is_empty() && word.chars().all(plain) {
            true => word.into_owned(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// Runs the program with its output going to the file `output`, until it ends.
///
/// # Errors
/// It can't be started, or the work was stopped.
pub fn run(command: &mut Command, output: &Path, control: &Control) -> Result<Ran> {
    let program = command.get_program().to_string_lossy().into_owned();
    let file = File::create(output).map_err(LabError::io(output.display().to_string()))?;
    let cpu = CpuTime::of_children();
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(LabError::io(format!("{program} can't be run")))?;
    let said = child.stderr.take().map(|mut pipe| thread::spawn(move || last_words(&mut pipe)));
    let status = wait(&mut child, control).map_err(LabError::io(program.clone()))?;
    let elapsed_ns = nanoseconds(Instant::now(), began);
    let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
    let status = status.ok_or(LabError::Interrupted)?;
    let failure = (!status.success()).then(|| format!("{status}: {}", said.trim()));
    Ok(Ran { elapsed_ns, cpu: CpuTime::of_children().since(cpu), failure })
}

/// Waits for the end; None if the work was stopped, and the program with it.
fn wait(child: &mut Child, control: &Control) -> std::io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_micros(100);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if control.stopped() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended just now: then there is nothing to kill.
                let _ = kill_process_group(group, Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_WAIT);
    }
}

/// Reads to the end, and gives the last part of it.
fn last_words(pipe: &mut impl Read) -> String {
    let mut kept = Vec::new();
    let mut part = [0; 4096];
    while let Ok(bytes @ 1..) = pipe.read(&mut part) {
        kept.extend_from_slice(&part[..bytes]);
        kept.drain(..kept.len().saturating_sub(SAID_BYTES));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;

    #[test]
    fn output_goes_to_the_file_and_failure_says_what_the_program_said() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out");
        let control = Control::default();
        run(Command::new("sh").args(["-c", "echo hello"]), &output, &control).unwrap();
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "hello\n");
        let script = "echo no such disk >&2; exit 3";
        let failed = run(Command::new("sh").args(["-c", script]), &output, &control).unwrap();
        let failed = failed.well("sh").unwrap_err().to_string();
        assert!(failed.contains("no such disk") && failed.contains('3'), "{failed}");
    }

    #[test]
    fn a_stopped_program_is_killed_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out");
        let control = Control::default();
        thread::scope(|scope| {
            let script = "sleep 600 & echo $!; wait";
            let running = scope.spawn(|| run(Command::new("sh").args(["-c", script]), &output, &control));
            while std::fs::read_to_string(&output).unwrap_or_default().is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            control.stop();
            assert!(matches!(running.join().unwrap(), Err(LabError::Interrupted)));
        });
        let sleeper = std::fs::read_to_string(&output).unwrap();
        let status = format!("/proc/{}/stat", sleeper.trim());
        // Killed: gone, or not yet fetched by whoever inherits it.
        let gone = || std::fs::read_to_string(&status).map_or(true, |stat| stat.contains(") Z"));
        while !gone() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
