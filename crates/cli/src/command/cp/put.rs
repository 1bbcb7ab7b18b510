//! `cp` into a pool: sources are local files or files of the same pool, the destination is
//! `POOL/DATASET:/PATH`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cenote_engine::{Engine, SnapshotHold};
use cenote_format::units::ObjectId;
use cenote_fs::{FileKind, Filesystem, FsWriter, LastLink};
use cenote_inspect::put::{HostFile, PoolFile, Putter};
use cenote_object::DatasetError;

use super::total::Total;
use super::{Cp, Losses, below, describe_progress, own_name};
use crate::command::change::{parent_of, putter, until_interrupted};
use crate::outcome::{CliError, Outcome, Printed};
use crate::render::counted_as;
use crate::session::{Progress, Session, Target, dataset, file_error, print_json, raise_file_limit, watch};
use crate::streams::local;

/// An opened source.
enum Opened {
    Host(HostFile),
    InPool(PoolFile),
}

/// The file system of a source that lies in the pool.
enum Home {
    Target,
    Other(FsWriter),
    Snapshot(Filesystem, SnapshotHold),
}

/// A source, the name of its copy, and whether only its contents are copied.
struct Source {
    opened: Opened,
    name: Option<Vec<u8>>,
    is_content: bool,
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

/// The destination, if it lies in a pool: `POOL/DATASET:/PATH`, and not a local path.
pub fn in_pool(destination: &Path) -> Option<Target> {
    let typed = destination.as_os_str();
    let is_here = typed.as_bytes().starts_with(b"/") || typed.as_bytes().starts_with(b".");
    Target::parse(typed).ok().filter(|target| target.path.is_some() && !is_here)
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
                "{source}: copying from one pool to another is not supported yet; copy it out first"
            )));
        }
        if self.datasets {
            let why = "--datasets is for copies out of a pool; into one, copy each dataset separately";
            return Err(CliError::Usage(why.into()));
        }
        raise_file_limit();
        let losses = Losses::default();
        let work = async |engine: &Engine| {
            let options = (self.force, !self.no_metadata);
            let putter = putter(engine, &target.dataset, options, &losses).await?;
            let progress = Progress::text();
            let total = match sources.iter().any(|path| of_pool(path).is_some()) {
                true => Total::default(),
                false => Total::of_host(&progress, sources.iter().map(|source| local(source)).collect()),
            };
            let show = |seconds| progress.message(describe_progress(putter.copied(), seconds, total.bytes()));
            let work = watch(session.runtime(), self.put_all(engine, &putter, sources, target), show);
            let done = until_interrupted(&putter, work).await;
            progress.finish();
            let copied = putter.copied();
            losses.say();
            let mut outcome = Outcome::Done;
            if session.json() {
                outcome = outcome.printed(print_json(&losses.summary(copied)));
            }
            match done? {
                ((), false) => Ok(outcome),
                ((), true) => Err(CliError::Stopped(format!(
                    "interrupted; {} copied, each complete",
                    counted_as(copied.files, "file is", "files are")
                ))),
            }
        };
        let outcome = session.change_pool(target.pool(), work).await?;
        Ok(outcome.and(losses.outcome()))
    }

    async fn put_all(
        &self,
        engine: &Engine,
        putter: &Putter,
        sources: &[PathBuf],
        target: &Target,
    ) -> Result<(), CliError> {
        let view = putter.fs().view();
        let there = view.resolve(target.path_in(&view).await, LastLink::Follow).await.ok();
        let folder = match there {
            Some(object) if view.attr(object).await?.is_dir() => Some(object),
            _ => None,
        };
        if folder.is_none() && sources.len() > 1 {
            return Err(CliError::Usage(format!("{target}: several sources need a folder that exists")));
        }
        for path in sources {
            let Source { opened: source, name, is_content } = self.open(engine, putter, path, target).await?;
            if source.is_folder() && !self.recursive {
                return Err(CliError::Usage(format!("{} is a folder: copy it with -r", path.display())));
            }
            match (folder, name) {
                (Some(dir), _) if is_content => source.put_into(putter, path, dir).await?,
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
    ) -> Result<Source, CliError> {
        let Some(source) = of_pool(path) else {
            let host = |errno: rustix::io::Errno| CliError::io(path.display().to_string())(errno.into());
            let opened = Opened::Host(HostFile::open(&local(path), !self.recursive).map_err(host)?);
            let name = path.file_name().map(|name| name.as_bytes().to_vec());
            return Ok(Source { opened, name, is_content: path.as_os_str().as_bytes().ends_with(b"/.") });
        };
        let found = dataset(&engine.mos().await?, &source.dataset).await?;
        let home = match source.dataset == target.dataset {
            true => Home::Target,
            false if found.is_snapshot() => {
                let (found, snapshot) = engine.snapshot(&source.dataset).await?;
                let gone = || DatasetError::NoDataset { name: source.dataset.as_str().into() };
                let hold = snapshot.hold().ok_or_else(gone)?;
                Home::Snapshot(Filesystem::open(found.objset().await?).await?, hold)
            }
            false => Home::Other(FsWriter::shared(engine, &source.dataset).await?),
        };
        let fs = match &home {
            Home::Target => putter.fs().view(),
            Home::Other(fs) => fs.view(),
            Home::Snapshot(fs, _) => fs.clone(),
        };
        let path = source.path_in(&fs).await;
        let last = if self.recursive { LastLink::Keep } else { LastLink::Follow };
        let object = match fs.resolve(path, last).await {
            Ok(object) => object,
            Err(error) => return Err(file_error(&fs, path, error).await),
        };
        if self.recursive {
            below::say_left_out(&found, object == fs.root()).await;
        }
        let opened = Opened::InPool(match home {
            Home::Target => PoolFile::open_in(putter, object).await?,
            Home::Other(fs) => PoolFile::open(fs, object).await?,
            Home::Snapshot(fs, hold) => PoolFile::open_in_snapshot(fs, hold, object).await?,
        });
        let name = Some(own_name(&source.dataset, path).to_vec());
        Ok(Source { opened, name, is_content: path.ends_with(b"/.") })
    }
}

/// A source that lies in a pool; a name that also exists locally means the local file.
fn of_pool(path: &Path) -> Option<Target> {
    in_pool(path).filter(|_| !path.exists())
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
