//! Runs the program, and creates folders of disks for it.

use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A command that runs longer than this is considered hung; none comes near it.
const HANGS_AFTER: Duration = Duration::from_secs(120);

pub const FAILED: i32 = 1;
pub const MISUSED: i32 = 2;
pub const DAMAGED: i32 = 3;

/// The result of a command.
pub struct Ran {
    command: String,
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `cenote` with these words and checks the rules for every bad input: no panic, no hang.
pub fn cenote(words: &[&str]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cenote"))
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let command = format!("cenote {}", words.join(" "));
    let stdout = collect(child.stdout.take().unwrap());
    let stderr = collect(child.stderr.take().unwrap());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > HANGS_AFTER {
            child.kill().unwrap();
            panic!("{command}: hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    assert!(!stderr.contains("panicked at"), "{command}: {stderr}");
    let status = status.code().unwrap_or_else(|| panic!("{command}: ended by a signal: {stderr}"));
    assert!((0..=3).contains(&status), "{command}: exit status {status}: {stderr}");
    Ran { command, status, stdout, stderr }
}

fn collect(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Ran {
    /// It must end with this status, and its message must contain all of these words.
    #[track_caller]
    pub fn fails(&self, status: i32, words: &[&str]) {
        let Ran { command, stderr, .. } = self;
        assert_eq!(self.status, status, "{command}: {stderr}");
        for word in words {
            assert!(stderr.contains(word), "{command}: nothing of '{word}' in: {stderr}");
        }
    }

    /// It must succeed; returns its output with sorted lines (a scan is unordered).
    #[track_caller]
    pub fn succeeds(&self) -> Vec<&str> {
        assert_eq!(self.status, 0, "{}: {}", self.command, self.stderr);
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Every file of a pool, with the hash of its content.
pub fn scan(disks: &Path, pool: &str) -> Ran {
    let columns = "dataset,path,type,mode,size,sha256";
    cenote(&["scan", "-r", "-d", text(disks), "--format", "tsv", "--columns", columns, pool])
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A folder with links to these images, under these names.
pub fn folder_of<'a>(images: impl IntoIterator<Item = (&'a str, PathBuf)>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, image) in images {
        assert!(image.exists(), "{}", image.display());
        symlink(image, folder.path().join(name)).unwrap();
    }
    folder
}
