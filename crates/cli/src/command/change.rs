//! What `cp` into a pool, `mkdir` and `rm` have in common: a file system opened to change it, and those two.

use cenote_dataset::ObjectId;
use cenote_dataset::engine::Engine;
use cenote_fs::write::{NewFile, NewKind};
use cenote_fs::{FsOptions, FsWriter, LastLink};
use cenote_inspect::put::{PutOptions, Putter};
use clap::Args;
use rustix::process::{getegid, geteuid};

use crate::command::cp::Losses;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, Target, dataset, file_error, interrupted};

/// `cenote mkdir`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote mkdir -p tank/home:/projects/new")]
pub struct Mkdir {
    /// Folders on the way too; no error if it is there
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_name = "TARGET")]
    pub targets: Vec<String>,
}

/// `cenote rm`
#[derive(Debug, Args)]
#[command(after_help = "Snapshots keep what they have.\n\nExample: cenote rm -r tank/home:/projects/old")]
pub struct Rm {
    /// Folders with all that is in them
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_name = "TARGET")]
    pub targets: Vec<String>,
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
    let fs_options = FsOptions::of(&mos, &found).await?;
    let open = engine.dataset(name).await?;
    let fs = FsWriter::open(open.live().clone(), fs_options).await?;
    let told = losses.clone();
    let putter = Putter::new(engine, name, fs, options, move |loss| told.add(loss));
    putter.clean_up().await?;
    Ok(putter)
}

/// Does `work`; an interrupt lets what is under way come to its end. Whether there was one.
pub async fn until_interrupted<T>(
    putter: &Putter,
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<(T, bool), CliError> {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased; // interrupts are ours before the first file is made
        () = interrupted() => {
            putter.stop();
            work.await.map(|done| (done, true))
        }
        done = work.as_mut() => done.map(|done| (done, false)),
    }
}

/// The folder that holds a target, and its name there.
pub async fn parent_of<'t>(putter: &Putter, target: &'t Target) -> Result<(ObjectId, &'t [u8]), CliError> {
    let path = target.path_or_root().trim_end_matches('/');
    let (parent, name) =
        path.rsplit_once('/').filter(|(_, name)| !["", ".", ".."].contains(name)).ok_or_else(|| {
            CliError::Usage(format!(
                "{}:{}: name something in the file system",
                target.dataset,
                target.path_or_root()
            ))
        })?;
    Ok((folder(putter, parent).await?, name.as_bytes()))
}

async fn folder(putter: &Putter, path: &str) -> Result<ObjectId, CliError> {
    let view = putter.fs().view();
    match view.resolve(path.as_bytes(), LastLink::Follow).await {
        Ok(object) => Ok(object),
        Err(error) => Err(file_error(&view, path, error).await),
    }
}

/// Opens the file system of each target to change it, and works there.
async fn on_each(
    session: &Session,
    targets: &[String],
    work: impl AsyncFn(&Putter, &Target) -> Result<(), CliError>,
) -> Result<Outcome, CliError> {
    let targets: Vec<Target> =
        targets.iter().map(|typed| typed.parse()).collect::<Result<_, _>>().map_err(CliError::Usage)?;
    let open = async |engine: &Engine, target: &Target| {
        let putter = putter(engine, &target.dataset, (false, true), &Losses::default()).await?;
        work(&putter, target).await
    };
    session.change_each(&targets, Target::pool, open).await
}

impl Mkdir {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        on_each(session, &self.targets, async |putter, target| match self.parents {
            true => make_all(putter, target.path_or_root()).await,
            false => {
                let (dir, name) = parent_of(putter, target).await?;
                make(putter, dir, name).await.map(drop)
            }
        })
        .await
    }
}

async fn make(putter: &Putter, dir: ObjectId, name: &[u8]) -> Result<ObjectId, CliError> {
    let (uid, gid) = (geteuid().as_raw().into(), getegid().as_raw().into());
    let new = NewFile { kind: NewKind::Directory, mode: 0o755, umask: 0, uid, gid };
    Ok(putter.change(async |change| putter.fs().create(change, dir, name, &new).await).await?)
}

async fn make_all(putter: &Putter, path: &str) -> Result<(), CliError> {
    let mut dir = putter.fs().root();
    for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
        dir = match putter.fs().lookup(dir, name.as_bytes()).await? {
            Some(entry) => entry.object,
            None => make(putter, dir, name.as_bytes()).await?,
        };
    }
    Ok(())
}

impl Rm {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        on_each(session, &self.targets, async |putter, target| {
            let (dir, name) = parent_of(putter, target).await?;
            let work = async { Ok(putter.remove(dir, name, self.recursive).await?) };
            match until_interrupted(putter, work).await? {
                ((), false) => Ok(()),
                ((), true) => Err(CliError::Stopped(format!("interrupted; {target} is removed in part"))),
            }
        })
        .await
    }
}
