//! Whether a pool may be so after a power cut.
//!
//! ```text
//!   calls   |--a--|  |--b--|    |---c---|   |--d--|  X
//!   a txg closes              ^ T                         on disk: a, b, perhaps c (under way); never d
//!   the log                                               and files committed since, and names before
//! ```
//!
//! The rules, for one moment `T` of the whole pool:
//! * Verbs are on disk when they return; so is everything that ended before a verb or `zpool sync` began.
//! * Calls of a client in one directory are there up to `T`, in their order. Calls under way at `T` are there
//!   or not.
//! * In a dataset with commits, the log adds to that. Names are those of some moment since `T`, and not
//!   before the last commit began. Each file is as at some moment since `T`, and not before its own last
//!   commit began.
//! * A write that was not committed may be there in part ([`super::torn`]).
//! * Blocks of a volume follow the rule of files. A durable write (FUA) commits its own.
//! * Snapshots never change.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::history::{Commits, History, Moment};
use super::linear::shorten;
use super::{Oracle, Violation, torn};
use crate::model::tree::ROOT;
use crate::model::{Body, CallId, Content, Data, DatasetId, File, FileId, Pool, Tree};

/// A pool as read after a cut.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// By name.
    pub datasets: BTreeMap<String, FoundDataset>,
}

/// A dataset.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundDataset {
    /// Its present content.
    pub content: FoundContent,
    /// Oldest first.
    pub snapshots: Vec<FoundSnapshot>,
}

/// A snapshot.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundSnapshot {
    /// The part behind `@`.
    pub name: String,
    /// As read.
    pub content: FoundContent,
    /// Tags.
    pub holds: BTreeSet<String>,
}

/// Its content.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundContent {
    /// By path, without the root.
    Files(BTreeMap<Vec<String>, Node>),
    /// Blocks of a volume; empty: zeros.
    Blocks(Vec<Data>),
}

/// A file.
#[derive(Debug, PartialEq, Eq)]
pub struct Node {
    /// `None`: a directory.
    pub bytes: Option<Data>,
    /// `bytes` are its target.
    pub is_symlink: bool,
    /// Permissions.
    pub mode: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Bytes>,
}

impl Node {
    fn is(&self, file: &File) -> bool {
        let is_same_body = match &file.body {
            Body::Regular(bytes) => !self.is_symlink && self.bytes.as_ref() == Some(bytes),
            Body::Symlink(target) => {
                self.is_symlink && self.bytes.as_ref().is_some_and(|bytes| **bytes == *target)
            }
            Body::Directory(_) => self.bytes.is_none(),
        };
        is_same_body && self.mode == file.mode && self.xattrs == file.xattrs
    }

    fn is_kin(&self, file: &File) -> bool {
        match &file.body {
            Body::Regular(_) => !self.is_symlink && self.bytes.is_some(),
            Body::Symlink(_) => self.is_symlink,
            Body::Directory(_) => self.bytes.is_none(),
        }
    }
}

type Files = BTreeMap<Vec<String>, Node>;

/// All paths at and below a top-level name, with their files.
fn below(tree: &Tree, top: &str) -> BTreeMap<Vec<String>, FileId> {
    let mut all = BTreeMap::new();
    let Ok(first) = tree.find(&[top.to_owned()]) else { return all };
    let mut left = vec![(vec![top.to_owned()], first)];
    while let Some((path, id)) = left.pop() {
        if let Body::Directory(names) = &tree.files()[&id].body {
            left.extend(
                names.iter().map(|(name, id)| ([&path[..], std::slice::from_ref(name)].concat(), *id)),
            );
        }
        all.insert(path, id);
    }
    all
}

fn found_below<'a>(files: &'a Files, top: &str) -> BTreeMap<&'a Vec<String>, &'a Node> {
    files.iter().filter(|(path, _)| path[0] == top).collect()
}

fn names_agree(
    found: &BTreeMap<&Vec<String>, &Node>,
    tree: &Tree,
    paths: &BTreeMap<Vec<String>, FileId>,
) -> bool {
    found.len() == paths.len()
        && found
            .iter()
            .zip(paths)
            .all(|((path, node), (other, id))| *path == other && node.is_kin(&tree.files()[id]))
}

fn content_is(found: &FoundContent, content: &Content) -> bool {
    match (found, content) {
        (FoundContent::Blocks(found), Content::Blocks(blocks)) => found[..] == *blocks.all(),
        (FoundContent::Files(found), Content::Files(tree)) => tops(found, [&**tree]).iter().all(|top| {
            let (found, paths) = (found_below(found, top), below(tree, top));
            names_agree(&found, tree, &paths)
                && found.values().zip(paths.values()).all(|(node, id)| node.is(&tree.files()[id]))
        }),
        _ => false,
    }
}

/// Top-level names, found and possible.
fn tops<'a>(found: &Files, trees: impl IntoIterator<Item = &'a Tree>) -> BTreeSet<String> {
    let found = found.keys().map(|path| path[0].clone());
    let possible = trees.into_iter().flat_map(|tree| match &tree.files()[&ROOT].body {
        Body::Directory(names) => names.keys().cloned().collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    found.chain(possible).collect()
}

impl Oracle {
    /// The machine was cut off now, with calls under way. They never end.
    pub fn cut(&mut self) {
        let states = self.linear.at_a_cut();
        self.history.cut(states);
    }

    /// Checks the pool that a cut has left, and goes on from there.
    ///
    /// # Errors
    /// It can't be so.
    pub fn reopened(&mut self, found: &Found) -> Result<(), Violation> {
        let mut state = self.structure(found)?;
        let units = self.units(found, &state)?;
        let ends = self.history.points.iter().map(|point| point.at);
        let begins = self.history.spans.values().map(|span| span.begin);
        let moments: BTreeSet<Moment> = ends.chain(begins).collect();
        let mut closest: Option<(usize, String)> = None;
        for at in moments.into_iter().rev() {
            let mut trees = Vec::new();
            let mut wrong = Vec::new();
            for unit in &units {
                match unit.at(&self.history, at) {
                    Ok(tree) => trees.push(tree),
                    Err(why) => wrong.push((why, unit)),
                }
            }
            if wrong.is_empty() {
                units.iter().zip(trees).for_each(|(unit, from)| unit.adopt(&mut state, from));
                for dataset in state.datasets.values_mut() {
                    if let Content::Files(tree) = &mut Arc::make_mut(dataset).content {
                        Arc::make_mut(tree).recount();
                    }
                }
                state.close_all();
                self.linear = super::linear::Linear::of(state.clone());
                self.history.restart(&state);
                return Ok(());
            }
            if closest.as_ref().is_none_or(|(count, _)| wrong.len() < *count) {
                let shown = |(why, unit): &(String, &Unit)| format!("{why}: {}", unit.shown(&self.history));
                let wrong: Vec<String> = wrong.iter().map(shown).collect();
                closest =
                    Some((wrong.len(), format!("if a txg closed at moment {at}:\n  {}", wrong.join("\n  "))));
            }
        }
        let (_, why) = closest.unwrap_or_default();
        Err(Violation(format!("the pool can't be so after the cut: {why}")))
    }

    /// Checks a pool whose clients rest. Calls that they gave up may still go on.
    ///
    /// # Errors
    /// It can't be so.
    pub fn rests(&mut self, found: &Found) -> Result<(), Violation> {
        let mut why = String::new();
        for state in &self.linear.at_a_cut() {
            let other = state.datasets.values().find(|dataset| {
                let found = found.datasets.get(&dataset.name);
                !found.is_some_and(|found| content_is(&found.content, &dataset.content))
            });
            match differs(state, found).or(other.map(|dataset| format!("{} has other content", dataset.name)))
            {
                None => return Ok(()),
                Some(difference) => why = difference,
            }
        }
        Err(Violation(format!("the pool can't be so at rest: {why}")))
    }

    /// A possible state with the datasets and snapshots found, and these snapshots' content.
    fn structure(&self, found: &Found) -> Result<Pool, Violation> {
        let floor = self.history.points.iter().rev();
        let mut states = floor.flat_map(|point| &point.states);
        let mut differences = BTreeSet::new();
        // Ended verbs are on disk, so only the states of the cut count.
        let last = self.history.points.last().map_or(0, |point| point.states.len());
        for state in states.by_ref().take(last) {
            match differs(state, found) {
                None => return Ok(state.clone()),
                Some(difference) => _ = differences.insert(difference),
            }
        }
        let why = Vec::from_iter(differences).join("; or ");
        Err(Violation(format!("datasets and snapshots can't be so after the cut: {why}")))
    }

    fn units<'a>(&self, found: &'a Found, state: &Pool) -> Result<Vec<Unit<'a>>, Violation> {
        let mut units = Vec::new();
        for (id, dataset) in &state.datasets {
            let name = &dataset.name;
            let unit = |part| Unit::new(*id, name, part, &self.history);
            match (&found.datasets[name].content, &dataset.content) {
                (FoundContent::Files(files), Content::Files(_)) => {
                    let trees = self.history.points.iter().flat_map(|point| &point.states);
                    let trees: Vec<Arc<Tree>> = trees.filter_map(|state| tree_of(state, *id)).collect();
                    let tops = tops(files, trees.iter().map(|tree| &**tree));
                    units.extend(tops.into_iter().map(|top| unit(Part::Dir(top, files))));
                }
                (FoundContent::Blocks(blocks), Content::Blocks(_)) => units.push(unit(Part::Blocks(blocks))),
                _ => return Err(Violation(format!("{name} is of another kind"))),
            }
        }
        Ok(units)
    }
}

fn tree_of(state: &Pool, dataset: DatasetId) -> Option<Arc<Tree>> {
    match &state.datasets.get(&dataset)?.content {
        Content::Files(tree) => Some(tree.clone()),
        Content::Blocks(_) => None,
    }
}

/// How datasets and snapshots differ.
fn differs(state: &Pool, found: &Found) -> Option<String> {
    let names: BTreeSet<&String> = state.datasets.values().map(|dataset| &dataset.name).collect();
    let there: BTreeSet<&String> = found.datasets.keys().collect();
    if names != there {
        return Some(format!("there are {there:?}, not {names:?}"));
    }
    for dataset in state.datasets.values() {
        let found = &found.datasets[&dataset.name];
        let names: Vec<&String> = dataset.snapshots.iter().map(|snapshot| &snapshot.name).collect();
        let there: Vec<&String> = found.snapshots.iter().map(|snapshot| &snapshot.name).collect();
        if names != there {
            return Some(format!("{} has snapshots {there:?}, not {names:?}", dataset.name));
        }
        for (snapshot, found) in dataset.snapshots.iter().zip(&found.snapshots) {
            if !content_is(&found.content, &snapshot.content) {
                return Some(format!("{}@{} has other content", dataset.name, found.name));
            }
            if found.holds != snapshot.holds {
                return Some(format!("{}@{} has holds {:?}", dataset.name, found.name, found.holds));
            }
        }
    }
    None
}

/// A part of a dataset that changes in the order of calls, and the evidence of its past.
struct Unit<'a> {
    dataset: DatasetId,
    name: String,
    part: Part<'a>,
    evidence: Evidence<'a>,
    /// The calls that concern it.
    calls: Vec<Range<Moment>>,
    /// Those of its dataset.
    commits: Commits,
}

enum Part<'a> {
    /// A top-level directory, and all files found.
    Dir(String, &'a Files),
    Blocks(&'a [Data]),
}

/// The state that explains a unit as found: the tree with its names. `None`: a volume.
type From = Option<Arc<Tree>>;

/// Points are given by their index in the history, and each different state once.
enum Evidence<'a> {
    Dir {
        /// Trees with the names found, and whether all files are as found.
        trees: Vec<(usize, Arc<Tree>, bool)>,
        /// The last point at which a file was as found at a path. It may have been at others, too.
        last: BTreeMap<(FileId, &'a Vec<String>), usize>,
    },
    /// Blocks as found.
    Blocks(Vec<(usize, Vec<bool>)>),
}

impl<'a> Evidence<'a> {
    fn of(part: &Part<'a>, dataset: DatasetId, history: &History) -> Evidence<'a> {
        // An ended one is on disk, so the states of the cut know the last rollback.
        let cut = history.points.last().map_or(&[][..], |point| &point.states);
        let rollbacks: BTreeSet<CallId> =
            cut.iter().filter_map(|state| Some(state.datasets.get(&dataset)?.rollback)).collect();
        let states = history.points.iter().enumerate();
        let contents = states.flat_map(|(at, point)| point.states.iter().map(move |state| (at, state)));
        let contents = contents.filter_map(|(at, state)| {
            let dataset = state.datasets.get(&dataset)?;
            rollbacks.contains(&dataset.rollback).then_some((at, &dataset.content))
        });
        match part {
            Part::Dir(top, files) => Evidence::of_dir(&found_below(files, top), top, contents),
            Part::Blocks(blocks) => Evidence::of_blocks(blocks, contents),
        }
    }

    fn of_dir<'h>(
        found: &BTreeMap<&'a Vec<String>, &'a Node>,
        top: &str,
        contents: impl Iterator<Item = (usize, &'h Content)>,
    ) -> Evidence<'a> {
        let all: Vec<(usize, &Arc<Tree>)> = contents
            .filter_map(|(at, content)| match content {
                Content::Files(tree) => Some((at, tree)),
                Content::Blocks(_) => None,
            })
            .collect();
        let (mut trees, mut nodes) = (Vec::new(), BTreeMap::new());
        for (at, tree) in &all {
            let paths = below(tree, top);
            if names_agree(found, tree, &paths) {
                let is_whole =
                    paths.values().zip(found.values()).all(|(id, node)| node.is(&tree.files()[id]));
                let ids = paths.into_values().zip(found.keys().copied());
                nodes.extend(ids.zip(found.values().copied()));
                trees.push((*at, (*tree).clone(), is_whole));
            }
        }
        // A file may have had other names when its content was as found.
        let mut last = BTreeMap::new();
        for (at, tree) in &all {
            let same = |(id, node): &(FileId, &Node)| tree.files().get(id).is_some_and(|file| node.is(file));
            last.extend(
                nodes.iter().filter(|((id, _), node)| same(&(*id, node))).map(|(key, _)| (*key, *at)),
            );
        }
        for ((id, path), node) in &nodes {
            let states = || all.iter().filter_map(|(at, tree)| Some((*at, tree.files().get(id)?)));
            if last.get(&(*id, *path)) != states().next_back().map(|(at, _)| at).as_ref()
                && let Some(since) = torn::since(node, states().rev())
            {
                last.insert((*id, *path), since);
            }
        }
        Evidence::Dir { trees, last }
    }

    fn of_blocks<'h>(found: &[Data], contents: impl Iterator<Item = (usize, &'h Content)>) -> Evidence<'a> {
        let same = |(at, content): (usize, &'h Content)| match content {
            Content::Blocks(blocks) => {
                let is_same = |(found, block): (&Data, &Data)| found == block;
                Some((at, found.iter().zip(blocks.all()).map(is_same).collect()))
            }
            Content::Files(_) => None,
        };
        Evidence::Blocks(contents.filter_map(same).collect())
    }
}

impl<'a> Unit<'a> {
    fn new(dataset: DatasetId, name: &str, part: Part<'a>, history: &History) -> Unit<'a> {
        let evidence = Evidence::of(&part, dataset, history);
        let calls = history.calls_on(|scope| match &part {
            Part::Dir(top, _) => scope.touches(dataset, top),
            Part::Blocks(_) => scope.touches_any(dataset),
        });
        Unit { dataset, name: name.into(), part, evidence, calls, commits: history.commits_of(dataset) }
    }

    /// Explains the unit as found, if a txg closed at a moment.
    fn at(&self, history: &History, at: Moment) -> Result<From, String> {
        match (&self.evidence, &self.part) {
            (Evidence::Dir { trees, last }, Part::Dir(top, _)) => {
                let points = history.points_between(at, &self.calls);
                let whole = trees.iter().find(|(point, _, is_whole)| *is_whole && points.contains(point));
                if let Some((_, tree, _)) = whole {
                    return Ok(Some(tree.clone()));
                }
                let why = || format!("{}/{top} can't be so", self.name);
                let first = history.first_point(at.max(self.commits.of_names().ok_or_else(why)?));
                let is_right = |tree: &Arc<Tree>| {
                    below(tree, top).iter().all(|(path, id)| {
                        last.get(&(*id, path)).is_some_and(|last| {
                            *last >= history.first_point(at.max(self.commits.of_file(*id)))
                        })
                    })
                };
                let logged = trees.iter().find(|(point, tree, _)| *point >= first && is_right(tree));
                logged.map(|(_, tree, _)| Some(tree.clone())).ok_or_else(|| why() + ", not even with its log")
            }
            (Evidence::Blocks(states), Part::Blocks(found)) => {
                let is_of_txg = history.points_between(at, &self.calls);
                let may_be_so = |block: usize| {
                    let points = match self.commits.of_block(block as u64) {
                        Some(commit) => history.first_point(at.max(commit))..history.points.len(),
                        None => is_of_txg.clone(),
                    };
                    let mut states = states.iter().filter(|(point, _)| points.contains(point));
                    states.any(|(_, same)| same.get(block).is_some_and(|is_same| *is_same))
                };
                let count = states.first().map_or(0, |(_, same)| same.len());
                let Some(block) = (0..count).find(|block| !may_be_so(*block)) else {
                    return if count > 0 { Ok(None) } else { Err(format!("{}: no such volume", self.name)) };
                };
                let moment = |point: usize| history.points.get(point).map(|point| point.at);
                let was_so = states.iter().filter(|(_, same)| same[block]).map(|(point, _)| moment(*point));
                let (was_so, first, last) =
                    (was_so.collect::<Vec<_>>(), moment(is_of_txg.start), moment(is_of_txg.end));
                let bytes = found[block].to_vec();
                let holds: Vec<(usize, u8)> = bytes
                    .chunk_by(|one, other| one == other)
                    .map(|run| (run.len(), run[0]))
                    .take(4)
                    .collect();
                let why =
                    format!("it has {holds:?}, was so at {was_so:?}; the txg has {first:?} to {last:?}");
                Err(format!("{}: block {block} can't be so: {why}", self.name))
            }
            _ => unreachable!("evidence is of its part"),
        }
    }

    /// The unit as found, for a report.
    fn shown(&self, history: &History) -> String {
        let (Part::Dir(top, files), Evidence::Dir { trees, last }) = (&self.part, &self.evidence) else {
            return format!("{}, committed {:?}", self.name, self.commits.of_names());
        };
        let mut text =
            format!("{}/{top}, committed {:?}, had its names at ", self.name, self.commits.of_names());
        let moment = |point: usize| history.points[point].at;
        let moments: Vec<Moment> = trees.iter().map(|(point, ..)| moment(*point)).collect();
        text += &format!("{:?}..{:?}", moments.first(), moments.last());
        for (path, node) in found_below(files, top) {
            text += &format!("\n    {}: {}", path.join("/"), shorten(&format!("{node:?}")));
            if let Some((_, tree, _)) = trees.last()
                && let Ok(id) = tree.find(path)
            {
                let last = last.get(&(id, path)).map(|point| moment(*point));
                text += &format!("; file {id}, so until {last:?}, committed {:?}", self.commits.of_file(id));
            }
        }
        text
    }

    /// Makes the unit as found part of the state.
    fn adopt(&self, state: &mut Pool, from: From) {
        let Some(dataset) = state.datasets.get_mut(&self.dataset) else { return };
        let content = &mut Arc::make_mut(dataset).content;
        match (&self.part, content) {
            (Part::Blocks(blocks), Content::Blocks(all)) => *all = Arc::new(blocks.to_vec().into()),
            (Part::Dir(top, files), Content::Files(tree)) => {
                let tree = Arc::make_mut(tree);
                let old = from.as_ref().map(|from| below(from, top)).unwrap_or_default();
                let Some(from) = from else { return };
                tree.set_name(top, old.get(&vec![top.clone()]).copied());
                for (path, id) in &old {
                    let mut file = File::clone(&from.files()[id]);
                    if let Some(node) = files.get(path) {
                        if let (Body::Regular(bytes), Some(found)) = (&mut file.body, &node.bytes) {
                            bytes.clone_from(found);
                        }
                        (file.mode, file.xattrs) = (node.mode, node.xattrs.clone());
                    }
                    tree.put(*id, file);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Action, Call, Outcome};

    fn names(path: &str) -> Vec<String> {
        path.split('/').map(str::to_owned).collect()
    }

    fn node(target: Option<&str>, bytes: Option<&'static str>) -> Node {
        let mode = if target.is_some() { 0o777 } else { bytes.map_or(0o755, |_| 0o644) };
        let bytes = target
            .map(|target| Bytes::copy_from_slice(target.as_bytes()))
            .or(bytes.map(Bytes::from))
            .map(Data::from);
        Node { bytes, is_symlink: target.is_some(), mode, xattrs: BTreeMap::new() }
    }

    /// Two links change places after a commit, which does not hold that. Before the commit, a call in another
    /// dataset was lost: the txg is older.
    #[test]
    fn names_that_changed_places_after_a_commit_may_be_as_committed() {
        let mut oracle = Oracle::default();
        let link =
            |path: &str, to: &str| Action::Make { dataset: 1, path: names(path), link_to: Some(to.into()) };
        let dir = |dataset, path: &str| Action::Make { dataset, path: names(path), link_to: None };
        let create = |name: &str| Action::Create { name: name.into(), volume_blocks: None };
        let (from, to) = (names("common/a"), names("common/b"));
        let path = names("common/c");
        let actions = [
            create("tank/1"),
            create("tank/2"),
            dir(1, "common"),
            dir(2, "common"),
            link("common/a", "x"),
            link("common/b", "y"),
            Action::Open { dataset: 1, path, slot: 0, creates: true, excludes: true },
            Action::Fsync { dataset: 1, slot: 0 },
            Action::Rename { dataset: 1, from, to, exchange: true },
        ];
        for (id, action) in (1..).zip(actions) {
            oracle.begin(id, Arc::new(Call { client: 0, action }));
            oracle.end(id, &Outcome::Done).unwrap();
        }
        oracle.cut();
        let (a, b) = ((names("common/a"), node(Some("x"), None)), (names("common/b"), node(Some("y"), None)));
        let files = [(names("common"), node(None, None)), a, b, (names("common/c"), node(None, Some("")))];
        let dataset = |files: BTreeMap<_, _>| {
            let (content, snapshots) = (FoundContent::Files(files), Vec::new());
            FoundDataset { content, snapshots }
        };
        let datasets = [("tank/1", files.into_iter().collect()), ("tank/2", BTreeMap::new())];
        let datasets = datasets.into_iter().map(|(name, files)| (name.to_owned(), dataset(files))).collect();
        assert_eq!(oracle.reopened(&Found { datasets }), Ok(()));
    }
}
