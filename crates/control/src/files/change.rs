//! Shared by verbs that change files: opening a file system for changes.

use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::{FsError, FsWriter, LastLink};
use cenote_inspect::InspectError;
use cenote_inspect::put::{PutOptions, Putter};
use rustix::process::{getegid, geteuid};

use super::copy::losses::Losses;
use super::{Target, split_path};
use crate::error::{ControlError, Outcome};
use crate::session::{Session, dataset, file_error};

pub(super) async fn putter(
    engine: &Engine,
    name: &str,
    (replace, metadata): (bool, bool),
    losses: &Losses,
) -> Result<Putter, ControlError> {
    let options =
        PutOptions { replace, metadata, owner: (geteuid().as_raw().into(), getegid().as_raw().into()) };
    let mos = engine.mos().await?;
    let found = dataset(&mos, name).await?;
    if found.property("readonly").await?.is_some_and(|property| property.number() == Some(1)) {
        return Err(ControlError::Usage(format!("{name} has the property readonly=on")));
    }
    let told = losses.clone();
    let opened = async {
        let fs = FsWriter::shared(engine, name).await?;
        let putter = Putter::new(engine, name, fs, options, move |loss| told.add(loss));
        putter.clean_up().await?;
        Ok(putter)
    };
    engine.ownership().prepare(opened).await
}

/// Runs `work`; after an interrupt, operations in progress still complete. Returns whether there was an
/// interrupt.
pub(super) async fn until_interrupted<T>(
    session: &Session,
    putter: &Putter,
    work: impl Future<Output = Result<T, ControlError>>,
) -> Result<(T, bool), ControlError> {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased; // handle interrupts before the first file is made
        () = session.caller().interrupted() => {
            putter.stop();
            work.await.map(|done| (done, true))
        }
        done = work.as_mut() => done.map(|done| (done, false)),
    }
}

/// A target's parent folder, and its name there.
pub(super) async fn parent_of<'t>(
    putter: &Putter,
    target: &'t Target,
) -> Result<(ObjectId, &'t [u8]), ControlError> {
    let (parent, name) = split_path(target.path_in(&putter.fs().view()).await);
    if [&b""[..], b".", b".."].contains(&name) {
        return Err(ControlError::Usage(format!("{target}: name something in the file system")));
    }
    Ok((resolve(putter, parent, LastLink::Follow).await?, name))
}

pub(super) async fn resolve(putter: &Putter, path: &[u8], last: LastLink) -> Result<ObjectId, ControlError> {
    match putter.fs().resolve(path, last).await {
        Ok(object) => Ok(object),
        Err(error) => Err(file_error(&putter.fs().view(), path, error).await),
    }
}

/// Opens each target's file system for changes and runs `work` there.
pub(super) async fn on_each(
    session: &Session,
    targets: &[Target],
    work: impl AsyncFn(&Putter, &Target) -> Result<(), ControlError>,
) -> Result<Outcome, ControlError> {
    let open = async |engine: &Engine, target: &Target| {
        let putter = putter(engine, &target.dataset, (false, true), &Losses::default()).await?;
        work(&putter, target).await
    };
    session.change_each(targets, Target::pool, open).await
}

/// The reason without the object's name and numbers, which repeat the target.
pub(super) fn own_reason(error: ControlError, object: ObjectId, name: &[u8]) -> ControlError {
    match error {
        ControlError::Inspect(InspectError::Fs(FsError::Refused { why, object: refused, name: named }))
            if named.as_ref().map_or(refused == object, |named| named.as_bytes() == name) =>
        {
            ControlError::Refused(why.to_string())
        }
        error => error,
    }
}
