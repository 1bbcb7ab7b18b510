//! Scans by other programs, and parsing of their lists.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

use super::{Attempt, PoolScan, Scanned};
use crate::load::control::Control;
use crate::load::measurement::Tool;
use crate::load::program::{self, Ran};
use crate::{LabError, Result};

/// `fd` with a `stat` of every entry, as run in report 000. A folder that it could not enter is recorded, as
/// for the lab's own walk.
pub fn fd(root: &Path, list: &Path, control: &Control) -> Result<Attempt> {
    let Some(program) = program::find(&["fd", "fdfind"]) else {
        return Ok(Attempt::NotHere("fd is not installed (package fd-find)".into()));
    };
    let mut command = Command::new(&program);
    command.args(["--type", "f", "--no-ignore", "--hidden", "--one-file-system", "."]).arg(root).args([
        "--exec-batch",
        "stat",
        "--printf",
        r"%s %n\0",
    ]);
    let ran = program::run(&mut command, list, control)?;
    let listed = Listed::read(list, "fd", |line| number(line, b' ').map(Some))?;
    Ok(Attempt::Scanned(scanned("fd", program::version(&program), &command, ran, listed)))
}

/// `cenote scan` of a dataset.
pub fn pool(pool: &PoolScan, list: &Path, control: &Control) -> Result<Scanned> {
    let mut command = Command::new(&pool.program);
    command.args(&pool.arguments);
    let ran = program::run(&mut command, list, control)?.well("cenote scan")?;
    let listed = Listed::read(list, "cenote scan", |line| match line.strip_prefix(b"f\t") {
        Some(rest) => number(rest, b'\t').map(Some),
        None => Some(None),
    })?;
    Ok(scanned("cenote scan", env!("CARGO_PKG_VERSION").into(), &command, ran, listed))
}

impl PoolScan {
    /// Arguments of `cenote` to scan that dataset.
    pub fn arguments(data_set: &str) -> Vec<String> {
        let how =
            ["scan", "--format", "tsv", "--columns", "type,size,path", "--no-header", "--separator", "nul"];
        how.into_iter().chain([data_set]).map(str::to_owned).collect()
    }
}

fn scanned(name: &str, version: String, command: &Command, ran: Ran, listed: Listed) -> Scanned {
    Scanned {
        tool: Tool { name: name.into(), version, command: Some(program::shown(command)) },
        files: listed.files,
        bytes: listed.bytes,
        folders: None,
        elapsed_ns: ran.elapsed_ns,
        cpu: ran.cpu,
        streams: Vec::new(),
        notes: ran.failure.into_iter().collect(),
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Listed {
    files: u64,
    bytes: u64,
}

impl Listed {
    /// Reads a list of entries, each terminated by NUL. `size` parses an entry: a file's size, Some(None) if
    /// not a file, None if it cannot be parsed.
    fn read(list: &Path, program: &str, size: impl Fn(&[u8]) -> Option<Option<u64>>) -> Result<Listed> {
        let failed = || LabError::io(list.display().to_string());
        let mut reader = BufReader::with_capacity(1 << 20, File::open(list).map_err(failed())?);
        let (mut listed, mut line) = (Listed::default(), Vec::new());
        while reader.read_until(0, &mut line).map_err(failed())? > 0 {
            let Some(size) = size(&line) else {
                let what = format!("not a list entry: {:?}", String::from_utf8_lossy(&line));
                return Err(LabError::Program { program: program.into(), what });
            };
            listed.files += u64::from(size.is_some());
            listed.bytes = listed.bytes.saturating_add(size.unwrap_or(0));
            line.clear();
        }
        Ok(listed)
    }
}

/// Number before the first `end`.
fn number(line: &[u8], end: u8) -> Option<u64> {
    let digits = line.split(|&byte| byte == end).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
