//! `cenote cp`: copies files and trees out of a pool, into one, or within one, and reports what it could not
//! copy.
//!
//! The destination works as in `cp`: an existing folder receives the sources under their own names; otherwise
//! it names the single copy. A source that ends in `/.` stands for the folder's contents.

mod below;
mod losses;
mod put;
mod total;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cenote_fs::LastLink;
use cenote_inspect::copy::{Copier, CopyOptions, CopySource, Folder, Name};
use clap::Args;

use crate::command::files::PoolFiles;
use crate::outcome::{CliError, Outcome, Printed};
use crate::render::counted_as;
use crate::session::{Progress, Session, Target, interrupted, print_json, raise_file_limit, watch};
use crate::streams::local;
use below::Below;
use total::Total;

pub use losses::{Losses, describe_progress};

/// `cenote cp`
#[derive(Debug, Args)]
#[command(override_usage = "cenote cp [OPTIONS] SOURCE... DESTINATION")]
#[command(
    after_help = "Into a pool: its devices are locked while the copy runs, and it is left exported. Memory: \
        the changes of two transaction groups, 64 MiB each, in addition to --cache.\n\n\
        Within a pool: files share their blocks with the source, so copies take no space until they \
        change.\n\n\
        Examples: cenote cp -r tank/home@monday:/projects ./projects\n          \
        cenote cp -r ./projects tank/home:/\n          \
        cenote cp -r tank/home@monday:/projects tank/home:/found"
)]
pub struct Cp {
    /// Copy folders with all their contents
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// Replace existing files at the destination
    #[arg(short = 'f', long)]
    pub force: bool,
    /// With -r of a whole file system: copy the datasets below it too, each as a folder
    #[arg(long, requires = "recursive")]
    pub datasets: bool,
    /// Accepted for compatibility: links are always copied as links
    #[arg(short = 'd')]
    pub keep_links: bool,
    /// Contents only: no owners, modes, times, xattrs, ACLs
    #[arg(long)]
    pub no_metadata: bool,
    /// Continue after files that can't be read: copy what is readable and list the rest
    #[arg(long)]
    pub partial: bool,
    /// Sources, each POOL/DATASET[@SNAPSHOT]:/PATH, then a local folder (or, for one file, a name); or local
    /// sources or sources in the pool, then POOL/DATASET:/PATH
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// A source, and the path of its copy below the destination folder. With an empty path its contents go
/// directly into that folder.
struct Job {
    source: CopySource,
    names: Vec<Name>,
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
        let (jobs, found) = self.jobs(session, sources, name).await?;
        raise_file_limit();
        let options = CopyOptions {
            replace: self.force,
            metadata: !self.no_metadata,
            partial: self.partial,
            ..CopyOptions::default()
        };
        let losses = Losses::default();
        let told = losses.clone();
        let copier = Copier::new(session.runtime(), options, move |loss| told.add(loss));
        let work = async {
            for Job { source, names } in &jobs {
                if names.is_empty() {
                    copier.copy_into(source, &folder).await;
                    continue;
                }
                let (folder, name) = below::place(&folder, names)?;
                copier.copy(source, &folder, name).await;
            }
            Ok::<(), CliError>(())
        };
        let progress = Progress::text();
        let all = jobs.iter().map(|job| job.source.clone()).collect();
        let total = Total::of_pool(session.runtime(), &progress, all);
        let show = |seconds| progress.message(describe_progress(copier.copied(), seconds, total.bytes()));
        let stopped = tokio::select! {
            biased; // handle interrupts before the first file is made
            () = interrupted() => Some("interrupted"),
            () = losses.full() => Some("the destination is full"),
            done = watch(session.runtime(), work, show) => done.map(|()| None)?,
        };
        progress.finish();
        let copied = copier.copied();
        losses.say();
        let mut outcome = losses.outcome();
        if session.json() {
            outcome = outcome.printed(print_json(&losses.summary(copied)));
        }
        match stopped {
            None => Ok(outcome.and(found)),
            Some(why) => Err(CliError::Stopped(format!(
                "{why}; {} copied, each complete; folders may lack their modes and times",
                counted_as(copied.files, "file is", "files are")
            ))),
        }
    }

    /// Finds the sources and reports those it skips. `name` is the name of a single copy, if the destination
    /// is not an existing folder.
    async fn jobs(
        &self,
        session: &Session,
        sources: &[PathBuf],
        name: Option<Name>,
    ) -> Result<(Vec<Job>, Outcome), CliError> {
        // A link that is named is followed, unless whole trees are copied.
        let last = if self.recursive { LastLink::Keep } else { LastLink::Follow };
        let mut places = PoolFiles::new(session);
        let (mut jobs, mut outcome) = (Vec::new(), Outcome::Done);
        for source in sources {
            let target = Target::parse(source.as_os_str()).map_err(CliError::Usage)?;
            let place = places.find(&target, last).await?;
            if place.attr.is_dir() && !self.recursive {
                return Err(CliError::Usage(format!("{target} is a folder: copy it with -r")));
            }
            let path = target.path_in(&place.filesystem).await;
            let contents = path.ends_with(b"/.") && name.is_none();
            let own_name = || {
                let name = Name::new(own_name(&target.dataset, path));
                let why = || CliError::Usage(format!("{target}: give the copy a name at the destination"));
                name.ok_or_else(why)
            };
            let name = match (&name, contents) {
                (Some(name), _) => Some(name.clone()),
                (None, true) => None,
                (None, false) => Some(own_name()?),
            };
            if self.datasets {
                let (found, how) = below::find(session, &place).await?;
                outcome = outcome.and(how);
                jobs.extend(found.into_iter().map(|Below { source, names }| Job {
                    source,
                    names: name.iter().cloned().chain(names).collect(),
                }));
            } else if self.recursive {
                below::say_left_out(&place.dataset, place.object == place.filesystem.root()).await;
            }
            let source = CopySource { filesystem: place.filesystem, object: place.object, path: place.shown };
            jobs.push(Job { source, names: name.into_iter().collect() });
        }
        Ok((jobs, outcome))
    }
}

/// The folder to copy into, and the copy's name if the destination is not itself that folder.
fn open_destination(destination: &Path, sources: usize) -> Result<(Folder, Option<Name>), CliError> {
    let shown = || destination.display().to_string();
    if local(destination).is_dir() {
        let folder =
            Folder::open(&local(destination)).map_err(|errno| CliError::io(shown())(errno.into()))?;
        return Ok((folder, None));
    }
    if sources > 1 {
        return Err(CliError::Usage(format!("{}: several sources need a folder that exists", shown())));
    }
    let (folder, name) = split_destination(destination)?;
    Ok((folder, Some(name)))
}

/// Splits a path outside the pool into an open folder and a name in it.
pub fn split_destination(destination: &Path) -> Result<(Folder, Name), CliError> {
    let name = destination.file_name().and_then(|name| Name::new(name.as_bytes()));
    let name = name.ok_or_else(|| {
        CliError::Usage(format!("{}: name a folder that exists or a new name", destination.display()))
    })?;
    let parent = match destination.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let open = Folder::open(&local(parent))
        .map_err(|errno| CliError::io(parent.display().to_string())(errno.into()));
    Ok((open?, name))
}

/// The last component of a source's path; for the root, of its dataset.
fn own_name<'a>(dataset: &'a str, path: &'a [u8]) -> &'a [u8] {
    let of_path = path.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty() && *name != b".");
    let dataset = dataset.split('@').next().unwrap_or_default();
    of_path.unwrap_or_else(|| dataset.rsplit('/').next().unwrap_or_default().as_bytes())
}
