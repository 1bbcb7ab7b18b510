//! `mkdir` and `rm`, and what they share with `cp` into a pool: opening a file system for changes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::write::{NewFile, NewKind};
use cenote_fs::{FsError, FsWriter, LastLink};
use cenote_inspect::InspectError;
use cenote_inspect::put::{PutOptions, Putter};
use clap::Args;
use rustix::process::{getegid, geteuid};

use crate::command::cp::Losses;
use crate::outcome::{CliError, Outcome};
use crate::render::escape_terminal;
use crate::session::{Session, Target, TargetParser, dataset, file_error, interrupted, split_path};

/// `cenote mkdir`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote mkdir -p tank/home:/projects/new")]
pub struct Mkdir {
    /// Create missing parents too; an existing folder is no error
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_name = "TARGET", value_parser = TargetParser)]
    pub targets: Vec<Target>,
}

/// `cenote rm`
#[derive(Debug, Args)]
#[command(after_help = "Snapshots are not affected.\n\nExample: cenote rm -r tank/home:/projects/old")]
pub struct Rm {
    /// Remove folders with all their contents
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// Accepted for compatibility: empty folders, which need no option
    #[arg(short = 'd')]
    pub empty_folders: bool,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_name = "TARGET", value_parser = TargetParser)]
    pub targets: Vec<Target>,
}

/// Opens a file system of a pool that is being changed.
pub async fn putter(
    engine: &Engine,
    name: &str,
    (replace, metadata): (bool, bool),
    losses: &Losses,
) -> Result<Putter, CliError> {
    let options =
        PutOptions { replace, metadata, owner: (geteuid().as_raw().into(), getegid().as_raw().into()) };
    let mos = engine.mos().await?;
    let found = dataset(&mos, name).await?;
    if found.property("readonly").await?.is_some_and(|property| property.number() == Some(1)) {
        return Err(CliError::Usage(format!("{name} has the property readonly=on")));
    }
    let told = losses.clone();
    let opened = async {
        let fs = FsWriter::shared(engine, name).await?;
        let putter = Putter::new(engine, name, fs, options, move |loss| told.add(loss));
        putter.clean_up().await?;
        Ok(putter)
    };
    engine.prepare(opened).await
}

/// Runs `work`; after an interrupt, operations under way still complete. Returns whether there was one.
pub async fn until_interrupted<T>(
    putter: &Putter,
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<(T, bool), CliError> {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased; // handle interrupts before the first file is made
        () = interrupted() => {
            putter.stop();
            work.await.map(|done| (done, true))
        }
        done = work.as_mut() => done.map(|done| (done, false)),
    }
}

/// A target's parent folder, and its name there.
pub async fn parent_of<'t>(putter: &Putter, target: &'t Target) -> Result<(ObjectId, &'t [u8]), CliError> {
    let (parent, name) = split_path(target.path_in(&putter.fs().view()).await);
    if [&b""[..], b".", b".."].contains(&name) {
        return Err(CliError::Usage(format!("{target}: name something in the file system")));
    }
    Ok((resolve(putter, parent, LastLink::Follow).await?, name))
}

async fn resolve(putter: &Putter, path: &[u8], last: LastLink) -> Result<ObjectId, CliError> {
    let view = putter.fs().view();
    match view.resolve(path, last).await {
        Ok(object) => Ok(object),
        Err(error) => Err(file_error(&view, path, error).await),
    }
}

/// Opens each target's file system for changes and runs `work` there.
async fn on_each(
    session: &Session,
    targets: &[Target],
    work: impl AsyncFn(&Putter, &Target) -> Result<(), CliError>,
) -> Result<Outcome, CliError> {
    let open = async |engine: &Engine, target: &Target| {
        let putter = putter(engine, &target.dataset, (false, true), &Losses::default()).await?;
        work(&putter, target).await
    };
    session.change_each(targets, Target::pool, open).await
}

impl Mkdir {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        on_each(session, &self.targets, async |putter, target| match self.parents {
            true => make_all(putter, target, target.path_in(&putter.fs().view()).await).await,
            false => {
                let (dir, name) = parent_of(putter, target).await?;
                make(putter, dir, name).await.map(drop).map_err(|error| own_reason(error, dir, name))
            }
        })
        .await
    }
}

async fn make(putter: &Putter, dir: ObjectId, name: &[u8]) -> Result<ObjectId, CliError> {
    let (uid, gid) = (geteuid().as_raw().into(), getegid().as_raw().into());
    let new = NewFile { kind: NewKind::Directory, mode: 0o755, umask: 0, uid, gid };
    let name = name.to_vec();
    let made =
        putter.change(move |fs, change| Box::pin(async move { fs.create(change, dir, &name, &new).await }));
    Ok(made.await?)
}

/// Why a target was refused: its own name and numbers say nothing new after the target.
fn own_reason(error: CliError, object: ObjectId, name: &[u8]) -> CliError {
    match error {
        CliError::Inspect(InspectError::Fs(FsError::Refused { why, object: refused, name: named }))
            if named.as_ref().map_or(refused == object, |named| named.as_bytes() == name) =>
        {
            CliError::Refused(why.to_string())
        }
        error => error,
    }
}

/// Makes the folders of a path that are missing; links to folders are followed, as by `mkdir -p`.
async fn make_all(putter: &Putter, target: &Target, path: &[u8]) -> Result<(), CliError> {
    let mut dir = putter.fs().root();
    let mut end = 0;
    for name in path.split(|&byte| byte == b'/') {
        end += name.len() + 1;
        if name.is_empty() || name == b"." {
            continue;
        }
        dir = match putter.fs().lookup(dir, name).await? {
            None if name != b".." => make(putter, dir, name).await?,
            _ => {
                let so_far = &path[..end - 1];
                let found = resolve(putter, so_far, LastLink::Follow).await?;
                if !putter.fs().view().attr(found).await?.is_dir() {
                    let why = format!("{} is not a folder", escape_terminal(so_far));
                    return Err(CliError::Refused(format!("{target}: {why}")));
                }
                found
            }
        };
    }
    Ok(())
}

impl Rm {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        on_each(session, &self.targets, async |putter, target| {
            let (dir, name) = parent_of(putter, target).await?;
            let path = target.path_in(&putter.fs().view()).await;
            let object = resolve(putter, path, LastLink::Keep).await?;
            let path = putter.fs().view().path_of(object).await?;
            let pool = session.held_by_name(target.pool());
            let mounted = pool.and_then(|pool| {
                pool.mounts.mounted_in(&target.dataset, Path::new(OsStr::from_bytes(&path)))
            });
            if let Some(mounted) = mounted {
                return Err(CliError::Refused(format!("'{mounted}' is mounted there")));
            }
            let work = async {
                let removed = putter.remove(dir, name, self.recursive).await;
                removed.map_err(|error| own_reason(error.into(), object, name))
            };
            match until_interrupted(putter, work).await? {
                ((), false) => Ok(()),
                ((), true) => Err(CliError::Stopped(format!("interrupted; {target} is partly removed"))),
            }
        })
        .await
    }
}
