//! Command line of `cenote cp`; local files are opened here.
//!
//! The destination works as in `cp`: an existing folder receives the sources under their own names; otherwise
//! it names the single copy. A source that ends in `/.` stands for the folder's contents.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cenote_control::files::copy::{Cp as Request, Destination, Source};
use cenote_control::files::host::{Opened, open_folder, open_source, split_destination};
use cenote_shown::files::copy;
use clap::Args;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, Target, print_json};
use crate::streams::streams;

/// `cenote cp`
#[derive(Debug, Args)]
#[command(override_usage = "cenote cp [OPTIONS] SOURCE... DESTINATION")]
#[command(
    after_help = "Without a daemon, a copy into a pool locks its devices meanwhile, and leaves it exported. \
        It takes memory for the changes of two txgs, 64 MiB each, in addition to --cache.\n\n\
        A copy within a pool shares its blocks with the source, and takes no space until one of them \
        changes.\n\n\
        Examples:\n  \
        cenote cp -r tank/home@monday:/projects ./projects\n  \
        cenote cp -r ./projects tank/home:/\n  \
        cenote cp -r tank/home@monday:/projects tank/home:/found"
)]
pub struct Cp {
    /// Copy folders with all their contents
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// Replace existing files at the destination
    #[arg(short = 'f', long)]
    pub force: bool,
    /// With -r of a whole file system, copy its descendants too, each as a folder
    #[arg(long, requires = "recursive")]
    pub datasets: bool,
    /// Accepted for compatibility: links are always copied as links
    #[arg(short = 'd')]
    pub keep_links: bool,
    /// Contents only: no owners, modes, times, xattrs, ACLs
    #[arg(long)]
    pub no_metadata: bool,
    /// Continue after files that can't be read: copy the readable parts and list the rest
    #[arg(long)]
    pub partial: bool,
    /// Sources, then the destination; in a pool, POOL/DATASET[@SNAPSHOT]:/PATH. For a local destination, all
    /// sources must be in a pool
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

impl Cp {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let mut files = Vec::new();
        let request = self.request(&mut files)?;
        let answered = session.control().run_with_files(request, files).await?;
        let mut outcome = answered.outcome;
        if session.json() {
            outcome = outcome.printed(print_json(&copy::json(&answered.answer)));
        }
        answered.answer.ended.map_or(Ok(outcome), |failure| Err(failure.into()))
    }

    /// The request; the local files opened for it are added to `files`.
    fn request(self, files: &mut Vec<OwnedFd>) -> Result<Request, CliError> {
        let Some((destination, sources)) = self.paths.split_last() else {
            return Err(CliError::Usage("give sources and a destination".into()));
        };
        let (sources, destination) = match in_pool(destination) {
            Some(target) => {
                let sources = sources.iter().map(|path| self.source(path, files)).collect();
                (sources, Destination::InPool(target))
            }
            None => {
                let destination = open_destination(destination, sources.len(), files)?;
                let target = |path: &PathBuf| Target::parse(path.as_os_str()).map(Source::InPool);
                let sources: Result<_, String> = sources.iter().map(target).collect();
                (sources.map_err(CliError::Usage)?, destination)
            }
        };
        Ok(Request {
            sources,
            destination,
            recursive: self.recursive,
            replace: self.force,
            datasets: self.datasets,
            no_metadata: self.no_metadata,
            partial: self.partial,
            count: streams().stderr_screen().is_some(),
        })
    }

    /// A source of a copy into a pool. A name that also exists locally means the local file.
    fn source(&self, path: &Path, files: &mut Vec<OwnedFd>) -> Source {
        if let Some(target) = in_pool(path).filter(|_| !path.exists()) {
            return Source::InPool(target);
        }
        // A link given as a source is followed, unless whole trees are copied.
        let file = Opened::of(open_source(path, path, !self.recursive), files);
        Source::Host { path: path.as_os_str().as_bytes().to_vec(), file }
    }
}

/// The target, if a path names one in a pool: `POOL/DATASET:/PATH`.
fn in_pool(path: &Path) -> Option<Target> {
    let typed = path.as_os_str();
    let is_here = typed.as_bytes().starts_with(b"/") || typed.as_bytes().starts_with(b".");
    Target::parse(typed).ok().filter(|target| target.path.is_some() && !is_here)
}

/// The folder to copy into, and the copy's name if the destination is not itself that folder.
fn open_destination(
    destination: &Path,
    sources: usize,
    files: &mut Vec<OwnedFd>,
) -> Result<Destination, CliError> {
    let (path, name) = match destination.is_dir() {
        true => (destination, None),
        false if sources > 1 => {
            let shown = destination.display();
            return Err(CliError::Usage(format!("{shown}: several sources need a folder that exists")));
        }
        false => {
            let (folder, name) = split_destination(destination)?;
            (folder, Some(name))
        }
    };
    files.push(open_folder(path, path)?);
    Ok(Destination::Host { folder: files.len() - 1, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_told_from_a_path() {
        for path in ["./x", "/tank:/x", "folder/file", "x", "a:b", "..:/x"] {
            assert_eq!(in_pool(Path::new(path)), None, "{path}");
        }
        for target in ["tank:/", "tank/home:/a b", "tank:"] {
            assert!(in_pool(Path::new(target)).is_some(), "{target}");
        }
    }
}
