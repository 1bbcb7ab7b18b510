//! `cp` into a pool: sources are files of this system, the destination is `POOL/DATASET:/PATH`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cenote_dataset::engine::Engine;
use cenote_fs::{FileKind, LastLink};
use cenote_inspect::put::{HostFile, Putter};

use super::{Cp, Losses, show_progress};
use crate::command::change::{parent_of, putter, until_interrupted};
use crate::outcome::{CliError, Outcome};
use crate::session::{Progress, Session, Target, print_json, raise_file_limit, watch};

/// The destination if it lies in a pool: `POOL/DATASET:/PATH`, and no path of this system.
pub fn in_pool(destination: &Path) -> Option<Target> {
    let text = destination.to_str().filter(|text| !text.starts_with(['/', '.']))?;
    text.parse().ok().filter(|target: &Target| target.path.is_some())
}

impl Cp {
    /// Copies sources of this system into a pool.
    pub(super) async fn put(
        &self,
        session: &Session,
        sources: &[PathBuf],
        target: &Target,
    ) -> Result<Outcome, CliError> {
        if let Some(source) = sources.iter().find(|path| in_pool(path).is_some() && !path.exists()) {
            let source = source.display();
            return Err(CliError::Usage(format!(
                "{source}: copy it out first, from pool to pool can't be done yet"
            )));
        }
        raise_file_limit();
        let losses = Losses::default();
        let work = async |engine: &Engine| {
            let options = (self.force, !self.no_metadata);
            let putter = putter(engine, &target.dataset, options, &losses).await?;
            let progress = Progress::files(false);
            let show = |seconds| show_progress(&progress, putter.copied(), seconds);
            let work = watch(session.runtime(), self.put_all(&putter, sources, target), show);
            let done = until_interrupted(&putter, work).await;
            progress.finish();
            let copied = putter.copied();
            losses.say();
            if session.json() {
                print_json(&losses.summary(copied))?;
            }
            match done? {
                ((), false) => Ok(()),
                ((), true) => Err(CliError::Stopped(format!(
                    "interrupted; {} files are there, each whole",
                    copied.files
                ))),
            }
        };
        session.change_pool(target.pool(), work).await?;
        Ok(losses.outcome())
    }

    async fn put_all(&self, putter: &Putter, sources: &[PathBuf], target: &Target) -> Result<(), CliError> {
        let view = putter.fs().view();
        let there = view.resolve(target.path_or_root().as_bytes(), LastLink::Follow).await.ok();
        let folder = match there {
            Some(object) if view.attr(object).await?.is_dir() => Some(object),
            _ => None,
        };
        if folder.is_none() && sources.len() > 1 {
            let (dataset, path) = (&target.dataset, target.path_or_root());
            return Err(CliError::Usage(format!(
                "{dataset}:{path}: several sources need a folder that exists"
            )));
        }
        for path in sources {
            let host = |errno: rustix::io::Errno| CliError::io(path.display().to_string())(errno.into());
            // A link that is named is followed, unless whole trees are copied.
            let source = HostFile::open(path, !self.recursive).map_err(host)?;
            if source.kind() == FileKind::Directory && !self.recursive {
                return Err(CliError::Usage(format!("{} is a folder: copy it with -r", path.display())));
            }
            match (folder, path.file_name()) {
                (Some(dir), _) if path.as_os_str().as_bytes().ends_with(b"/.") => {
                    putter.put_into(source, path, dir).await?;
                }
                (Some(dir), Some(name)) => putter.put(source, path, dir, name.as_bytes()).await?,
                (Some(_), None) => {
                    let path = path.display();
                    return Err(CliError::Usage(format!("{path}: give the copy a name at the destination")));
                }
                (None, _) => {
                    let (dir, name) = parent_of(putter, target).await?;
                    putter.put(source, path, dir, name).await?;
                }
            }
        }
        Ok(())
    }
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
