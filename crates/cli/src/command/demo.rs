//! `cenote demo`: one command that shows the program at work, on a small pool built into it.
//!
//! The pool is four images of 64 MiB, created by the OpenZFS module (golden pool `demo`) and compressed into
//! the program. The demo unpacks them into a folder and runs this program on them as a user would; then it
//! takes one disk away and runs the program again. All output shown is printed by those commands.
//!
//! The folder is removed when the demo ends for any reason, unless `--keep` names one.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cenote_control::text::duration;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::{self, Session};

/// The disks, compressed.
const DISKS: [&[u8]; 4] = [
    include_bytes!("../../demo/disk0.img.zst"),
    include_bytes!("../../demo/disk1.img.zst"),
    include_bytes!("../../demo/disk2.img.zst"),
    include_bytes!("../../demo/disk3.img.zst"),
];
/// Unpacked size of each.
const DISK_BYTES: usize = 64 << 20;
/// The disk that is taken away.
const LOST: &str = "disk2.img";
/// The folder it is moved to: searches do not descend into nested folders.
const AWAY: &str = "taken-away";
/// How many lines of a summary are shown.
const SUMMARY_LINES: usize = 10;

/// `cenote demo`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote demo --keep ./demo-pool")]
pub struct Demo {
    /// Unpack the pool's images into this folder and keep them
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
}

/// A command's output and exit status.
struct Ran {
    output: Vec<u8>,
    status: i32,
}

impl Demo {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        // Dropping a temporary folder removes it.
        let (folder, _temporary) = match self.keep.clone() {
            Some(folder) => (folder, None),
            None => {
                let temporary = tempfile::Builder::new().prefix("cenote-demo-").tempdir();
                let temporary = temporary.map_err(CliError::io("a folder for temporary files"))?;
                (temporary.path().into(), Some(temporary))
            }
        };
        tokio::select! {
            biased; // handle interrupts before the first disk is unpacked
            () = session::interrupted() => return Ok(Outcome::Failed),
            told = tell(session, folder) => told?,
        }
        if let Some(folder) = &self.keep {
            session::print(format!(
                "\nThe disks are in {}. Continue with: cenote -d {0} ls tank/home/ada:/\n",
                folder.display()
            ))?;
        }
        Ok(Outcome::Done)
    }
}

async fn tell(session: &Session, folder: PathBuf) -> Result<(), CliError> {
    let started = session.runtime().now();
    let place = folder.clone();
    session.runtime().blocking(move || unpack(&place)).await?;
    let story = Story { session, folder };
    story.say(
        "A pool of four disks in RAID-Z1, written by the OpenZFS module on another machine.\n\
         These are its disk images. No kernel module, no root; nothing is mounted or written.",
    )?;
    story.show(&["zpool", "status", "tank"], usize::MAX).await?;
    story.show(&["zfs", "list", "-r", "tank"], usize::MAX).await?;
    story.say("List every file of every dataset, straight from the disks:")?;
    story.show(&["scan", "-r", "tank"], SUMMARY_LINES).await?;
    let before = story.hashes().await?;
    story.say("Check every copy and every parity column of every block:")?;
    story.show(&["verify", "tank"], usize::MAX).await?;

    story.say(&format!("Now {LOST} is taken away."))?;
    story.take_away()?;
    story.show(&["zpool", "status", "tank"], usize::MAX).await?;
    let after = story.hashes().await?;
    story.compare(&before, &after)?;
    story.show(&["verify", "tank"], 1).await?;
    story.put_back()?;
    let took = session.runtime().now().since(started);
    story.say(&format!("All of this took {}.", duration(took)))
}

/// A running demo.
struct Story<'a> {
    session: &'a Session,
    folder: PathBuf,
}

impl Story<'_> {
    fn say(&self, text: &str) -> Result<(), CliError> {
        session::print(format!("\n{text}\n"))
    }

    /// Runs this program on the disks and shows the first lines of its output.
    async fn show(&self, words: &[&str], lines: usize) -> Result<(), CliError> {
        let started = self.session.runtime().now();
        let ran = self.run(words).await?;
        let took = self.session.runtime().now().since(started);
        let text = String::from_utf8_lossy(&ran.output);
        let mut out = format!("\n$ cenote -d . {}\n", words.join(" "));
        for line in text.lines().take(lines) {
            out.push_str(&format!("{line}\n"));
        }
        match text.lines().count().saturating_sub(lines) {
            0 => out.push_str(&format!("({})\n", duration(took))),
            more => out.push_str(&format!("({more} more lines; {})\n", duration(took))),
        }
        session::print(out)
    }

    async fn run(&self, words: &[&str]) -> Result<Ran, CliError> {
        let program = std::env::current_exe().map_err(CliError::io("this program's own path"))?;
        let mut command = Command::new(program);
        command.current_dir(&self.folder).args(["-d", "."]).args(words).stdin(Stdio::null());
        let ran = self.session.runtime().blocking(move || command.output()).await;
        let ran = ran.map_err(CliError::io("running this program"))?;
        let output = [ran.stdout, ran.stderr].concat();
        Ok(Ran { output, status: ran.status.code().unwrap_or(-1) })
    }

    /// The path and SHA-256 of every file, as printed by `scan`.
    async fn hashes(&self) -> Result<Vec<u8>, CliError> {
        let columns = ["--columns", "dataset,path,type", "--hash", "--format", "tsv", "--no-header"];
        let ran = self.run(&[&["scan", "-r", "tank"], &columns[..]].concat()).await?;
        match ran.status {
            0 => Ok(ran.output),
            _ => Err(CliError::NotFound(String::from_utf8_lossy(&ran.output).into_owned())),
        }
    }

    fn compare(&self, before: &[u8], after: &[u8]) -> Result<(), CliError> {
        let sorted = |rows: &[u8]| -> Vec<Vec<u8>> {
            let mut rows: Vec<_> = rows.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
            rows.retain(|row| row.split(|&b| b == b'\t').nth(2) == Some(b"f"));
            rows.sort();
            rows
        };
        let (before, after) = (sorted(before), sorted(after));
        let same = before.iter().filter(|row| after.binary_search(row).is_ok()).count();
        self.say(&format!(
            "{same} of {} files have the same SHA-256 as before, rebuilt from parity as they are read.",
            before.len()
        ))
    }

    fn take_away(&self) -> Result<(), CliError> {
        let away = self.folder.join(AWAY);
        let moved =
            fs::create_dir_all(&away).and_then(|()| fs::rename(self.folder.join(LOST), away.join(LOST)));
        moved.map_err(CliError::io(LOST))
    }

    fn put_back(&self) -> Result<(), CliError> {
        let away = self.folder.join(AWAY);
        let moved = fs::rename(away.join(LOST), self.folder.join(LOST)).and_then(|()| fs::remove_dir(&away));
        moved.map_err(CliError::io(LOST))
    }
}

/// Unpacks the disks into a folder, creating it if needed. Takes the memory of one disk.
fn unpack(folder: &Path) -> Result<(), CliError> {
    fs::create_dir_all(folder).map_err(CliError::io(folder.display().to_string()))?;
    for (index, packed) in DISKS.iter().enumerate() {
        let path = folder.join(format!("disk{index}.img"));
        let mut image = Vec::with_capacity(DISK_BYTES);
        let unpacked = zstd_safe::decompress(&mut image, packed);
        let good = unpacked.is_ok_and(|len| len == DISK_BYTES);
        let written = match good {
            true => write_sparse(&path, &image),
            false => Err(io::Error::other("the copy inside the program is damaged; reinstall cenote")),
        };
        written.map_err(CliError::io(path.display().to_string()))?;
    }
    Ok(())
}

fn write_sparse(path: &Path, image: &[u8]) -> io::Result<()> {
    const PAGE_BYTES: usize = 4096;
    let mut file = File::create_new(path)?;
    for (i, page) in image.chunks(PAGE_BYTES).enumerate() {
        if page.iter().any(|&byte| byte != 0) {
            file.seek(SeekFrom::Start((i * PAGE_BYTES) as u64))?;
            file.write_all(page)?;
        }
    }
    file.set_len(image.len() as u64)
}
