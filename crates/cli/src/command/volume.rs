//! Command line of `cenote volume`: copies a zvol or a snapshot of one to a file or device, or back; shows
//! the clients of served volumes. Local files and devices are opened here.

mod clients;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use cenote_control::files::host::{open_folder, split_destination};
use cenote_control::remote::Failure;
use cenote_control::volume::copy::{Copy as Request, Feed, Sink, Way};
use cenote_shown::files::copy;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, Target, print_json};

/// `cenote volume` and its verbs.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    cenote volume cp tank/vm vm.img\n  \
    cenote volume clients")]
pub enum VolumeCommand {
    /// Copy a volume's content out or in, preserving holes
    Cp(VolumeCp),
    /// Show clients of the daemon's volumes
    Clients(clients::VolumeClients),
}

/// `cenote volume cp`
#[derive(Debug, Args)]
#[command(
    after_help = "A name that begins with / or ., or that exists locally, is a file. A target volume must \
        exist (`cenote zfs create -V`); its part beyond the end of the source is cleared.\n\n\
        Examples:\n  \
        cenote volume cp tank/vm@monday vm.img\n  \
        cenote volume cp vm.img tank/vm\n  \
        zcat vm.img.gz | cenote volume cp - tank/vm"
)]
pub struct VolumeCp {
    /// Overwrite an existing file, a device, or a volume that is not empty
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
        let mut files = Vec::new();
        let is_out = !is_here(&self.source);
        let request = match is_out {
            true => self.out(session.json(), &mut files)?,
            false => self.put(&mut files)?,
        };
        let answered = session.control().run_with_files(request, files).await?;
        Ok(match (session.json(), is_out) {
            (false, _) => answered.outcome,
            (true, true) => answered.outcome.printed(print_json(&copy::json(&answered.answer))),
            (true, false) => answered.outcome.printed(print_json(&json!({"bytes": answered.answer.bytes}))),
        })
    }

    /// Out of a volume.
    fn out(self, json: bool, files: &mut Vec<OwnedFd>) -> Result<Request, CliError> {
        let target: Target = self.source.parse().map_err(CliError::Usage)?;
        if target.path.is_some() {
            return Err(CliError::Usage(
                "volume cp takes a volume; files are copied with `cenote cp`".into(),
            ));
        }
        // The volume is checked first.
        let sink = self.sink(json, files).unwrap_or_else(|error| Sink::Not(Failure::from(&error)));
        Ok(Request {
            volume: target.dataset,
            other: self.destination.display().to_string(),
            way: Way::Out(sink),
            replace: self.force,
            partial: self.partial,
        })
    }

    /// Into a volume.
    fn put(self, files: &mut Vec<OwnedFd>) -> Result<Request, CliError> {
        let shown = self.destination.display().to_string();
        let target: Target = shown.parse().map_err(CliError::Usage)?;
        if target.path.is_some() || target.dataset.contains('@') {
            return Err(CliError::Usage(format!("{shown} is not a writable volume")));
        }
        let feed = match &*self.source {
            "-" => Feed::Stream,
            path => {
                let file = File::open(path);
                let opened = file.and_then(|file| Ok((file.metadata()?.is_dir(), file)));
                let (is_folder, file) = opened.map_err(CliError::io(path))?;
                if is_folder {
                    return Err(CliError::Usage(format!("{path} is a folder: name a file")));
                }
                files.push(file.into());
                Feed::File(files.len() - 1)
            }
        };
        Ok(Request {
            volume: target.dataset,
            other: self.source,
            way: Way::Into(feed),
            replace: self.force,
            partial: self.partial,
        })
    }

    fn sink(&self, json: bool, files: &mut Vec<OwnedFd>) -> Result<Sink, CliError> {
        let destination = &self.destination;
        if destination == Path::new("-") {
            return match json {
                true => {
                    let why = "--json and the volume can't both go to standard output";
                    Err(CliError::Usage(why.into()))
                }
                false => Ok(Sink::Stream),
            };
        }
        let shown = destination.display().to_string();
        let path = destination;
        match std::fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() && !self.force => {
                Err(CliError::Usage(format!("{shown} is a device: -f overwrites its content")))
            }
            Ok(found) if found.file_type().is_block_device() => {
                let device = File::options().write(true).open(path).map_err(CliError::io(shown))?;
                files.push(device.into());
                Ok(Sink::Device(files.len() - 1))
            }
            Ok(found) if found.is_dir() => Err(CliError::Usage(format!("{shown} is a folder: name a file"))),
            Ok(_) if !self.force => Err(CliError::Usage(format!("{shown} exists already; -f replaces it"))),
            Ok(_) | Err(_) => {
                let (folder, name) = split_destination(destination)?;
                files.push(open_folder(folder, folder)?);
                Ok(Sink::File { folder: files.len() - 1, name })
            }
        }
    }
}

/// Whether a name means a local file rather than a volume.
fn is_here(name: &str) -> bool {
    name == "-" || name.starts_with(['/', '.']) || Path::new(name).exists()
}
