//! The plan for a dataset: the streams that bring its copy up to date.
//!
//! Idea: names change, guids do not. Each side lists its snapshots and bookmarks; the next stream begins at
//! the newest common guid.
//!
//! ```text
//!   source     @1    #2    @3    @4            copy  @1  @2            the bookmark #2 has the guid of @2
//!                     |---->|---->|                                    2 streams: -i #2 @3, -I @3 @4
//! ```

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Columns of `zfs list -Hp` that [`parse`] reads.
pub const COLUMNS: &str = "name,type,guid,createtxg,creation,userrefs,receive_resume_token";

/// A snapshot or bookmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Full name.
    pub name: String,
    /// Identity, which a bookmark shares with its snapshot.
    pub guid: String,
    /// Order among those of its dataset.
    pub createtxg: u64,
    /// When taken, in seconds since 1970.
    pub created_s: u64,
    /// It is held.
    pub is_held: bool,
}

impl Point {
    /// Whether it is a bookmark.
    pub fn is_bookmark(&self) -> bool {
        self.name.contains('#')
    }

    /// The name after `@` or `#`.
    pub fn own(&self) -> &str {
        self.name.split_once(['@', '#']).map_or("", |(_, own)| own)
    }
}

/// A dataset with its snapshots and bookmarks, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Full name.
    pub name: String,
    /// Snapshots and bookmarks.
    pub points: Vec<Point>,
    /// An interrupted receive.
    pub token: Option<String>,
}

impl Listed {
    /// Its snapshots.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = &Point> {
        self.points.iter().filter(|point| !point.is_bookmark())
    }

    /// The snapshot of that guid.
    pub fn snapshot_of(&self, guid: &str) -> Option<&Point> {
        self.snapshots().find(|point| point.guid == guid)
    }
}

/// Reads `zfs list -Hp -t all -o COLUMNS`. Datasets come in the listing's order.
///
/// # Errors
/// A line that is none of such a listing.
pub fn parse(listing: &str) -> Result<Vec<Listed>, String> {
    let mut all: Vec<Listed> = Vec::new();
    for line in listing.lines() {
        let wrong = || format!("unexpected line in the list of datasets: {line}");
        let [name, kind, guid, createtxg, creation, userrefs, token] =
            line.split('\t').collect::<Vec<_>>()[..]
        else {
            return Err(wrong());
        };
        if !name.contains(['@', '#']) {
            let token = Some(token).filter(|token| *token != "-").map(str::to_owned);
            all.push(Listed { name: name.into(), points: Vec::new(), token });
            continue;
        }
        let head = name.split(['@', '#']).next().unwrap_or_default();
        let number = |text: &str| text.parse().map_err(|_| wrong());
        let (createtxg, created_s) = (number(createtxg)?, number(creation)?);
        let is_held = kind == "snapshot" && !matches!(userrefs, "0" | "-");
        let point = Point { name: name.into(), guid: guid.into(), createtxg, created_s, is_held };
        all.iter_mut().rev().find(|listed| listed.name == head).ok_or_else(wrong)?.points.push(point);
    }
    all.iter_mut()
        .for_each(|listed| listed.points.sort_by_key(|point| (point.createtxg, point.is_bookmark())));
    Ok(all)
}

/// Wishes about a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Send up to the snapshot of this name (after the `@`), not up to the newest.
    pub up_to: Option<String>,
    /// Leave out snapshots before that one.
    pub newest_only: bool,
    /// Roll the copy back to the last common snapshot.
    pub force: bool,
}

/// A stream to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stream {
    /// The snapshot or bookmark it begins after; none: a full stream.
    pub from: Option<String>,
    /// The snapshot it brings.
    pub to: String,
    /// It brings all snapshots in between, too.
    pub between: bool,
}

/// The plan for one dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// The copy has the snapshot.
    UpToDate {
        /// The source's snapshot.
        goal: String,
    },
    /// First continue an interrupted receive, then plan again.
    Resume {
        /// Its token.
        token: String,
    },
    /// Send these streams, in this order.
    Send(Vec<Stream>),
}

/// Plans how `copy` becomes a copy of `source`.
///
/// # Errors
/// Why that is impossible, and the remedy.
pub fn plan(source: &Listed, copy: Option<&Listed>, wishes: &Wishes) -> Result<Plan, String> {
    let goal = goal(source, wishes)?;
    if let Some(token) = copy.and_then(|copy| copy.token.clone()) {
        return Ok(Plan::Resume { token });
    }
    let had: BTreeSet<&str> =
        copy.into_iter().flat_map(Listed::snapshots).map(|point| point.guid.as_str()).collect();
    let upto = source.points.iter().filter(|point| point.createtxg <= goal.createtxg);
    // Of a snapshot and its bookmark, the snapshot comes first: it can be sent with those in between.
    let common = upto.filter(|point| had.contains(point.guid.as_str()));
    let common = common.max_by_key(|point| (point.createtxg, !point.is_bookmark()));
    if had.contains(goal.guid.as_str()) {
        return Ok(Plan::UpToDate { goal: goal.name.clone() });
    }
    match (copy, common) {
        (Some(copy), Some(common)) => {
            refuse_newer(copy, common, wishes)?;
            Ok(Plan::Send(increments(source, common, goal, wishes)))
        }
        (Some(copy), None) if !had.is_empty() => Err(format!(
            "'{}' and '{}' have no snapshot in common, and no bookmark of one; rename or destroy the copy to \
             begin anew",
            source.name, copy.name
        )),
        (Some(copy), None) if !wishes.force => Err(format!(
            "'{}' exists and has no snapshot; --force replaces its content, or destroy it first",
            copy.name
        )),
        _ => Ok(Plan::Send(from_nothing(source, goal, wishes))),
    }
}

fn goal<'a>(source: &'a Listed, wishes: &Wishes) -> Result<&'a Point, String> {
    match &wishes.up_to {
        None => source.snapshots().next_back().ok_or_else(|| format!("'{}' has no snapshot", source.name)),
        Some(own) => source
            .snapshots()
            .find(|point| point.own() == own)
            .ok_or_else(|| format!("'{}' has no snapshot '@{own}'", source.name)),
    }
}

/// A receive takes only streams that begin at the copy's newest snapshot, unless forced.
fn refuse_newer(copy: &Listed, common: &Point, wishes: &Wishes) -> Result<(), String> {
    let newer: Vec<&str> = copy
        .snapshots()
        .rev()
        .take_while(|point| point.guid != common.guid)
        .map(|point| point.name.as_str())
        .collect();
    if newer.is_empty() || wishes.force {
        return Ok(());
    }
    Err(format!(
        "'{}' has snapshots newer than the last common one, '{}': {}; --force destroys them",
        copy.name,
        common.name,
        newer.join(", ")
    ))
}

fn from_nothing(source: &Listed, goal: &Point, wishes: &Wishes) -> Vec<Stream> {
    let first = source.snapshots().next().filter(|_| !wishes.newest_only).unwrap_or(goal);
    let mut streams = vec![Stream { from: None, to: first.name.clone(), between: false }];
    if first.guid != goal.guid {
        streams.push(stream(source, first, goal));
    }
    streams
}

fn increments(source: &Listed, common: &Point, goal: &Point, wishes: &Wishes) -> Vec<Stream> {
    let single = |to: &Point| Stream { from: Some(common.name.clone()), to: to.name.clone(), between: false };
    if wishes.newest_only {
        return vec![single(goal)];
    }
    if !common.is_bookmark() {
        return vec![stream(source, common, goal)];
    }
    // A stream of several snapshots can't begin at a bookmark.
    let next = source.snapshots().find(|point| point.createtxg > common.createtxg).unwrap_or(goal);
    let mut streams = vec![single(next)];
    if next.guid != goal.guid {
        streams.push(stream(source, next, goal));
    }
    streams
}

/// From one snapshot to another, with those in between.
fn stream(source: &Listed, from: &Point, to: &Point) -> Stream {
    let is_between = |point: &Point| (from.createtxg + 1..to.createtxg).contains(&point.createtxg);
    let between = source.snapshots().any(is_between);
    Stream { from: Some(from.name.clone()), to: to.name.clone(), between }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `names` as `@NAME` or `#NAME`; the guid, and the txg if it is a digit, is the name's first letter.
    fn listed(name: &str, names: &[&str]) -> Listed {
        let point = |own: &&str| Point {
            name: format!("{name}{own}"),
            guid: own[1..2].into(),
            createtxg: own[1..2].parse().unwrap_or(9),
            created_s: 0,
            is_held: false,
        };
        Listed { name: name.into(), points: names.iter().map(point).collect(), token: None }
    }

    fn sent(source: &[&str], copy: Option<&[&str]>, wishes: &Wishes) -> Result<Vec<String>, String> {
        let copy = copy.map(|names| listed("back/a", names));
        let Plan::Send(streams) = plan(&listed("a", source), copy.as_ref(), wishes)? else {
            return Ok(Vec::new());
        };
        let line = |Stream { from, to, between }: &Stream| match (from, between) {
            (None, _) => to.clone(),
            (Some(from), true) => format!("{from} .. {to}"),
            (Some(from), false) => format!("{from} - {to}"),
        };
        Ok(streams.iter().map(line).collect())
    }

    #[test]
    fn streams_begin_at_the_newest_common_guid() {
        let all = Wishes::default();
        let three = ["@1", "@2", "@3"];
        assert_eq!(sent(&three, None, &all).unwrap(), ["a@1", "a@1 .. a@3"]);
        assert_eq!(sent(&three, Some(&["@1"]), &all).unwrap(), ["a@1 .. a@3"]);
        assert_eq!(sent(&three, Some(&["@1", "@2"]), &all).unwrap(), ["a@2 - a@3"]);
        assert_eq!(sent(&["@1", "@2 renamed", "@3"], Some(&["@2"]), &all).unwrap(), ["a@2 renamed - a@3"]);
        assert!(sent(&three, Some(&["@1", "@3"]), &all).unwrap().is_empty());
        let newest = Wishes { newest_only: true, ..all.clone() };
        assert_eq!(sent(&three, None, &newest).unwrap(), ["a@3"]);
        assert_eq!(sent(&three, Some(&["@1"]), &newest).unwrap(), ["a@1 - a@3"]);
        let second = Wishes { up_to: Some("2".into()), ..all };
        assert_eq!(sent(&three, None, &second).unwrap(), ["a@1", "a@1 - a@2"]);
    }

    #[test]
    fn bookmarks_stand_in_for_destroyed_snapshots() {
        let all = Wishes::default();
        let source = ["#2", "@3", "@4", "@5"];
        assert_eq!(sent(&source, Some(&["@1", "@2"]), &all).unwrap(), ["a#2 - a@3", "a@3 .. a@5"]);
        assert_eq!(sent(&source[..3], Some(&["@2"]), &all).unwrap(), ["a#2 - a@3", "a@3 - a@4"]);
        assert_eq!(sent(&["@2", "#2", "@3"], Some(&["@2"]), &all).unwrap(), ["a@2 - a@3"]);
    }

    #[test]
    fn copies_that_went_another_way_are_refused() {
        let all = Wishes::default();
        let refused = |copy: &[&str]| sent(&["@1", "@2"], Some(copy), &all).unwrap_err();
        assert!(refused(&["@1", "@x"]).contains("newer than the last common one, 'a@1': back/a@x;"));
        assert!(refused(&["@x"]).contains("no snapshot in common"));
        assert!(refused(&[]).contains("--force"));
        let force = Wishes { force: true, ..all.clone() };
        assert_eq!(sent(&["@1", "@2"], Some(&["@1", "@x"]), &force).unwrap(), ["a@1 - a@2"]);
        assert_eq!(sent(&["@1"], Some(&[]), &force).unwrap(), ["a@1"]);
        assert!(sent(&["#1"], None, &all).unwrap_err().contains("has no snapshot"));
    }

    #[test]
    fn lists_are_read() {
        let text = "p/a\tfilesystem\t1\t5\t70\t-\t1-token\np/a@s\tsnapshot\t7\t9\t71\t1\t-\n\
                    p/a#m\tbookmark\t6\t8\t70\t-\t-\np/a/b\tvolume\t2\t6\t70\t-\t-\n";
        let all = parse(text).unwrap();
        assert_eq!((all.len(), all[0].token.as_deref(), all[1].token.as_deref()), (2, Some("1-token"), None));
        let points: Vec<(&str, bool)> = all[0].points.iter().map(|p| (p.own(), p.is_held)).collect();
        assert_eq!(points, [("m", false), ("s", true)]);
        assert!(parse("p/a@s\tsnapshot\t7\t9\t71\t1\t-\n").is_err());
    }
}
