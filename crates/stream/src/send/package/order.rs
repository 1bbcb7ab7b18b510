//! The streams of a package, in order.
//!
//! Idea: each file system and volume has one stream for each wanted snapshot, an increment from the one
//! before. The first is full, or an increment from the receiver's snapshot or the origin. A clone comes after
//! its origin, a child after its parent.
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`dump_filesystems`, `dump_filesystem`, `dump_snapshot`).

use std::collections::HashSet;

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_format::units::Guid;

use super::super::error::{Result, SendError};
use super::super::request::{Notice, Replica, SendRequest, Step};
use super::super::source::Since;
use super::Family;

/// The order of streams.
pub(in super::super) struct Order;

/// The snapshots to send of a file system or volume.
struct Wanted<'a> {
    from: Option<&'a str>,
    to: &'a str,
    /// All snapshots between, too.
    between: bool,
    /// At least these of those between: they have clones.
    origins: &'a HashSet<Guid>,
    exclude: &'a [String],
}

impl Order {
    #[boxed]
    pub(in super::super) async fn of_one(
        request: &SendRequest,
        from: Option<&str>,
        notices: &mut Vec<Notice>,
    ) -> Result<Vec<Step>> {
        let to = request.dataset.snapshot_name().ok_or_else(|| missing(request))?;
        let (origins, exclude) = (HashSet::new(), Vec::new());
        let wanted = Wanted { from, to, between: true, origins: &origins, exclude: &exclude };
        let dataset = request.dataset.dir().head().await?;
        let mut steps = Vec::new();
        streams(&dataset, &wanted, &mut steps, notices).await?;
        Ok(steps)
    }

    #[boxed]
    pub(in super::super) async fn of_family(
        request: &SendRequest,
        replica: &Replica,
        family: Family,
        notices: &mut Vec<Notice>,
    ) -> Result<Vec<Step>> {
        let to = request.dataset.snapshot_name().ok_or_else(|| missing(request))?;
        let origins = family.members.iter().filter_map(|member| member.origin).collect();
        let mut steps = Vec::new();
        let mut sent = vec![false; family.members.len()];
        loop {
            let (mut has_waiting, mut has_sent) = (false, false);
            for (at, member) in family.members.iter().enumerate() {
                if sent.get(at).copied().unwrap_or(true) {
                    continue;
                }
                let is_waiting = |guid: Guid| {
                    let owner = family.owner(guid).map(|(owner, _)| owner);
                    owner.is_some_and(|owner| !sent.get(owner).copied().unwrap_or(true))
                };
                let below = Some(member.parent_from).filter(|guid| guid.0 != 0);
                if below.is_some_and(is_waiting) || member.origin.is_some_and(is_waiting) {
                    has_waiting = true;
                    continue;
                }
                let has_from = |from: &&str| member.snapshots.iter().any(|(name, _)| name == from);
                let wanted = Wanted {
                    from: replica.from.as_deref().filter(has_from),
                    to,
                    between: replica.between || replica.from.is_none(),
                    origins: &origins,
                    exclude: &replica.exclude,
                };
                streams(&member.dataset, &wanted, &mut steps, notices).await?;
                if let Some(sent) = sent.get_mut(at) {
                    *sent = true;
                }
                has_sent = true;
            }
            if !has_waiting {
                return Ok(steps);
            }
            if !has_sent {
                // Only a corrupt pool has clones of each other.
                return Err(missing(request));
            }
        }
    }
}

async fn streams(
    dataset: &Dataset,
    wanted: &Wanted<'_>,
    steps: &mut Vec<Step>,
    notices: &mut Vec<Notice>,
) -> Result<()> {
    let (mut before, mut seen_from, mut seen_to) = (None, wanted.from.is_none(), false);
    for snapshot in dataset.snapshots().await? {
        let name = snapshot.snapshot_name().unwrap_or_default();
        if !seen_from && wanted.from == Some(name) {
            seen_from = true;
            before = Some(snapshot);
            continue;
        }
        if seen_to || !seen_from {
            continue;
        }
        let is_to = name == wanted.to;
        seen_to = is_to;
        let is_left_out = !wanted.between && !is_to && !wanted.origins.contains(&snapshot.guid());
        if is_left_out || is_excluded(snapshot.name(), wanted.exclude) {
            continue;
        }
        let since = match before.take() {
            Some(before) => Since::Snapshot(before),
            None => dataset.origin().await?.map_or(Since::Nothing, Since::Snapshot),
        };
        steps.push(Step { dataset: snapshot.clone(), since });
        before = Some(snapshot);
    }
    let (name, snapshot) = (dataset.name().to_owned(), wanted.to.to_owned());
    if let Some(from) = wanted.from.map(str::to_owned) {
        match (seen_from, seen_to) {
            (false, _) => notices.push(Notice::NoSource { dataset: name, snapshot, from }),
            (true, false) => notices.push(Notice::NotEarlier { dataset: name, snapshot, from }),
            (true, true) => {}
        }
    }
    Ok(())
}

/// Whether `exclude` contains the name or a name above it.
pub(super) fn is_excluded(name: &str, exclude: &[String]) -> bool {
    let is_below = |rest: &str| rest.is_empty() || rest.starts_with(['/', '@']);
    exclude.iter().any(|excluded| name.strip_prefix(excluded.as_str()).is_some_and(is_below))
}

fn missing(request: &SendRequest) -> SendError {
    let name = request.dataset.name().to_owned();
    SendError::Missing { missing: name.clone(), name }
}
