//! `zfs.get_prop`: a property's value and the place where it is set.
//!
//! Source: OpenZFS `zcp_get.c`, including the wording.

use cenote_dataset::{Dataset, Property, Source, Value};
use cenote_engine::SyncContext;
use cenote_format::objset::ObjsetType;
use cenote_format::props::{Prop, PropType};
use cenote_fs::{Counted, Filesystem, SpaceBy};
use cenote_object::Result;

use crate::answer::{Answered, Fault, open};
use crate::calls::Given;

/// Properties that no program can get.
const NOT_SUPPORTED: [&str; 2] = ["mounted", "iscsioptions"];
/// Without a value where nothing is counted.
const COUNTS: [&str; 2] = ["filesystem_count", "snapshot_count"];

/// A property of an owner: kind, unit, and whether it is a quota.
type OwnerProp = (&'static str, SpaceBy, Counted, bool);

/// `zfs_userquota_prop_prefixes`.
const OF_OWNERS: [OwnerProp; 12] = [
    ("userused@", SpaceBy::User, Counted::Bytes, false),
    ("userquota@", SpaceBy::User, Counted::Bytes, true),
    ("groupused@", SpaceBy::Group, Counted::Bytes, false),
    ("groupquota@", SpaceBy::Group, Counted::Bytes, true),
    ("userobjused@", SpaceBy::User, Counted::Objects, false),
    ("userobjquota@", SpaceBy::User, Counted::Objects, true),
    ("groupobjused@", SpaceBy::Group, Counted::Objects, false),
    ("groupobjquota@", SpaceBy::Group, Counted::Objects, true),
    ("projectused@", SpaceBy::Project, Counted::Bytes, false),
    ("projectquota@", SpaceBy::Project, Counted::Bytes, true),
    ("projectobjused@", SpaceBy::Project, Counted::Objects, false),
    ("projectobjquota@", SpaceBy::Project, Counted::Objects, true),
];

/// A number: Lua's are signed, so the largest ones wrap.
pub(crate) fn number(number: u64) -> Given {
    Given::Number(number as i64)
}

/// The place where a value is set; nothing for a fact.
pub(crate) fn source(dataset: &Dataset, source: &Source) -> Given {
    let text = match source {
        Source::None => return Given::Nil,
        Source::Default => "default",
        Source::Local => dataset.name(),
        Source::Inherited(from) => from,
        Source::Received => "$recvd",
        Source::Temporary => "temporary",
    };
    Given::Text(text.into())
}

/// Value and source; nothing if the dataset does not have the property.
pub(crate) async fn get(context: &SyncContext, dataset: &Dataset, name: &str) -> Answered<Vec<Given>> {
    let reading = Fault::reading(dataset.name());
    if let Some(since) = name.strip_prefix("written").filter(|since| since.starts_with(['@', '#'])) {
        return written(context, dataset, since).await;
    }
    if name.contains(':') {
        let found = dataset.property(name).await.map_err(reading)?;
        return Ok(found.map_or_else(Vec::new, |found| {
            vec![Given::Text(found.literal()), source(dataset, &found.source)]
        }));
    }
    if let Some(kind) = OF_OWNERS.iter().find(|(prefix, ..)| name.starts_with(prefix)) {
        return of_owner(dataset, name, kind).await;
    }
    let of_own = own_fact(dataset, name).await.map_err(&reading)?;
    if let Some(value) = of_own {
        return Ok(vec![value, Given::Nil]);
    }
    let Some(prop) = Prop::zfs(name) else {
        return Err(Fault::error(format!("'{name}' is not a valid property")));
    };
    if NOT_SUPPORTED.contains(&name) {
        return Ok(Vec::new());
    }
    let found = dataset.property(name).await.map_err(reading)?;
    let is_counted = |found: &Property| !COUNTS.contains(&name) || found.source != Source::Default;
    Ok(found.filter(is_counted).map_or_else(Vec::new, |found| shown(dataset, prop, found)))
}

fn shown(dataset: &Dataset, prop: &Prop, found: Property) -> Vec<Given> {
    let value = match &found.value {
        Value::Text(text) if prop.name == "clones" => {
            Given::Names(text.split(',').map(str::to_owned).collect())
        }
        Value::Number(value) if !matches!(prop.value, PropType::Index { .. }) => number(*value),
        _ => Given::Text(found.literal()),
    };
    let is_fact = prop.is_read_only() || prop.is_one_time() || prop.name == "version";
    vec![value, if is_fact { Given::Nil } else { source(dataset, &found.source) }]
}

/// Facts that only programs can ask for.
async fn own_fact(dataset: &Dataset, name: &str) -> Result<Option<Given>> {
    Ok(match name {
        "useraccounting" => {
            let objset = dataset.objset_head().await?;
            Some(number(objset.phys().userused_dnode.is_some().into()))
        }
        "prevsnap" => {
            let previous = dataset.previous().await?;
            previous.map(|previous| Given::Text(previous.name().into()))
        }
        "clones" if dataset.is_snapshot() && dataset.clones().await?.is_empty() => {
            Some(Given::Names(Vec::new()))
        }
        _ => None,
    })
}

/// `written@SNAPSHOT` and `written#BOOKMARK`; a snapshot may be a full name.
async fn written(context: &SyncContext, dataset: &Dataset, since: &str) -> Answered<Vec<Given>> {
    let reading = Fault::reading(dataset.name());
    let head = dataset.name().split('@').next().unwrap_or_default();
    let (is_mark, own) = (since.starts_with('#'), &since[1..]);
    let bytes = if is_mark {
        let of = dataset.dir().head().await.map_err(&reading)?;
        let full = if own.contains('#') { own.to_owned() } else { format!("{head}#{own}") };
        let marks = of.bookmarks().await.map_err(&reading)?;
        let mark = marks.iter().find(|mark| mark.name == full);
        let mark = mark.ok_or_else(|| Fault::error(format!("no such dataset '{full}'")))?;
        dataset.written_since_bookmark(&of, &mark.phys).await
    } else {
        let full = if own.contains('@') { own.to_owned() } else { format!("{head}@{own}") };
        let older = open(context, head.split('/').next().unwrap_or_default(), &full).await?;
        dataset.written_since(&older).await
    };
    match bytes.map_err(reading)? {
        Some(bytes) => Ok(vec![number(bytes), Given::Text(dataset.name().into())]),
        None => Err(not_valid(dataset, &format!("written{since}"))),
    }
}

async fn of_owner(dataset: &Dataset, name: &str, kind: &OwnerProp) -> Answered<Vec<Given>> {
    let &(prefix, by, counted, is_quota) = kind;
    let reading = Fault::reading(dataset.name());
    let id = name.strip_prefix(prefix).and_then(|id| id.parse::<u64>().ok());
    let id = id.ok_or_else(|| not_valid(dataset, name))?;
    let objset = dataset.objset().await.map_err(reading)?;
    if objset.phys().objset_type != ObjsetType::Zfs {
        return Err(not_valid(dataset, name));
    }
    let unreadable = |_| {
        let of = dataset.name();
        Fault::error(format!("I/O error while retrieving property '{name}' on dataset '{of}'"))
    };
    let fs = Filesystem::open(objset).await.map_err(unreadable)?;
    let figure = if is_quota {
        fs.own_quota(by, counted, id).await.map_err(unreadable)?
    } else {
        let space = fs.space_of(by, id).await.map_err(unreadable)?;
        if counted == Counted::Bytes { space.used_bytes } else { space.used_objects }
    };
    match figure {
        0 if is_quota => Ok(Vec::new()),
        figure => Ok(vec![number(figure), Given::Text(dataset.name().into())]),
    }
}

fn not_valid(dataset: &Dataset, name: &str) -> Fault {
    let of = dataset.name();
    Fault::error(format!("property '{name}' is not a valid property on dataset '{of}'"))
}
