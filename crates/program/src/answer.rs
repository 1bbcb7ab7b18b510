//! The task's answers to a program's calls: lookups, lists, and changes.
//!
//! Idea: the MOS is opened again for each call, because an earlier one may have changed it.
//!
//! Source: OpenZFS `zcp.c` (`zcp_exists`, `zcp_dataset_hold_error`), `zcp_iter.c`, `zcp_synctask.c`.

use cenote_dataset::{Dataset, DatasetKind, Property, Value};
use cenote_engine::SyncContext;
use cenote_format::props::{AppliesTo, ZFS_PROPS};
use cenote_object::DatasetError;
use cenote_tasks::{InUse, Step};

use crate::calls::{Call, Change, Given, Listing, Raised, Reply};
use crate::{Program, errno, property};

/// Kept messages of `zfs.debug`.
const DEBUG_MAX: usize = 1000;
/// `ZAP_MAXNAMELEN`, `ZAP_MAXVALUELEN`.
const MAX_PROPERTY_BYTES: usize = 256;
const MAX_VALUE_BYTES: usize = 8192;

/// Why a call has no reply.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It raises an error.
    Lua(Raised),
    /// The task fails.
    Task(DatasetError),
}

pub(crate) type Answered<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn error(text: String) -> Fault {
        Fault::Lua(Raised::Error(text))
    }

    /// An error met at a dataset while only reading.
    pub(crate) fn reading(name: &str) -> impl Fn(DatasetError) -> Fault {
        move |error| match errno::of(&error) {
            Some(number) => {
                Fault::error(format!("unexpected error {number} while accessing dataset '{name}'"))
            }
            None => Fault::error(format!("I/O error while accessing dataset '{name}'")),
        }
    }
}

/// Answers a call.
pub(crate) async fn answer(
    context: &mut SyncContext,
    program: &Program,
    call: &Call,
    debug: &mut Vec<String>,
) -> Answered<Reply> {
    let pool = program.pool.as_str();
    match call {
        Call::Debug(text) => {
            if debug.len() < DEBUG_MAX {
                debug.push(format!("txg {} ZCP: {text}", context.txg()));
            }
            Ok(Reply::Values(Vec::new()))
        }
        Call::Exists(name) => exists(context, pool, name).await,
        Call::Property { dataset, property } => {
            let dataset = open(context, pool, dataset).await?;
            property::get(context, &dataset, property).await.map(Reply::Values)
        }
        Call::List(listing, name) => list(&open(context, pool, name).await?, *listing).await,
        Call::Change { change, is_made } => self::change(context, pool, change, *is_made).await,
    }
}

fn is_in(pool: &str, name: &str) -> bool {
    name.split(['/', '@', '#']).next() == Some(pool)
}

/// Opens a call's first argument, a dataset.
pub(crate) async fn open(context: &SyncContext, pool: &str, name: &str) -> Answered<Dataset> {
    if !is_in(pool, name) {
        let why = format!("dataset '{name}' is not in the target pool '{pool}'");
        return Err(Fault::Lua(Raised::Argument(why)));
    }
    let reading = Fault::reading(name);
    match context.mos().await.map_err(&reading)?.dataset(name).await {
        Err(DatasetError::NoDataset { .. } | DatasetError::BadName { .. }) => {
            Err(Fault::Lua(Raised::Argument(format!("no such dataset '{name}'"))))
        }
        found => found.map_err(reading),
    }
}

async fn exists(context: &SyncContext, pool: &str, name: &str) -> Answered<Reply> {
    if !is_in(pool, name) {
        return Err(Fault::error(format!("dataset '{name}' is not in the target pool")));
    }
    let reading = Fault::reading(name);
    let exists = match context.mos().await.map_err(&reading)?.dataset(name).await {
        Err(DatasetError::NoDataset { .. } | DatasetError::BadName { .. }) => false,
        found => found.map(|_| true).map_err(reading)?,
    };
    Ok(Reply::Values(vec![Given::Boolean(exists)]))
}

async fn list(dataset: &Dataset, listing: Listing) -> Answered<Reply> {
    let (name, reading) = (dataset.name(), Fault::reading(dataset.name()));
    let refused = match (listing, dataset.is_snapshot()) {
        (Listing::Children | Listing::Snapshots, true) => "argument {} cannot be a snapshot",
        (Listing::Bookmarks, true) => "{} is a snapshot",
        (Listing::Clones | Listing::Holds, false) => "{} is not a snapshot",
        _ => "",
    };
    if !refused.is_empty() {
        return Err(Fault::Lua(Raised::Argument(refused.replace("{}", name))));
    }
    let names = |all: Vec<Dataset>| {
        let row = |dataset: &Dataset| vec![Given::Text(dataset.name().into())];
        Reply::Rows(all.iter().map(row).collect())
    };
    Ok(match listing {
        Listing::Children => names(dataset.children().await.map_err(reading)?),
        Listing::Snapshots => names(dataset.snapshots().await.map_err(reading)?),
        Listing::Clones => names(dataset.clones().await.map_err(reading)?),
        Listing::Bookmarks => {
            let marks = dataset.bookmarks().await.map_err(reading)?;
            Reply::Rows(marks.into_iter().map(|mark| vec![Given::Text(mark.name)]).collect())
        }
        Listing::Holds => {
            let holds = dataset.holds().await.map_err(reading)?;
            let row = |(tag, time)| vec![Given::Text(tag), property::number(time)];
            Reply::Rows(holds.into_iter().map(row).collect())
        }
        Listing::UserProperties => {
            let all = dataset.properties_of(&|name| name.contains(':')).await.map_err(reading)?;
            let row = |property: Property| {
                let value = Given::Text(property.literal());
                vec![Given::Text(property.name), value, property::source(dataset, &property.source)]
            };
            Reply::Rows(all.into_iter().map(row).collect())
        }
        Listing::SystemProperties => {
            let kind = dataset.kind().await.map_err(&reading)?;
            let is_clone = dataset.origin().await.map_err(reading)?.is_some();
            let applies = match kind {
                DatasetKind::Filesystem => AppliesTo::FS,
                DatasetKind::Volume => AppliesTo::VOL,
                DatasetKind::Snapshot => AppliesTo::SNAP,
            };
            let all = ZFS_PROPS.iter().filter(|prop| prop.visible && prop.applies.overlaps(applies));
            let all = all.filter(|prop| prop.name != "mounted" && (prop.name != "origin" || is_clone));
            Reply::Values(vec![Given::Names(all.map(|prop| prop.name.to_owned()).collect())])
        }
    })
}

async fn change(context: &mut SyncContext, pool: &str, change: &Change, is_made: bool) -> Answered<Reply> {
    let step = match step(context, pool, change).await? {
        Ok(step) => step,
        Err(number) => return Ok(Reply::errno(number)),
    };
    let before = context.changes();
    let done = if is_made { step.make(context).await } else { step.check(context).await };
    let error = match done {
        Ok(()) => return Ok(Reply::errno(0)),
        Err(error @ DatasetError::NextTxg { .. }) => return Err(Fault::Task(error)),
        Err(error) => error,
    };
    match errno::of(&error) {
        Some(_) => {
            let (number, details) = explained(context, &step, &error).await.map_err(Fault::Task)?;
            let mut values = vec![Given::Number(number.into())];
            values.extend((!details.is_empty()).then_some(Given::Names(details)));
            Ok(Reply::Values(values))
        }
        // Half a step: the txg must not be written.
        None if context.changes() != before => Err(Fault::Task(error)),
        None => Err(Fault::error(format!("I/O error while accessing dataset '{}'", subject(change)))),
    }
}

/// The number of a refusal, and names in the way.
async fn explained(
    context: &SyncContext,
    step: &Step,
    error: &DatasetError,
) -> Result<(i32, Vec<String>), DatasetError> {
    let number = errno::of(error).unwrap_or(libc::EINVAL);
    let mos = context.mos().await?;
    Ok(match (step, error) {
        (Step::Promote(_), DatasetError::DatasetExists { .. }) => (number, step.conflicts(context).await?),
        (Step::Destroy(name), DatasetError::Busy { .. }) => {
            let has_children = !mos.dataset(name).await?.children().await?.is_empty();
            (if has_children { libc::EEXIST } else { number }, Vec::new())
        }
        (Step::DestroySnapshot(name, _), DatasetError::Busy { .. }) => {
            let has_clones = mos.dataset(name).await?.phys().num_children > 1;
            (if has_clones { libc::EEXIST } else { number }, Vec::new())
        }
        _ => (number, Vec::new()),
    })
}

/// The step that a change stands for, or the error number of one that can't be made.
async fn step(context: &SyncContext, pool: &str, change: &Change) -> Answered<Result<Step, i32>> {
    if let Change::Snapshot(name) = change
        && !name.contains('@')
    {
        return Ok(Err(libc::EINVAL));
    }
    if !is_in(pool, subject(change)) {
        return Ok(Err(libc::EXDEV));
    }
    Ok(match change {
        Change::Snapshot(name) => Ok(Step::Snapshot(name.clone())),
        Change::Destroy { name, defer } if name.contains('@') => {
            let in_use = if *defer == Some(true) { InUse::Defer } else { InUse::Refuse };
            // The task skips missing snapshots.
            find(context, name).await?.map(|_| Step::DestroySnapshot(name.clone(), in_use))
        }
        Change::Destroy { name, defer: Some(_) } => {
            let why = format!("'deferred' kwarg only supported for snapshots: {name}");
            return Err(Fault::error(why));
        }
        Change::Destroy { name, defer: None } => Ok(Step::Destroy(name.clone())),
        Change::Promote(clone) => Ok(Step::Promote(clone.clone())),
        Change::Rollback(name) if name.contains('@') => Err(libc::EINVAL),
        Change::Rollback(name) => match find(context, name).await? {
            Ok(head) => {
                let snapshots = head.snapshots().await.map_err(Fault::reading(name))?;
                let last = snapshots.last().map(|last| Step::Rollback(last.name().into()));
                last.ok_or(libc::ESRCH)
            }
            Err(number) => Err(number),
        },
        Change::Clone(_, name) if !is_in(pool, name) => Err(libc::EXDEV),
        Change::Clone(snapshot, name) => {
            let above = name.rsplit_once('/').map_or(pool, |(above, _)| above);
            find(context, above).await?.map(|_| Step::Clone(snapshot.clone(), name.clone()))
        }
        Change::RenameSnapshot { dataset, old, new } => {
            Ok(Step::RenameSnapshot(format!("{dataset}@{old}"), format!("{dataset}@{new}")))
        }
        Change::Bookmark(source, mark) => Ok(Step::Bookmark(source.clone(), mark.clone())),
        Change::SetProp { property, .. } if !property.contains(':') => Err(libc::EINVAL),
        Change::SetProp { property, .. } if property.len() >= MAX_PROPERTY_BYTES => Err(libc::ENAMETOOLONG),
        Change::SetProp { value, .. } if value.len() >= MAX_VALUE_BYTES => Err(libc::E2BIG),
        Change::SetProp { dataset, property, value } => {
            Ok(Step::Set(dataset.clone(), property.clone(), Value::Text(value.clone())))
        }
        Change::Inherit { dataset, property } => Ok(Step::Inherit(dataset.clone(), property.clone())),
    })
}

async fn find(context: &SyncContext, name: &str) -> Answered<Result<Dataset, i32>> {
    let reading = Fault::reading(name);
    match context.mos().await.map_err(&reading)?.dataset(name).await {
        Ok(found) => Ok(Ok(found)),
        Err(error) => errno::of(&error).map(Err).ok_or_else(|| reading(error)),
    }
}

/// The dataset that a change is about.
fn subject(change: &Change) -> &str {
    match change {
        Change::Snapshot(name)
        | Change::Destroy { name, .. }
        | Change::Promote(name)
        | Change::Rollback(name)
        | Change::Clone(name, _)
        | Change::Bookmark(name, _) => name,
        Change::RenameSnapshot { dataset, .. }
        | Change::SetProp { dataset, .. }
        | Change::Inherit { dataset, .. } => dataset,
    }
}
