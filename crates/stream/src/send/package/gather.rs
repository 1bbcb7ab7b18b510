//! A package's description of file systems and volumes: snapshots, properties, holds, origins.
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`send_iterate_fs`, `send_iterate_snap`).

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Dir};
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::units::{Guid, ObjectId, Txg};
use cenote_object::Zap;
use cenote_object::trail::Trail;

use super::super::error::{Result, SendError};
use super::super::request::{Extent, Notice, SendRequest};
use super::order::is_excluded;
use super::props::properties;

/// Properties that a dataset received in the clear can't have.
const OF_ENCRYPTION: [&str; 4] = ["encryption", "keyformat", "keylocation", "pbkdf2iters"];

/// File systems and volumes, parents before children.
#[derive(Debug, Default)]
pub(in super::super) struct Family {
    pub(super) members: Vec<Member>,
}

/// A file system or volume.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) dataset: Dataset,
    /// The snapshot that identifies its parent to a receiver.
    pub(super) parent_from: Guid,
    pub(super) origin: Option<Guid>,
    /// Its snapshots, oldest first.
    pub(super) snapshots: Vec<(String, Guid)>,
    list: Nvlist,
}

impl Family {
    pub(in super::super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The list of a package, `fss`.
    pub(in super::super) fn list(&self) -> Nvlist {
        let mut list = Nvlist::new();
        for member in &self.members {
            list.insert(&format!("{:#x}", member.dataset.guid().0), NvValue::Nvlist(member.list.clone()));
        }
        list
    }

    /// The member with this snapshot, and the snapshot's name.
    pub(super) fn owner(&self, snapshot: Guid) -> Option<(usize, &str)> {
        self.members.iter().enumerate().find_map(|(at, member)| {
            let (name, _) = member.snapshots.iter().find(|(_, guid)| *guid == snapshot)?;
            Some((at, name.as_str()))
        })
    }
}

/// The scope of each member.
struct Wanted<'a> {
    request: &'a SendRequest,
    from: Option<&'a str>,
    to: &'a str,
    is_recursive: bool,
    /// All snapshots between the two are included.
    all_between: bool,
    skip_missing: bool,
}

/// State passed down from a directory.
#[derive(Clone, Copy, Default)]
struct Above {
    from_guid: Guid,
    /// The txg of the last snapshot, here or above.
    to_txg: Option<Txg>,
}

/// Gathers a package's description.
///
/// # Errors
/// A dataset lacks the snapshot; properties of an encrypted dataset would be sent in the clear.
#[boxed]
pub(in super::super) async fn gather(request: &SendRequest, notices: &mut Vec<Notice>) -> Result<Family> {
    let (from, all_between, replica) = match &request.extent {
        Extent::One(_) => (None, false, None),
        Extent::All(from) => (from.as_deref(), true, None),
        Extent::Replica(replica) => (replica.from.as_deref(), true, Some(replica)),
    };
    let to = request.dataset.snapshot_name().unwrap_or_default();
    let (is_recursive, skip_missing) = (replica.is_some(), replica.is_some_and(|r| r.skip_missing));
    let wanted = Wanted { request, from, to, is_recursive, all_between, skip_missing };
    let root = request.dataset.dir().head().await?;
    let mut trail = Trail::new(root.mos().objset(), "the datasets below");
    let (mut family, mut pending) = (Family::default(), vec![(root, Above::default())]);
    while let Some((dataset, above)) = pending.pop() {
        trail.enter(ObjectId(dataset.id().0))?;
        if replica.is_some_and(|replica| is_excluded(dataset.name(), &replica.exclude)) {
            continue;
        }
        let Some((member, above)) = member(&wanted, &dataset, above, notices).await? else { continue };
        family.members.push(member);
        if is_recursive {
            let children = children(dataset.dir()).await?;
            pending.extend(children.into_iter().rev().map(|child| (child, above)));
        }
    }
    Ok(family)
}

/// Children in the order of the table's hashes, as the module lists them.
async fn children(dir: &Dir) -> Result<Vec<Dataset>> {
    let mut children = dir.children().await?;
    if let table @ 1.. = dir.phys().child_dirs_zap.0 {
        let table = Zap::open_id(dir.mos().objset(), ObjectId(table)).await?;
        children.sort_by_key(|(name, _)| table.hash(name.as_bytes()));
    }
    let mut heads = Vec::with_capacity(children.len());
    for (name, id) in children {
        heads.push(dir.open_child(&name, id).await?.head().await?);
    }
    Ok(heads)
}

/// One file system or volume, and the state for its children; `None` if left out with all below.
async fn member(
    wanted: &Wanted<'_>,
    dataset: &Dataset,
    above: Above,
    notices: &mut Vec<Notice>,
) -> Result<Option<(Member, Above)>> {
    let request = wanted.request;
    let snapshots = dataset.snapshots().await?;
    let named = |name: &str| snapshots.iter().find(|snapshot| snapshot.snapshot_name() == Some(name));
    let to_txg = named(wanted.to).map(|to| to.creation_txg());
    if to_txg.is_none() {
        let is_younger = above.to_txg.is_some_and(|to| dataset.creation_txg() > to);
        let (name, snapshot) = (dataset.name().to_owned(), wanted.to.to_owned());
        match (is_younger, wanted.skip_missing) {
            (true, _) => notices.push(Notice::Younger { dataset: name, snapshot }),
            (false, true) => notices.push(Notice::Skipped { dataset: name, snapshot }),
            (false, false) => {
                let recursively = if wanted.is_recursive { " recursively" } else { "" };
                return Err(SendError::Missing {
                    name: format!("{}@{}{recursively}", request.dataset.dir().name(), wanted.to),
                    missing: format!("{name}@{snapshot}"),
                });
            }
        }
        return Ok(None);
    }
    let mut list = Nvlist::new();
    list.insert("name", NvValue::String(dataset.name().into()));
    list.insert("parentfromsnap", NvValue::Uint64(above.from_guid.0));
    let origin = dataset.origin().await?.map(|origin| origin.guid());
    if let Some(origin) = origin {
        list.insert("origin", NvValue::Uint64(origin.0));
    }
    let mut props = match request.props || request.backup || wanted.is_recursive {
        true => Some(properties(dataset, request.backup).await?),
        false => None,
    };
    match dataset.dir().encryption().await? {
        None => {}
        Some(encryption) if request.flags.raw && encryption.root == dataset.name() => {
            list.insert("is_encroot", NvValue::Boolean);
        }
        Some(_) if request.flags.raw => {}
        Some(_) if request.in_clear => {
            props.iter_mut().for_each(|props| OF_ENCRYPTION.iter().for_each(|name| _ = props.remove(name)));
            notices.push(Notice::InClear { dataset: dataset.name().to_owned() });
        }
        Some(_) => {
            return Err(SendError::NeedsRaw {
                name: format!("{}@{}", request.dataset.dir().name(), wanted.to),
                encrypted: dataset.name().to_owned(),
            });
        }
    }
    if let Some(props) = props {
        list.insert("props", NvValue::Nvlist(props));
    }
    let limits = Limits { from_txg: wanted.from.and_then(named).map(|from| from.creation_txg()), to_txg };
    let told = told_snapshots(wanted, &snapshots, limits);
    let from_guid = told.parent_from;
    list.insert("snaps", NvValue::Nvlist(guids(&told.known)));
    let (mut props, mut holds) = (Nvlist::new(), Nvlist::new());
    for snapshot in told.detailed {
        let name = snapshot.snapshot_name().unwrap_or_default();
        props.insert(name, NvValue::Nvlist(properties(snapshot, request.backup).await?));
        if request.holds {
            holds.insert(name, NvValue::Nvlist(holds_of(snapshot).await?));
        }
    }
    list.insert("snapprops", NvValue::Nvlist(props));
    if request.holds {
        list.insert("snapholds", NvValue::Nvlist(holds));
    }
    let known = told.known;
    let parent_from = above.from_guid;
    let member = Member { dataset: dataset.clone(), parent_from, origin, snapshots: known, list };
    Ok(Some((member, Above { from_guid, to_txg: to_txg.or(above.to_txg) })))
}

/// Txgs of the first and the last snapshot included.
#[derive(Clone, Copy)]
struct Limits {
    from_txg: Option<Txg>,
    to_txg: Option<Txg>,
}

/// Snapshots in a package's description.
struct Told<'a> {
    /// By name and guid.
    known: Vec<(String, Guid)>,
    /// Snapshots with properties.
    detailed: Vec<&'a Dataset>,
    /// The snapshot that identifies the parent of datasets below.
    parent_from: Guid,
}

fn told_snapshots<'a>(wanted: &Wanted<'_>, snapshots: &'a [Dataset], limits: Limits) -> Told<'a> {
    let mut told = Told { known: Vec::new(), detailed: Vec::new(), parent_from: Guid(0) };
    // Without a first one, all snapshots up to the last are sent.
    let mut seen_from = wanted.from.is_none() && wanted.all_between;
    let mut seen_to = false;
    for snapshot in snapshots {
        let (name, txg) = (snapshot.snapshot_name().unwrap_or_default(), snapshot.creation_txg());
        let (is_from, is_to) = (wanted.from == Some(name), name == wanted.to);
        let is_before = !wanted.is_recursive && limits.from_txg.is_some_and(|from| txg < from);
        let is_other = !wanted.all_between && !is_to;
        if is_before || is_other || limits.to_txg.is_some_and(|to| txg > to) {
            continue;
        }
        told.known.push((name.to_owned(), snapshot.guid()));
        if is_from || (told.parent_from.0 == 0 && is_to) {
            told.parent_from = snapshot.guid();
        }
        if !wanted.is_recursive {
            if !seen_from && is_from {
                seen_from = true;
                continue;
            }
            if (seen_to || !seen_from) && !(is_to && wanted.from.is_none()) {
                continue;
            }
            seen_to |= is_to;
        }
        told.detailed.push(snapshot);
    }
    told
}

fn guids(snapshots: &[(String, Guid)]) -> Nvlist {
    let mut list = Nvlist::new();
    for (name, guid) in snapshots {
        list.insert(name, NvValue::Uint64(guid.0));
    }
    list
}

async fn holds_of(snapshot: &Dataset) -> Result<Nvlist> {
    let mut list = Nvlist::new();
    for (tag, time_s) in snapshot.holds().await? {
        list.insert(&tag, NvValue::Uint64(time_s));
    }
    Ok(list)
}
