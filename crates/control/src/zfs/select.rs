//! Selects the datasets that a command concerns: names, types and depth become a sorted list.
//!
//! Source: OpenZFS `zfs_iter.c`: ordered by name, a dataset before its snapshots, snapshots by creation txg.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cenote_dataset::{Bookmark, Dataset, DatasetKind, Mos, Property, Source, Value};
use cenote_format::props::ZFS_PROPS;
use cenote_format::units::{Guid, Txg};
use cenote_fs::LastLink;
use cenote_fuse::mount::table::Table;
use cenote_host::pools::OpenPool;
use cenote_object::DatasetError;
use cenote_stream::token;
use cenote_tasks::unfinished_receive as unfinished;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::owner::OwnerProp;
use crate::error::{ControlError, Outcome};
use crate::session::{Session, dataset};

/// The types selected by `-t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Types {
    filesystems: bool,
    volumes: bool,
    snapshots: bool,
    bookmarks: bool,
}

impl Types {
    /// All types.
    pub const ALL: Types = Types { filesystems: true, volumes: true, snapshots: true, bookmarks: true };
    /// Live datasets only.
    pub const HEADS: Types = Types { filesystems: true, volumes: true, snapshots: false, bookmarks: false };
    const NONE: Types = Types { filesystems: false, volumes: false, snapshots: false, bookmarks: false };

    /// Parses the argument of `-t`.
    pub fn parse(text: &str) -> Result<Types, ControlError> {
        let mut types = Types::NONE;
        for word in text.split(',') {
            match word {
                "filesystem" | "fs" => types.filesystems = true,
                "volume" | "vol" => types.volumes = true,
                "snapshot" | "snap" => types.snapshots = true,
                "bookmark" => types.bookmarks = true,
                "all" => types = Types::ALL,
                other => {
                    return Err(ControlError::Usage(format!(
                        "-t {other}: no such type; use filesystem, volume, snapshot, bookmark or all"
                    )));
                }
            }
        }
        Ok(types)
    }

    /// Whether only snapshots and bookmarks are selected: then those of the named datasets.
    pub fn only_attached(self) -> bool {
        !self.filesystems && !self.volumes
    }

    fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Filesystem => self.filesystems,
            Kind::Volume => self.volumes,
            Kind::Snapshot => self.snapshots,
            Kind::Bookmark => self.bookmarks,
        }
    }
}

/// The type of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Live file system.
    Filesystem,
    /// Live volume.
    Volume,
    /// Snapshot.
    Snapshot,
    /// Bookmark.
    Bookmark,
}

/// A dataset, snapshot or bookmark.
pub struct Item {
    /// Full name.
    pub name: String,
    /// Type.
    pub kind: Kind,
    /// Creation txg.
    pub createtxg: Txg,
    content: Content,
    /// The daemon's pool that contains it.
    held: Option<Arc<OpenPool>>,
}

enum Content {
    Dataset(Dataset),
    Bookmark(Bookmark, Mos),
}

const RESUME_TOKEN: &str = "receive_resume_token";

/// The token of an interrupted receive.
async fn token_of(dataset: &Dataset) -> Result<Option<Property>, ControlError> {
    if dataset.is_snapshot() {
        return Ok(None);
    }
    Ok(unfinished(dataset).await?.map(|state| Property {
        name: RESUME_TOKEN.into(),
        value: Value::Text(token::encode(&state)),
        source: Source::None,
        received: None,
    }))
}

/// Overrides a property with the option of the current mount.
fn as_mounted(property: &mut Property, dataset: &Dataset, pool: &OpenPool) {
    let in_force = pool.mounts.in_force(dataset.id());
    match (&*property.name, &mut property.value, in_force) {
        ("mounted", Value::Number(number), in_force) => *number = in_force.is_some().into(),
        ("mountpoint", Value::Text(path), _) if path.starts_with('/') => {
            if let Some(root) = pool.mounts.root() {
                *path = root.join(path.trim_start_matches('/')).display().to_string();
            }
        }
        (name, Value::Number(number), Some(in_force)) => {
            let other = in_force.iter().find(|(other, value)| *other == name && value != number);
            if let Some((_, value)) = other {
                (*number, property.source) = (*value, Source::Temporary);
            }
        }
        _ => {}
    }
}

impl Item {
    async fn of_dataset(dataset: Dataset, session: &Session) -> Result<Item, ControlError> {
        let kind = match dataset.kind().await? {
            DatasetKind::Filesystem => Kind::Filesystem,
            DatasetKind::Volume => Kind::Volume,
            DatasetKind::Snapshot => Kind::Snapshot,
        };
        let (name, createtxg) = (dataset.name().to_owned(), dataset.creation_txg());
        let held = session.pools().and_then(|pools| pools.by_guid(dataset.mos().pool().tree().guid()));
        Ok(Item { name, kind, createtxg, content: Content::Dataset(dataset), held })
    }

    fn of_bookmark(bookmark: Bookmark, mos: &Mos) -> Item {
        let (name, createtxg) = (bookmark.name.clone(), bookmark.phys.creation_txg);
        Item {
            name,
            kind: Kind::Bookmark,
            createtxg,
            content: Content::Bookmark(bookmark, mos.clone()),
            held: None,
        }
    }

    /// The dataset or snapshot; `None` for a bookmark.
    pub fn dataset(&self) -> Option<&Dataset> {
        match &self.content {
            Content::Dataset(dataset) => Some(dataset),
            Content::Bookmark(..) => None,
        }
    }

    fn pool_guid(&self) -> Guid {
        match &self.content {
            Content::Dataset(dataset) => dataset.mos().pool().tree().guid(),
            Content::Bookmark(_, mos) => mos.pool().tree().guid(),
        }
    }

    /// All its properties, in the order of `zfs get all`.
    pub async fn properties(&self) -> Result<Vec<Property>, ControlError> {
        self.properties_of(&|_| true).await
    }

    /// The properties with these names.
    pub async fn properties_of(
        &self,
        is_wanted: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Vec<Property>, ControlError> {
        match &self.content {
            Content::Dataset(dataset) => {
                let mut all = dataset.properties_of(is_wanted).await?;
                if is_wanted(RESUME_TOKEN)
                    && let Some(token) = token_of(dataset).await?
                {
                    let place = |name: &str| ZFS_PROPS.iter().position(|prop| prop.name == name);
                    let is_after = |property: &Property| place(&property.name) > place(RESUME_TOKEN);
                    let at = all.iter().position(is_after).unwrap_or(all.len());
                    all.insert(at, token);
                }
                if let Some(pool) = self.held.as_deref().filter(|_| self.kind == Kind::Filesystem) {
                    all.iter_mut().for_each(|property| as_mounted(property, dataset, pool));
                }
                Ok(all)
            }
            Content::Bookmark(bookmark, mos) => {
                let mut all = bookmark.properties(mos).await?;
                all.retain(|property| is_wanted(&property.name));
                Ok(all)
            }
        }
    }

    /// Bytes written since an earlier version, named as after `written`: `@SNAPSHOT`, `#BOOKMARK`, or `@` and
    /// a full name, possibly of the origin. `None`: no such version, or not an earlier one.
    pub async fn written_since(&self, since: &str) -> Result<Option<u64>, ControlError> {
        let Some(dataset) = self.dataset() else { return Ok(None) };
        let full = match since.get(1..) {
            Some(full) if full.contains(['@', '#']) => full.to_owned(),
            _ => format!("{}{since}", dataset.dir().name()),
        };
        let found = match full.split_once('#') {
            Some((head, _)) => dataset.mos().dataset(head).await,
            None => dataset.mos().dataset(&full).await,
        };
        let found = match found {
            Err(DatasetError::NoDataset { .. }) => return Ok(None),
            other => other?,
        };
        if !full.contains('#') {
            return Ok(dataset.written_since(&found).await?);
        }
        let marks = found.bookmarks().await?;
        match marks.iter().find(|mark| mark.name == full) {
            Some(mark) => Ok(dataset.written_since_bookmark(&found, &mark.phys).await?),
            None => Ok(None),
        }
    }

    /// One owner's usage or quota. `None` for a volume or bookmark, without usage tracking, or if a key is
    /// missing.
    pub async fn of_owner(&self, wanted: &OwnerProp) -> Result<Option<u64>, ControlError> {
        let Some(dataset) = self.dataset().filter(|_| self.kind != Kind::Volume) else { return Ok(None) };
        match wanted.of(dataset).await {
            Err(error) if error.dataset().is_some_and(DatasetError::is_locked) => Ok(None),
            other => other,
        }
    }
}

/// Orders datasets by name, each before its snapshots, which are ordered by age.
pub fn by_name(a: (&str, Txg), b: (&str, Txg)) -> std::cmp::Ordering {
    fn key((name, createtxg): (&str, Txg)) -> (&str, Option<(Txg, &str)>) {
        match name.split_once('@') {
            Some((dataset, snapshot)) => (dataset, Some((createtxg, snapshot))),
            None => (name, None),
        }
    }
    key(a).cmp(&key(b))
}

/// How far to descend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Scope {
    /// Which types to keep.
    pub types: Types,
    /// Levels below the named datasets; `None` means all.
    pub depth: Option<u32>,
    /// Refuse named datasets of other types, unless what is below them may be of these.
    pub only_types: bool,
}

impl Scope {
    /// Whether such a dataset may be named: one to select, or one whose descendants may be selected.
    fn takes(self, kind: Kind) -> bool {
        let descends = self.depth != Some(0);
        !self.only_types
            || self.types.has(kind)
            || match kind {
                Kind::Filesystem => descends,
                Kind::Volume => descends && (self.types.snapshots || self.types.bookmarks),
                Kind::Snapshot | Kind::Bookmark => false,
            }
    }
}

/// All live datasets below.
impl Default for Scope {
    fn default() -> Scope {
        Scope { types: Types::HEADS, depth: None, only_types: false }
    }
}

/// The result of a selection.
pub struct Selected {
    /// Sorted, without duplicates.
    pub items: Vec<Item>,
    /// `Done`, or the worst problem so far, already reported.
    pub outcome: Outcome,
}

/// Finds the named datasets, or all datasets, and their descendants within `scope`.
pub async fn select(session: &Session, names: &[String], scope: Scope) -> Result<Selected, ControlError> {
    let mut walk = Walk { session, scope, items: Vec::new(), outcome: Outcome::Done };
    if names.is_empty() {
        for found in session.find_pools(&[]).await? {
            match session.open_without_asking(&found).await {
                Ok(mos) => walk.below(mos.root_dataset().await?).await,
                Err(error) => walk.complain(found.name(), &error),
            }
        }
    }
    let mut pools: HashMap<String, Mos> = HashMap::new();
    for name in names {
        let is_path = name.starts_with('/') || name.starts_with("./");
        let name = &match if is_path { of_path(session, name).await } else { Ok(name.clone()) } {
            Ok(name) => name,
            Err(error) if names.len() == 1 => return Err(error),
            Err(error) => {
                walk.complain(name, &error);
                continue;
            }
        };
        let pool = name.split(['/', '@', '#']).next().unwrap_or_default();
        let mos = match pools.get(pool) {
            Some(mos) => mos.clone(),
            None => match session.open_pool_without_asking(pool).await {
                Ok(mos) => pools.entry(pool.to_owned()).or_insert(mos).clone(),
                Err(error) if names.len() == 1 => return Err(error),
                Err(error) => {
                    walk.complain(name, &error.of_dataset(name));
                    continue;
                }
            },
        };
        match named(session, &mos, name).await {
            Ok(item) if !scope.takes(item.kind) => {
                let why = match item.kind {
                    Kind::Snapshot => "snapshot delimiter '@' is not expected here",
                    Kind::Bookmark => "bookmark delimiter '#' is not expected here",
                    Kind::Filesystem | Kind::Volume => "operation not applicable to datasets of this type",
                };
                walk.complain(name, &ControlError::Refused(format!("cannot open '{name}': {why}")));
            }
            Ok(Item { content: Content::Dataset(dataset), kind, .. }) if kind != Kind::Snapshot => {
                walk.below(dataset).await;
            }
            Ok(item) => walk.items.push(item),
            Err(error) => walk.complain(name, &error),
        }
    }
    walk.items.sort_by(|a, b| by_name((&a.name, a.createtxg), (&b.name, b.createtxg)));
    // Several pools may have the same name.
    walk.items.dedup_by(|a, b| a.name == b.name && a.pool_guid() == b.pool_guid());
    Ok(Selected { items: walk.items, outcome: walk.outcome })
}

/// Maps a path to the daemon's file system that contains it. Uses only the mount table and the pool, never
/// the directory; only administrators learn about paths below a mount point.
async fn of_path(session: &Session, typed: &str) -> Result<String, ControlError> {
    let refused = |why: &str| ControlError::NotFound(format!("cannot open '{typed}': {why}"));
    let foreign = || refused("not a file system that the daemon has mounted");
    let path = plain(&session.caller().local(Path::new(typed)));
    let table = Table::read().map_err(ControlError::io("/proc/self/mountinfo"))?;
    let above = table.lines().iter().filter(|line| path.starts_with(&line.dir));
    // Of several mounts on one directory, the last is on top.
    let mount = above.max_by_key(|line| line.dir.components().count());
    let mount = mount.filter(|line| line.fuse_subtype() == Some("zfs")).ok_or_else(foreign)?;
    for pool in session.pools().map(|pools| pools.all()).unwrap_or_default() {
        let mounted = pool.mounts.list().into_iter().find(|(_, dir)| *dir == mount.dir);
        let Some((name, dir)) = mounted else { continue };
        let below = path.strip_prefix(&dir).unwrap_or(Path::new(""));
        if below.as_os_str().is_empty() {
            return Ok(name);
        }
        if !session.caller().may_do_all() {
            return Err(refused("only root may name what is below a mount point"));
        }
        let is_there = async || {
            let head = dataset(&pool.engine.mos().await?, &name).await?;
            let files = session.filesystem(&head).await?;
            Ok::<_, ControlError>(files.resolve(below.as_os_str().as_bytes(), LastLink::Keep).await.is_ok())
        };
        // It may be in a txg not on disk yet.
        if !is_there().await? {
            pool.engine.sync_all().await?;
            if !is_there().await? {
                return Err(refused("no such file or directory"));
            }
        }
        return Ok(name);
    }
    Err(foreign())
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain
}

async fn named(session: &Session, mos: &Mos, name: &str) -> Result<Item, ControlError> {
    let Some((marked, mark)) = name.split_once('#') else {
        return Item::of_dataset(dataset(mos, name).await?, session).await;
    };
    let marked = dataset(mos, marked).await?;
    let name = format!("{}#{mark}", marked.name());
    let bookmarks = marked.bookmarks().await?;
    let bookmark = bookmarks.into_iter().find(|bookmark| bookmark.name == name);
    bookmark.map(|bookmark| Item::of_bookmark(bookmark, mos)).ok_or_else(|| {
        ControlError::NotFound(format!(
            "cannot open '{name}': dataset does not exist\n`zfs list -t bookmark {}` lists all bookmarks",
            marked.name()
        ))
    })
}

/// A tree walk that continues past unreadable datasets.
struct Walk<'a> {
    session: &'a Session,
    scope: Scope,
    items: Vec<Item>,
    outcome: Outcome,
}

impl Walk<'_> {
    fn complain(&mut self, name: &str, error: &ControlError) {
        self.outcome = self.outcome.and(self.session.caller().tell(name, error));
    }

    async fn below(&mut self, dataset: Dataset) {
        let mut pending = vec![(dataset, 0)];
        while let Some((dataset, depth)) = pending.pop() {
            if let Err(error) = self.visit(&dataset, depth).await {
                self.complain(dataset.name(), &error);
            }
            if self.scope.depth.is_some_and(|limit| depth >= limit) {
                continue;
            }
            match dataset.children().await {
                Ok(children) => pending.extend(children.into_iter().map(|child| (child, depth + 1))),
                Err(error) => self.complain(dataset.name(), &error.into()),
            }
        }
    }

    /// Visits a dataset and, within the depth limit, its snapshots, bookmarks and children.
    async fn visit(&mut self, dataset: &Dataset, depth: u32) -> Result<(), ControlError> {
        let types = self.scope.types;
        let item = Item::of_dataset(dataset.clone(), self.session).await?;
        if types.has(item.kind) {
            self.items.push(item);
        }
        if self.scope.depth.is_some_and(|limit| depth >= limit) {
            return Ok(());
        }
        if types.snapshots {
            for snapshot in dataset.snapshots().await? {
                self.items.push(Item::of_dataset(snapshot, self.session).await?);
            }
        }
        if types.bookmarks {
            let bookmarks = dataset.bookmarks().await?;
            self.items.extend(bookmarks.into_iter().map(|mark| Item::of_bookmark(mark, dataset.mos())));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_what_zfs_takes() {
        assert_eq!(Types::parse("fs,volume").unwrap(), Types::HEADS);
        assert_eq!(Types::parse("all").unwrap(), Types::ALL);
        assert!(Types::parse("snap,bookmark").unwrap().only_attached());
        assert!(Types::parse("files").is_err());
    }
}
