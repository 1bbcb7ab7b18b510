//! `cenote volume`: copies a zvol, or a snapshot of one, to a file or device, or back; who uses those that
//! are served.

mod clients;
mod put;

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use cenote_inspect::copy::{Copier, CopyOptions, Reason, VolumeSink};
use clap::{Args, Subcommand};
use rustix::io::Errno;

use super::cp::{Losses, split_destination};
use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Progress, Session, Target, print_json, raw_stdout, unless_interrupted, watch};
use crate::streams::local;

/// `cenote volume` and its verbs.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Copy a volume's content out or in, preserving holes
    Cp(VolumeCp),
    /// Show who uses the volumes that the daemon serves
    Clients(clients::VolumeClients),
}

/// `cenote volume cp`
#[derive(Debug, Args)]
#[command(
    after_help = "A name that begins with / or ., or that exists here, is a file. A target volume must \
        exist (`cenote zfs create -V`); the part beyond the end of the source is cleared.\n\n\
        Examples:\n  \
        cenote volume cp tank/vm@monday vm.img\n  \
        cenote volume cp vm.img tank/vm\n  \
        zcat vm.img.gz | cenote volume cp - tank/vm"
)]
pub struct VolumeCp {
    /// Replace an existing file, overwrite a device, or a volume that is not empty
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Fill unreadable blocks with zeros, continue, and list them
    #[arg(long)]
    pub partial: bool,
    /// POOL/VOLUME[@SNAPSHOT], or a file or block device; `-` for standard input
    pub source: String,
    /// A file (sparse where the volume has holes) or a block device, `-` for standard output; or POOL/VOLUME
    pub destination: PathBuf,
}

impl VolumeCommand {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        match self {
            VolumeCommand::Cp(cp) => cp.run(session).await,
            VolumeCommand::Clients(clients) => clients.run(session).await,
        }
    }
}

impl VolumeCp {
    async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if is_here(&self.source) {
            return self.put(session).await;
        }
        let target: Target = self.source.parse().map_err(CliError::Usage)?;
        if target.path.is_some() {
            return Err(CliError::Usage(
                "volume cp takes a volume; files are copied with `cenote cp`".into(),
            ));
        }
        let dataset = session.open_dataset(&target).await?;
        let volume = session.volume(&dataset).await?;
        let to_stdout = self.destination == Path::new("-");
        if to_stdout && session.json() {
            return Err(CliError::Usage("--json and the volume can't both go to standard output".into()));
        }
        let sink = self.sink(volume.size_bytes())?;
        let options = CopyOptions {
            replace: self.force,
            metadata: false,
            partial: self.partial,
            ..CopyOptions::default()
        };
        let losses = Losses::default();
        let told = losses.clone();
        let copier = Copier::new(session.runtime(), options, move |loss| told.add(loss));
        let progress = Progress::bytes(volume.size_bytes(), false);
        let work = copier.copy_volume(&volume, self.source.as_bytes(), sink);
        let work = async {
            let copied = watch(session.runtime(), work, |_| progress.set(copier.copied().bytes)).await;
            progress.finish();
            copied.map_err(|reason| self.failure(reason))
        };
        unless_interrupted(work, || self.left()).await?;
        losses.say();
        match session.json() {
            true => Ok(losses.outcome().printed(print_json(&losses.summary(copier.copied())))),
            false => Ok(losses.outcome()),
        }
    }

    /// What an interrupt leaves: a file gets its name only once it is complete.
    fn left(&self) -> String {
        let shown = self.destination.display();
        match std::fs::metadata(local(&self.destination)) {
            Ok(found) if found.file_type().is_block_device() => format!("{shown} is partly overwritten"),
            _ => "nothing was left behind".into(),
        }
    }

    fn failure(&self, reason: Reason) -> CliError {
        let destination = self.destination.display();
        match reason {
            Reason::Pool(error) => error.into(),
            Reason::System(Errno::EXIST) => {
                CliError::Usage(format!("{destination} exists already; -f replaces it"))
            }
            Reason::System(errno) => CliError::io(destination.to_string())(errno.into()),
            Reason::Because(why) => CliError::NotFound(format!("{destination}: {why}")),
        }
    }

    fn sink(&self, size_bytes: u64) -> Result<VolumeSink, CliError> {
        let destination = &self.destination;
        if destination == Path::new("-") {
            return Ok(VolumeSink::Stream(Box::new(raw_stdout()?)));
        }
        let shown = destination.display().to_string();
        match std::fs::metadata(local(destination)) {
            Ok(found) if found.file_type().is_block_device() && !self.force => {
                Err(CliError::Usage(format!("{shown} is a device: -f overwrites its content")))
            }
            Ok(found) if found.file_type().is_block_device() => {
                VolumeSink::device(destination, size_bytes).map_err(CliError::io(shown))
            }
            Ok(found) if found.is_dir() => Err(CliError::Usage(format!("{shown} is a folder: name a file"))),
            Ok(_) if !self.force => Err(CliError::Usage(format!("{shown} exists already; -f replaces it"))),
            Ok(_) | Err(_) => {
                let (folder, name) = split_destination(destination)?;
                Ok(VolumeSink::File(folder, name))
            }
        }
    }
}

/// Whether a name means a local file rather than a volume.
fn is_here(name: &str) -> bool {
    name == "-" || name.starts_with(['/', '.']) || Path::new(name).exists()
}
