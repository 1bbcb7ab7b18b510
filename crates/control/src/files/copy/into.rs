//! `cp` into a pool, from files opened by the caller or files of the same pool.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cenote_engine::{Engine, SnapshotHold};
use cenote_format::units::ObjectId;
use cenote_fs::{FileKind, Filesystem, FsWriter, LastLink};
use cenote_inspect::put::{HostFile, PoolFile, Putter};
use cenote_object::DatasetError;

use super::losses::{Losses, Summary};
use super::total::Total;
use super::{Cp, Source, below, own_name, progress};
use crate::error::{ControlError, Outcome};
use crate::files::Target;
use crate::files::change::{parent_of, putter, until_interrupted};
use crate::files::host;
use crate::progress::telling;
use crate::remote::Failure;
use crate::session::{Session, dataset, file_error};
use crate::text::counted_as;
use crate::verb::Answered;

enum Opened {
    Host(HostFile),
    InPool(PoolFile),
}

/// The file system of a source in the pool.
enum Home {
    Target,
    Other(FsWriter),
    Snapshot(Filesystem, SnapshotHold),
}

/// A source, the name of its copy, and whether only contents are copied.
struct Found {
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

    async fn put(self, putter: &Putter, path: &Path, dir: ObjectId, name: &[u8]) -> Result<(), ControlError> {
        match self {
            Opened::Host(file) => putter.put(file, path, dir, name).await?,
            Opened::InPool(file) => putter.put_shared(file, path, dir, name).await?,
        }
        Ok(())
    }

    async fn put_into(self, putter: &Putter, path: &Path, dir: ObjectId) -> Result<(), ControlError> {
        match self {
            Opened::Host(file) => putter.put_into(file, path, dir).await?,
            Opened::InPool(file) => putter.put_shared_into(file, path, dir).await?,
        }
        Ok(())
    }
}

impl Source {
    /// As the caller named it.
    fn shown(&self) -> Vec<u8> {
        match self {
            Source::InPool(target) => [target.dataset.as_bytes(), b":", target.path_or_root()].concat(),
            Source::Host { path, .. } => path.clone(),
        }
    }

    fn open_host(&self, session: &Session) -> Result<HostFile, ControlError> {
        let Source::Host { path, file } = self else {
            return Err(ControlError::Usage("this source lies in a pool".into()));
        };
        match file {
            host::Opened::At(at) => HostFile::of(session.caller().file(*at)?).map_err(|errno| {
                ControlError::io(Path::new(OsStr::from_bytes(path)).display().to_string())(errno.into())
            }),
            host::Opened::Not(failure) => Err(failure.clone().into()),
        }
    }
}

impl Cp {
    pub(super) async fn put(
        &self,
        session: &Session,
        target: &Target,
    ) -> Result<Answered<Summary>, ControlError> {
        let in_pool = |source: &&Source| matches!(source, Source::InPool(_));
        for source in &self.sources {
            if let Source::InPool(source) = source
                && source.pool() != target.pool()
            {
                return Err(ControlError::Usage(format!(
                    "{source}: copying from one pool to another is not supported yet; copy it out first"
                )));
            }
        }
        if self.datasets {
            let why = "--datasets is for copies out of a pool; into one, copy each dataset separately";
            return Err(ControlError::Usage(why.into()));
        }
        let losses = Losses::default();
        let mut answer = None;
        let work = async |engine: &Engine| {
            let options = (self.replace, !self.no_metadata);
            let putter = putter(engine, &target.dataset, options, &losses).await?;
            let total = match self.count && !self.sources.iter().any(|source| in_pool(&source)) {
                true => {
                    let opened = self.sources.iter().map(|source| source.open_host(session));
                    Total::of_host(opened.flatten().collect())
                }
                false => Total::default(),
            };
            let work = self.put_all(session, engine, &putter, target);
            let work = telling(session, work, || progress(putter.copied(), total.bytes()));
            let done = until_interrupted(session, &putter, work).await;
            let copied = putter.copied();
            losses.tell(session.caller());
            answer = Some(losses.summary(copied));
            match done? {
                ((), false) => Ok(Outcome::Done),
                ((), true) => Err(ControlError::Stopped(format!(
                    "interrupted; {} copied, each complete",
                    counted_as(copied.files, "file is", "files are")
                ))),
            }
        };
        let changed = session.change_pool(target.pool(), work).await;
        match (changed, answer) {
            (Ok(outcome), Some(answer)) => Ok(Answered { answer, outcome: outcome.and(losses.outcome()) }),
            (Err(error), Some(mut answer)) => {
                answer.ended = Some(Failure::from(&error));
                Ok(Answered { answer, outcome: error.outcome() })
            }
            (Err(error), None) => Err(error),
            (Ok(_), None) => Err(ControlError::Refused("nothing was copied".into())),
        }
    }

    async fn put_all(
        &self,
        session: &Session,
        engine: &Engine,
        putter: &Putter,
        target: &Target,
    ) -> Result<(), ControlError> {
        let view = putter.fs().view();
        let path = target.path_in(&view).await;
        let there = putter.fs().resolve(path, LastLink::Follow).await.ok();
        let folder = match there {
            Some(object) if view.attr(object).await?.is_dir() => Some(object),
            _ => None,
        };
        if folder.is_none() && self.sources.len() > 1 {
            return Err(ControlError::Usage(format!("{target}: several sources need a folder that exists")));
        }
        for source in &self.sources {
            let shown = source.shown();
            let path = Path::new(OsStr::from_bytes(&shown));
            let found = self.open(session, engine, putter, source, target).await?;
            let Found { opened: source, name, is_content } = found;
            if source.is_folder() && !self.recursive {
                return Err(ControlError::Usage(format!("{} is a folder: copy it with -r", path.display())));
            }
            match (folder, name) {
                (Some(dir), _) if is_content => source.put_into(putter, path, dir).await?,
                (Some(dir), Some(name)) => source.put(putter, path, dir, &name).await?,
                (Some(_), None) => {
                    let path = path.display();
                    return Err(ControlError::Usage(format!(
                        "{path}: give the copy a name at the destination"
                    )));
                }
                (None, _) => {
                    let (dir, name) = parent_of(putter, target).await?;
                    source.put(putter, path, dir, name).await?;
                }
            }
        }
        Ok(())
    }

    /// Follows a named link unless copying whole trees.
    async fn open(
        &self,
        session: &Session,
        engine: &Engine,
        putter: &Putter,
        source: &Source,
        target: &Target,
    ) -> Result<Found, ControlError> {
        let source = match source {
            Source::InPool(source) => source,
            Source::Host { path, .. } => {
                let opened = Opened::Host(source.open_host(session)?);
                let name =
                    Path::new(OsStr::from_bytes(path)).file_name().map(|name| name.as_bytes().to_vec());
                return Ok(Found { opened, name, is_content: path.ends_with(b"/.") });
            }
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
        let found_there = match &home {
            Home::Target => putter.fs().resolve(path, last).await,
            Home::Other(fs) => fs.resolve(path, last).await,
            Home::Snapshot(fs, _) => fs.resolve(path, last).await,
        };
        let object = match found_there {
            Ok(object) => object,
            Err(error) => return Err(file_error(&fs, path, error).await),
        };
        if self.recursive {
            below::tell_left_out(session, &found, object == fs.root()).await;
        }
        let opened = Opened::InPool(match home {
            Home::Target => PoolFile::open_in(putter, object).await?,
            Home::Other(fs) => PoolFile::open(fs, object).await?,
            Home::Snapshot(fs, hold) => PoolFile::open_in_snapshot(fs, hold, object).await?,
        });
        let name = Some(own_name(&source.dataset, path).to_vec());
        Ok(Found { opened, name, is_content: path.ends_with(b"/.") })
    }
}
