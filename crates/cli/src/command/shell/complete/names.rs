//! Completion of names on the disks and of property names, for `complete`.

use cenote_dataset::{Dataset, Mos};
use cenote_format::features::SPA_FEATURES;
use cenote_format::props::{Prop, PropType, ZFS_PROPS, ZPOOL_PROPS};
use clap::Arg;

use super::Candidate;
use crate::session::{Session, pool_of};

/// Values of `zfs list -t` and `zfs get -t`.
const TYPES: [&str; 5] = ["filesystem", "volume", "snapshot", "bookmark", "all"];
/// Values of `zfs get -s`.
const SOURCES: [&str; 6] = ["local", "default", "inherited", "temporary", "received", "none"];

/// The kind of name that an operand takes.
enum Kind {
    Pools,
    /// Vdevs of the pool named by this earlier operand.
    Vdevs(usize),
    /// File systems and volumes; with a character, also longer names in which it follows: snapshots or paths.
    Datasets(Option<char>),
    /// Properties of pools or datasets, comma-separated.
    Properties(&'static [Prop]),
    /// `PROPERTY=VALUE`
    Settings(&'static [Prop]),
    /// `PROPERTY=VALUE`, or datasets.
    SettingsOrDatasets,
    /// Local files, or a word that can't be predicted.
    Other,
}

fn kind(verbs: &[&str], operands: usize) -> Kind {
    match (verbs, operands) {
        (["zpool", "get"], 0) => Kind::Properties(&ZPOOL_PROPS),
        (["zpool", "set"], 0) => Kind::Settings(&ZPOOL_PROPS),
        (["zpool", "get"], 2..) => Kind::Vdevs(1),
        (["zpool", "attach" | "detach" | "clear"], 1) => Kind::Vdevs(0),
        (["zpool", "offline" | "online"], 1..) | (["zpool", "split"], 2..) => Kind::Vdevs(0),
        (["zpool", "create" | "labelclear" | "version"], _)
        | (["zpool", "add" | "attach" | "split"], 1..) => Kind::Other,
        (["zpool", ..] | ["verify"], _) | (["rescue"] | ["features"], 0) => Kind::Pools,
        (["zfs", "get"], 0) => Kind::Properties(&ZFS_PROPS),
        (["zfs", "inherit"], 0) => Kind::Properties(&ZFS_PROPS),
        (["zfs", "set"], 0) => Kind::Settings(&ZFS_PROPS),
        (["zfs", "set"], _) => Kind::SettingsOrDatasets,
        (["zfs", "hold" | "release"], 0) | (["zfs", "version"], _) => Kind::Other,
        (["zfs", "hold" | "release" | "holds" | "rollback" | "diff" | "snapshot"], _)
        | (["zfs", "bookmark" | "clone"], 0) => Kind::Datasets(Some('@')),
        (["zfs", ..] | ["scan" | "volume" | "rebalance", ..], _) => Kind::Datasets(None),
        (["ls" | "stat" | "cat" | "cp" | "mkdir" | "rm" | "find" | "du"], _) => Kind::Datasets(Some(':')),
        _ => Kind::Other,
    }
}

/// Candidates for an operand.
pub async fn of_operand(session: &Session, verbs: &[&str], operands: &[&str], last: &str) -> Vec<Candidate> {
    match kind(verbs, operands.len()) {
        Kind::Pools => pools(session).await,
        Kind::Vdevs(pool) => vdevs(session, operands[pool]).await,
        Kind::Datasets(more) => datasets(session, last, more).await,
        Kind::Properties(table) => in_list(last, properties(table).chain(["all"])),
        Kind::Settings(table) => settings(table, last),
        Kind::SettingsOrDatasets => {
            let mut both = settings(&ZFS_PROPS, last);
            both.extend(datasets(session, last, None).await);
            both
        }
        Kind::Other => Vec::new(),
    }
}

/// Candidates for an option's value, chosen by the value name in its help.
pub fn of_option(verbs: &[&str], option: &Arg, last: &str) -> Vec<Candidate> {
    let table: &[Prop] = if verbs.first() == Some(&"zpool") { &ZPOOL_PROPS } else { &ZFS_PROPS };
    let called = option.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    match called {
        "COLUMNS" if verbs.last() == Some(&"list") => in_list(last, properties(table).chain(["name"])),
        // The default lists all columns.
        "COLUMNS" => {
            let all = option.get_default_values().iter().filter_map(|value| value.to_str());
            in_list(last, all.flat_map(|all| all.split(',')))
        }
        "PROPERTY" => in_list(last, properties(table).chain(["name"])),
        // `zpool create -O` sets properties of the root file system.
        "PROPERTY=VALUE" if option.get_short() == Some('O') => settings(&ZFS_PROPS, last),
        "PROPERTY=VALUE" => settings(table, last),
        "TYPES" => in_list(last, TYPES.into_iter()),
        "SOURCES" => in_list(last, SOURCES.into_iter()),
        _ => Vec::new(),
    }
}

/// Candidates for the last element of a comma-separated list.
pub fn in_list<'a>(last: &str, words: impl Iterator<Item = &'a str>) -> Vec<Candidate> {
    let before = last.rfind(',').map_or("", |comma| &last[..=comma]);
    words.map(|word| Candidate::plain(format!("{before}{word}"))).collect()
}

fn properties(table: &[Prop]) -> impl Iterator<Item = &'static str> {
    table.iter().filter(|prop| prop.visible).map(|prop| prop.name)
}

fn settings(table: &'static [Prop], last: &str) -> Vec<Candidate> {
    let settable = || table.iter().filter(|prop| prop.visible && !prop.is_read_only());
    let Some((name, _)) = last.split_once('=') else {
        let features = SPA_FEATURES.iter().map(|feature| format!("feature@{}=", feature.name));
        let features = features.filter(|_| std::ptr::eq(table.as_ptr(), ZPOOL_PROPS.as_ptr()));
        let names = settable().map(|prop| format!("{}=", prop.name));
        return names.chain(features).map(Candidate::plain).collect();
    };
    let value = |value: &str| Candidate::plain(format!("{name}={value}"));
    match settable().find(|prop| prop.name == name).map(|prop| prop.value) {
        Some(PropType::Index { values, .. }) => values.iter().map(|(text, _)| value(text)).collect(),
        _ if name.starts_with("feature@") => vec![value("enabled"), value("disabled")],
        _ => Vec::new(),
    }
}

async fn pools(session: &Session) -> Vec<Candidate> {
    let discovery = session.discover().await;
    discovery.pools.iter().map(|pool| Candidate::plain(pool.name())).collect()
}

async fn vdevs(session: &Session, pool: &str) -> Vec<Candidate> {
    let Ok(found) = session.find_pool(pool).await else { return Vec::new() };
    let (health, mut names) = (found.status(), vec!["all-vdevs", "root-0"]);
    health.root.children.iter().for_each(|top| top.walk(&mut |vdev| names.push(&vdev.name)));
    names.extend(health.spares.iter().chain(&health.l2cache).map(|vdev| &*vdev.name));
    names.into_iter().map(Candidate::plain).collect()
}

/// Pools while a pool name is being typed, then names in that pool.
async fn datasets(session: &Session, last: &str, more: Option<char>) -> Vec<Candidate> {
    if last.contains(':') {
        return Vec::new();
    }
    let found = pools(session).await;
    let opened = match found.iter().any(|pool| pool.word == pool_of(last)) {
        true => match session.find_pool(pool_of(last)).await {
            Ok(found) => session.open_without_asking(&found).await.ok(),
            Err(_) => None,
        },
        false => None,
    };
    let names = match opened {
        Some(mos) => in_pool(&mos, last).await.unwrap_or_default(),
        None => found.into_iter().map(|pool| pool.word).collect(),
    };
    let is_whole = |name: &str| name.contains(['@', '#']);
    let name = |name: String| match more {
        Some(':') => name + ":/",
        Some(more) if !is_whole(&name) => format!("{name}{more}"),
        _ => name,
    };
    names.into_iter().map(|it| Candidate::plain(name(it))).collect()
}

async fn in_pool(mos: &Mos, last: &str) -> Result<Vec<String>, cenote_object::DatasetError> {
    let Some(at) = last.find(['@', '#']) else {
        return Ok(mos
            .reachable_datasets()
            .await?
            .0
            .iter()
            .map(|dataset| dataset.name().to_owned())
            .collect());
    };
    let head = mos.dataset(&last[..at]).await?;
    Ok(match last[at..].starts_with('@') {
        true => head.snapshots().await?.iter().map(|snapshot| Dataset::name(snapshot).to_owned()).collect(),
        false => {
            let bookmarks = head.bookmarks().await?;
            bookmarks.iter().map(|bookmark| format!("{}#{}", head.name(), bookmark.name)).collect()
        }
    })
}
