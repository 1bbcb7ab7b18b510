//! `cp` into a pool: sources are files of this system or of that pool, the destination is `POOL/DATASET:/PATH`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cenote_dataset::ObjectId;
use cenote_dataset::engine::Engine;
use cenote_fs::{FileKind, Filesystem, LastLink};
use cenote_inspect::put::{HostFile, PoolFile, Putter};

use super::{Cp, Losses, show_progress};
use crate::command::change::{parent_of, putter, until_interrupted};
use crate::outcome::{CliError, Outcome};
use crate::session::{Progress, Session, Target, dataset, file_error, print_json, raise_file_limit, watch};

/// What is to be copied, opened.
enum Opened {
    Host(HostFile),
    InPool(PoolFile),
}

impl Opened {
    fn is_folder(&self) -> bool {
        let kind = match self {
            Opened::Host(file) => file.kind(),
            Opened::InPool(file) => file.kind(),
        };
        kind == FileKind::Directory
    }

    async fn put(self, putter: &Putter, path: &Path, dir: ObjectId, name: &[u8]) -> Result<(), CliError> {
        match self {
            Opened::Host(file) => putter.put(file, path, dir, name).await?,
            Opened::InPool(file) => putter.put_shared(file, path, dir, name).await?,
        }
        Ok(())
    }

    async fn put_into(self, putter: &Putter, path: &Path, dir: ObjectId) -> Result<(), CliError> {
        match self {
            Opened::Host(file) => putter.put_into(file, path, dir).await?,
            Opened::InPool(file) => putter.put_shared_into(file, path, dir).await?,
        }
        Ok(())
    }
}

/// The destination if it lies in a pool: `POOL/DATASET:/PATH`, and no path of this system.
pub fn in_pool(destination: &Path) -> Option<Target> {
    let text = destination.to_str().filter(|text| !text.starts_with(['/', '.']))?;
    text.parse().ok().filter(|target: &Target| target.path.is_some())
}

impl Cp {
    /// Copies sources into a pool.
    pub(super) async fn put(
        &self,
        session: &Session,
        sources: &[PathBuf],
        target: &Target,
    ) -> Result<Outcome, CliError> {
        let elsewhere = |path: &&PathBuf| of_pool(path).is_some_and(|source| source.pool() != target.pool());
        if let Some(source) = sources.iter().find(elsewhere) {
            let source = source.display();
            return Err(CliError::Usage(format!(
                "{source}: copy it out first, from one pool to another can't be done yet"
            )));
        }
        raise_file_limit();
        let losses = Losses::default();
        let work = async |engine: &Engine| {
            let options = (self.force, !self.no_metadata);
            let putter = putter(engine, &target.dataset, options, &losses).await?;
            let progress = Progress::files(false);
            let show = |seconds| show_progress(&progress, putter.copied(), seconds);
            let work = watch(session.runtime(), self.put_all(engine, &putter, sources, target), show);
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

    async fn put_all(
        &self,
        engine: &Engine,
        putter: &Putter,
        sources: &[PathBuf],
        target: &Target,
    ) -> Result<(), CliError> {
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
            let source = self.open(engine, putter, path, target).await?;
            if source.is_folder() && !self.recursive {
                return Err(CliError::Usage(format!("{} is a folder: copy it with -r", path.display())));
            }
            match (folder, own_name(path)) {
                (Some(dir), _) if path.as_os_str().as_bytes().ends_with(b"/.") => {
                    source.put_into(putter, path, dir).await?;
                }
                (Some(dir), Some(name)) => source.put(putter, path, dir, &name).await?,
                (Some(_), None) => {
                    let path = path.display();
                    return Err(CliError::Usage(format!("{path}: give the copy a name at the destination")));
                }
                (None, _) => {
                    let (dir, name) = parent_of(putter, target).await?;
                    source.put(putter, path, dir, name).await?;
                }
            }
        }
        Ok(())
    }

    /// Opens a source. A link that is named is followed, unless whole trees are copied.
    async fn open(
        &self,
        engine: &Engine,
        putter: &Putter,
        path: &Path,
        target: &Target,
    ) -> Result<Opened, CliError> {
        let Some(source) = of_pool(path) else {
            let host = |errno: rustix::io::Errno| CliError::io(path.display().to_string())(errno.into());
            return Ok(Opened::Host(HostFile::open(path, !self.recursive).map_err(host)?));
        };
        let is_target = source.dataset == target.dataset;
        let fs = match is_target {
            true => putter.fs().view(),
            false => {
                let found = dataset(&engine.mos().await?, &source.dataset).await?;
                Filesystem::open(found.objset().await?).await?
            }
        };
        let (path, last) =
            (source.path_or_root(), if self.recursive { LastLink::Keep } else { LastLink::Follow });
        let object = match fs.resolve(path.as_bytes(), last).await {
            Ok(object) => object,
            Err(error) => return Err(file_error(&fs, path, error).await),
        };
        Ok(Opened::InPool(match is_target {
            true => PoolFile::open_in(putter, object).await?,
            false => PoolFile::open(fs, object).await?,
        }))
    }
}

/// A source that lies in a pool: what could also be a file here is one.
fn of_pool(path: &Path) -> Option<Target> {
    in_pool(path).filter(|_| !path.exists())
}

/// The last name of a source's path, or of its dataset for the root.
fn own_name(path: &Path) -> Option<Vec<u8>> {
    let root = of_pool(path).filter(|target| target.path_or_root().trim_matches('/').is_empty());
    match root {
        Some(target) => {
            let dataset = target.dataset.split('@').next()?;
            Some(dataset.rsplit('/').next()?.as_bytes().to_vec())
        }
        None => Some(path.file_name()?.as_bytes().to_vec()),
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
