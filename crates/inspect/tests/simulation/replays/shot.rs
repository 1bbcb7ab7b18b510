//! The visible state of a file system at one moment, except times.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_format::units::ObjectId;
use cenote_fs::acl::Ace;
use cenote_fs::attr::pflags;
use cenote_fs::{FileKind, Filesystem, Result, Timestamp};

/// All files with names.
pub struct Shot {
    pub files: BTreeMap<ObjectId, Arc<Seen>>,
}

/// A file. Names are logged in order, the state of each file by itself.
#[derive(PartialEq)]
pub struct Seen {
    pub place: Place,
    pub state: State,
}

#[derive(Debug, PartialEq)]
pub struct Place {
    pub kind: FileKind,
    generation: u64,
    crtime: Timestamp,
    links: u64,
    parent: ObjectId,
    pub names: BTreeMap<Bytes, ObjectId>,
}

#[derive(PartialEq)]
pub struct State {
    mode: u32,
    owner: (u64, u64),
    flags: u64,
    project: u64,
    rdev: u64,
    generation: u64,
    xattrs: BTreeMap<Bytes, Bytes>,
    acl: Vec<Ace>,
    content: Vec<u8>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let State { mode, owner, flags, project, xattrs, acl, content, .. } = self;
        let values: Vec<_> = xattrs
            .iter()
            .map(|(name, v)| (name, v.len(), v.iter().map(|b| u64::from(*b)).sum::<u64>()))
            .collect();
        let sum = content
            .iter()
            .zip(1..)
            .map(|(byte, at): (_, u64)| u64::from(*byte) * at)
            .fold(0, u64::wrapping_add);
        write!(f, "mode {mode:o} owner {owner:?} flags {flags:x} project {project} xattrs {values:?} ")?;
        write!(f, "acl {acl:?} {} bytes, sum {sum:x}", content.len())
    }
}

impl Shot {
    /// A shot of all files; files that equal `before` share memory with it.
    pub async fn of(fs: &Filesystem, before: Option<&Shot>) -> Result<Shot> {
        let mut files = BTreeMap::new();
        let mut left = vec![fs.root()];
        while let Some(id) = left.pop() {
            if files.contains_key(&id) {
                continue;
            }
            let seen = see(fs, id).await?;
            left.extend(seen.place.names.values().copied());
            let same = before.and_then(|shot| shot.files.get(&id)).filter(|known| ***known == seen);
            files.insert(id, same.cloned().unwrap_or_else(|| Arc::new(seen)));
        }
        Ok(Shot { files })
    }

    /// The difference to the names of another shot; `None` if equal.
    pub fn names_differ(&self, other: &Shot) -> Option<String> {
        let (ours, theirs) = (self.files.keys(), other.files.keys());
        if ours.clone().ne(theirs.clone()) {
            return Some(format!(
                "objects {:?}, not {:?}",
                ours.collect::<Vec<_>>(),
                theirs.collect::<Vec<_>>()
            ));
        }
        let pairs = self.files.iter().zip(other.files.values());
        let (id, (ours, theirs)) = pairs
            .map(|((id, ours), theirs)| (id, (&ours.place, &theirs.place)))
            .find(|(_, (ours, theirs))| ours != theirs)?;
        Some(format!("object {id}: {ours:?}, not {theirs:?}"))
    }
}

async fn see(fs: &Filesystem, id: ObjectId) -> Result<Seen> {
    let attr = fs.attr(id).await?;
    let mut names = BTreeMap::new();
    let mut content = Vec::new();
    match attr.kind() {
        FileKind::Directory => {
            names.extend(fs.list(id).await?.into_iter().map(|entry| (entry.name, entry.object)));
            assert_eq!(attr.size, names.len() as u64 + 2, "object {id}");
        }
        FileKind::Symlink => content = fs.read_link(id).await?,
        _ => content = fs.open_file(id).await?.read(0, attr.size).await?.to_vec(),
    }
    let xattrs = fs.xattrs(id).await?;
    let place = Place {
        kind: attr.kind(),
        generation: attr.generation,
        crtime: attr.crtime,
        links: attr.links,
        parent: attr.parent,
        names,
    };
    let state = State {
        mode: attr.mode,
        owner: (attr.uid, attr.gid),
        // Set by any change, and by a replay.
        flags: attr.flags & !pflags::AV_MODIFIED,
        project: attr.project,
        rdev: attr.rdev,
        generation: attr.generation,
        xattrs: xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect(),
        acl: fs.acl(id).await?,
        content,
    };
    Ok(Seen { place, state })
}
