//! `cenote cp`: copies files and trees out of a pool, into one, or within one, and says what it could not copy.
//!
//! The destination is understood as `cp` does: a folder that exists receives the sources under their own names; otherwise it is the
//! name of the one copy. A source that ends in `/.` means what is in the folder.

mod losses;
mod put;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cenote_fs::LastLink;
use cenote_inspect::copy::{Copier, CopyOptions, CopySource, Folder, Name};
use clap::Args;

use crate::command::files::{Place, Places};
use crate::outcome::{CliError, Outcome};
use crate::session::{Progress, Session, interrupted, print_json, raise_file_limit, watch};

pub use losses::{Losses, show_progress};

/// `cenote cp`
#[derive(Debug, Args)]
#[command(override_usage = "cenote cp [OPTIONS] SOURCE... DESTINATION")]
#[command(
    after_help = "Into a pool: its devices are locked while the copy runs, and it is left exported. Memory: changes of two transaction groups of\n\
    64 MiB, beside --cache.\n\n\
    Within a pool: files share their blocks with the source, so copies take no space until they are changed.\n\n\
    Examples: cenote cp -r tank/home@monday:/projects ./projects\n          cenote cp -r ./projects tank/home:/\n          \
    cenote cp -r tank/home@monday:/projects tank/home:/found"
)]
pub struct Cp {
    /// Folders with all that is in them
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// Replace files that exist at the destination
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Contents only: no owners, modes, times, xattrs, ACLs
    #[arg(long)]
    pub no_metadata: bool,
    /// Go on after files that can't be read: copy what can, and list what can't
    #[arg(long)]
    pub partial: bool,
    /// Sources, each POOL/DATASET[@SNAPSHOT]:/PATH, and last a folder (or, for one file, a name) of this system; or sources of this
    /// system or of the pool, and last POOL/DATASET:/PATH
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// A source, and the name that its copy gets in the destination's folder; without one, what is in it goes there.
struct Job {
    source: CopySource,
    name: Option<Name>,
}

impl Cp {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Some((destination, sources)) = self.paths.split_last() else {
            return Err(CliError::Usage("give sources and a destination".into()));
        };
        if let Some(target) = put::in_pool(destination) {
            return self.put(session, sources, &target).await;
        }
        let (folder, name) = open_destination(destination, sources.len())?;
        let jobs = self.jobs(session, sources, name).await?;
        raise_file_limit();
        let options = CopyOptions { replace: self.force, metadata: !self.no_metadata, partial: self.partial };
        let losses = Losses::default();
        let told = losses.clone();
        let copier = Copier::new(session.runtime(), options, move |loss| told.add(loss));
        let work = async {
            for job in &jobs {
                match &job.name {
                    Some(name) => copier.copy(&job.source, &folder, name).await,
                    None => copier.copy_into(&job.source, &folder).await,
                }
            }
        };
        let progress = Progress::files(false);
        let show = |seconds| show_progress(&progress, copier.copied(), seconds);
        let stopped = tokio::select! {
            biased; // interrupts are ours before the first file is made
            () = interrupted() => Some("interrupted"),
            () = losses.full() => Some("the destination is full"),
            () = watch(session.runtime(), work, show) => None,
        };
        progress.finish();
        let copied = copier.copied();
        losses.say();
        if session.json() {
            print_json(&losses.summary(copied))?;
        }
        match stopped {
            None => Ok(losses.outcome()),
            Some(why) => Err(CliError::Stopped(format!(
                "{why}; {} files are there, each whole; folders may not have their modes and times yet",
                copied.files
            ))),
        }
    }

    /// Finds the sources. `name`: what the only copy shall be called, if the destination is no folder.
    async fn jobs(
        &self,
        session: &Session,
        sources: &[PathBuf],
        name: Option<Name>,
    ) -> Result<Vec<Job>, CliError> {
        // A link that is named is followed, unless whole trees are copied.
        let last = if self.recursive { LastLink::Keep } else { LastLink::Follow };
        let mut places = Places::new(session);
        let mut jobs = Vec::new();
        for source in sources {
            let typed = source.to_str().ok_or_else(|| {
                CliError::Usage(format!("{}: copy the folder that holds it", source.display()))
            })?;
            let place = places.find(typed, last).await?;
            if place.attr.is_dir() && !self.recursive {
                return Err(CliError::Usage(format!("{typed} is a folder: copy it with -r")));
            }
            let contents = typed.ends_with("/.") && name.is_none();
            let name = match (&name, contents) {
                (Some(name), _) => Some(name.clone()),
                (None, true) => None,
                (None, false) => Some(own_name(&place, typed)?),
            };
            let path = place.shown.into_bytes();
            let source = CopySource { filesystem: place.filesystem, object: place.object, path };
            jobs.push(Job { source, name });
        }
        Ok(jobs)
    }
}

/// The folder to copy into, and the name for the copy if the destination is not itself that folder.
fn open_destination(destination: &Path, sources: usize) -> Result<(Folder, Option<Name>), CliError> {
    let shown = || destination.display().to_string();
    if destination.is_dir() {
        let folder = Folder::open(destination).map_err(|errno| CliError::io(shown())(errno.into()))?;
        return Ok((folder, None));
    }
    if sources > 1 {
        return Err(CliError::Usage(format!("{}: several sources need a folder that exists", shown())));
    }
    let (folder, name) = split_destination(destination)?;
    Ok((folder, Some(name)))
}

/// A path outside of the pool as an open folder and a name in it.
pub fn split_destination(destination: &Path) -> Result<(Folder, Name), CliError> {
    let name = destination.file_name().and_then(|name| Name::new(name.as_bytes()));
    let name = name.ok_or_else(|| {
        CliError::Usage(format!("{}: name a folder that exists or a new name", destination.display()))
    })?;
    let parent = match destination.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let open = Folder::open(parent).map_err(|errno| CliError::io(parent.display().to_string())(errno.into()));
    Ok((open?, name))
}

/// The last name of a source's path, or of its dataset for the root.
fn own_name(place: &Place, typed: &str) -> Result<Name, CliError> {
    let (dataset, path) = place.shown.split_once(":/").unwrap_or((&place.shown, ""));
    let last = match path.rsplit('/').find(|name| !name.is_empty() && *name != ".") {
        Some(name) => name,
        None => dataset.rsplit('/').next().and_then(|name| name.split('@').next()).unwrap_or_default(),
    };
    Name::new(last.as_bytes())
        .ok_or_else(|| CliError::Usage(format!("{typed}: give the copy a name at the destination")))
}
