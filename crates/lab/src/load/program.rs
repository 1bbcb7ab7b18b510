//! Runs other programs to completion: fd, bonnie++, `cenote scan`.
//!
//! A program and its children form one process group. If the work is stopped, the whole group is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::load::control::Control;
use crate::load::measurement::CpuTime;
use crate::load::measurement::tally::nanoseconds;
use crate::{LabError, Result};

/// Longest polling interval for the end of a program: times are reported to the millisecond.
const LONGEST_WAIT: Duration = Duration::from_micros(500);
/// Kept bytes of the end of its standard error.
const SAID_BYTES: usize = 2000;

/// Result of a program.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Duration in nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time, children included.
    pub cpu: CpuTime,
    /// Set if it failed: exit status and standard error.
    pub failure: Option<String>,
}

impl Ran {
    /// Itself, if it succeeded.
    ///
    /// # Errors
    /// The program failed.
    pub fn well(self, program: &str) -> Result<Ran> {
        match self.failure {
            Some(what) => Err(LabError::Program { program: program.into(), what }),
            None => Ok(self),
        }
    }
}

/// Finds a program by any of these names, in order; None if not installed. Links to this program, which also
/// answers to other names (`zpool`), do not count.
pub fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect();
    find_in(&folders, names)
}

fn find_in(folders: &[PathBuf], names: &[&str]) -> Option<PathBuf> {
    let installed = |name: &&str| {
        let mut programs = folders.iter().map(|dir| dir.join(name));
        programs.find(|program| program.is_file() && !is_cenote(program))
    };
    names.iter().find_map(installed)
}

/// Whether a program is Cenote under another name: this executable, or a link to one named so.
fn is_cenote(program: &Path) -> bool {
    let Ok(real) = program.canonicalize() else { return false };
    let file = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    let ours = std::env::current_exe().ok();
    real.file_name().is_some_and(|name| name == "cenote")
        || ours.is_some_and(|ours| file(&ours) == file(&real))
}

/// First line of the program's `--version` output, or empty.
pub fn version(program: &Path) -> String {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Command as typed in a shell.
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

/// Runs the program to completion with its output going to the file `output`.
///
/// # Errors
/// It cannot be started, or the work was stopped.
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
        .map_err(LabError::io(format!("cannot run {program}")))?;
    let said = child.stderr.take().map(|mut pipe| thread::spawn(move || last_words(&mut pipe)));
    let status = wait(&mut child, control).map_err(LabError::io(program.clone()))?;
    let elapsed_ns = nanoseconds(Instant::now(), began);
    let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
    let status = status.ok_or(LabError::Interrupted)?;
    let failure = (!status.success()).then(|| format!("{status}: {}", said.trim()));
    Ok(Ran { elapsed_ns, cpu: CpuTime::of_children().since(cpu), failure })
}

/// Waits for the end; None if the work, and the program with it, was stopped.
fn wait(child: &mut Child, control: &Control) -> std::io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_micros(100);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if control.stopped() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have just ended: then there is nothing to kill.
                let _ = kill_process_group(group, Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_WAIT);
    }
}

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
    fn a_link_to_cenote_is_not_the_program_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        std::fs::create_dir(&first).unwrap();
        std::fs::create_dir(&second).unwrap();
        std::fs::write(first.join("cenote"), "").unwrap();
        std::os::unix::fs::symlink("cenote", first.join("zpool")).unwrap();
        std::fs::hard_link(std::env::current_exe().unwrap(), first.join("zfs")).unwrap_or_else(|_| {
            std::os::unix::fs::symlink(std::env::current_exe().unwrap(), first.join("zfs")).unwrap();
        });
        let folders = [first, second.clone()];
        assert_eq!(find_in(&folders, &["zpool"]), None);
        for name in ["zpool", "zfs"] {
            std::fs::write(second.join(name), "").unwrap();
            assert_eq!(find_in(&folders, &[name]), Some(second.join(name)));
        }
    }

    #[test]
    fn output_goes_to_the_file_and_a_failure_quotes_the_program() {
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
    fn a_stopped_program_is_killed_with_its_children() {
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
        // Killed: gone, or a zombie that its new parent has not reaped.
        let gone = || std::fs::read_to_string(&status).map_or(true, |stat| stat.contains(") Z"));
        while !gone() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
