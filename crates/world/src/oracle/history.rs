//! The past since the last durable moment: all that a power cut may bring back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::model::{Action, Call, CallId, DatasetId, FileId, Pool, Scope};

/// A moment: a count of beginnings and ends of calls.
pub type Moment = u64;

/// The states possible after the end of a call.
#[derive(Clone)]
pub struct Point {
    /// The end of the call.
    pub at: Moment,
    /// Without duplicates.
    pub states: Vec<Pool>,
}

/// The duration of a call.
#[derive(Clone)]
pub struct Span {
    /// Its beginning.
    pub begin: Moment,
    /// [`Moment::MAX`]: under way.
    pub end: Moment,
    /// The parts that it touches.
    pub scope: Scope,
}

/// A commit (`fsync`, a flush, a durable write) that has begun.
#[derive(Clone)]
struct Commit {
    dataset: DatasetId,
    /// Its beginning; the end of a durable write.
    since: Moment,
    of: Committed,
}

/// The part of a dataset that is durable since the moment of a commit.
#[derive(Clone)]
enum Committed {
    /// The commit goes on.
    Unknown,
    /// These files, and all names; or the whole volume.
    Files(BTreeSet<FileId>),
    /// Blocks of a volume.
    Blocks(Range<u64>),
}

/// The latest commits of a dataset.
#[derive(Debug, Default)]
pub struct Commits {
    names: Option<Moment>,
    files: BTreeMap<FileId, Moment>,
    blocks: Vec<(Range<u64>, Moment)>,
}

impl Commits {
    /// That of all names; `None`: the log can't hold anything of the dataset.
    pub fn of_names(&self) -> Option<Moment> {
        self.names
    }

    /// That of a file; 0: none.
    pub fn of_file(&self, file: FileId) -> Moment {
        self.files.get(&file).copied().unwrap_or(0)
    }

    /// That of a block of a volume; `None` as for names.
    pub fn of_block(&self, block: u64) -> Option<Moment> {
        let own = self.blocks.iter().filter(|(blocks, _)| blocks.contains(&block));
        self.names.map(|all| own.map(|(_, since)| *since).fold(all, Moment::max))
    }
}

/// Calls and states since the last txg known to be on disk.
#[derive(Default, Clone)]
pub struct History {
    now: Moment,
    /// Calls that ended before are on disk.
    floor: Moment,
    /// Oldest first; the first counts as durable.
    pub points: Vec<Point>,
    /// Calls, also some that ended.
    pub spans: BTreeMap<CallId, Span>,
    commits: BTreeMap<CallId, Commit>,
}

impl History {
    /// A call begins.
    pub fn begin(&mut self, id: CallId, call: &Call) {
        self.now += 1;
        let (begin, end) = (self.now, Moment::MAX);
        let scope = match call.action {
            // It makes a dataset of this number.
            Action::Create { .. } | Action::Clone { .. } | Action::Receive { .. } => call.scope().with(id),
            _ => call.scope(),
        };
        self.spans.insert(id, Span { begin, end, scope });
        if let Action::Fsync { dataset, .. }
        | Action::FlushVolume { dataset }
        | Action::WriteBlocks { dataset, is_durable: true, .. } = &call.action
        {
            self.commits.insert(id, Commit { dataset: *dataset, since: begin, of: Committed::Unknown });
        }
    }

    /// A call has ended, and these states are possible.
    pub fn end<'a>(&mut self, id: CallId, states: impl Iterator<Item = &'a Pool>) {
        self.now += 1;
        if let Some(span) = self.spans.get_mut(&id) {
            span.end = self.now;
        }
        self.points.push(Point { at: self.now, states: states.cloned().collect() });
    }

    /// The states of a cut now.
    pub fn cut(&mut self, states: Vec<Pool>) {
        self.now += 1;
        self.points.push(Point { at: self.now, states });
    }

    /// A commit has ended. `files`: its file, as far as known.
    pub fn committed(&mut self, id: CallId, files: BTreeSet<FileId>) {
        if let Some(commit) = self.commits.get_mut(&id) {
            commit.of = Committed::Files(files);
        }
    }

    /// A durable write of these blocks has ended just now.
    pub fn committed_blocks(&mut self, id: CallId, blocks: Range<u64>) {
        if let Some(commit) = self.commits.get_mut(&id) {
            (commit.since, commit.of) = (self.now, Committed::Blocks(blocks));
        }
    }

    /// A call has ended that returns when its txg is on disk.
    pub fn synced(&mut self, id: CallId) {
        let Some(begin) = self.spans.get(&id).map(|span| span.begin) else { return };
        self.floor = self.floor.max(begin);
        let floor = self.floor;
        self.spans.retain(|_, span| span.end >= floor);
        self.commits.retain(|_, commit| commit.since >= floor || matches!(commit.of, Committed::Unknown));
        // The state at the floor is that of the last point before it.
        let first = self.points.partition_point(|point| point.at <= floor).saturating_sub(1);
        self.points.drain(..first);
    }

    /// The past is over: this is the state.
    pub fn restart(&mut self, state: &Pool) {
        self.now += 1;
        self.floor = self.now;
        self.spans.clear();
        self.commits.clear();
        self.points = vec![Point { at: self.now, states: vec![state.clone()] }];
    }

    /// The latest commits of a dataset.
    pub fn commits_of(&self, dataset: DatasetId) -> Commits {
        let mut latest = Commits::default();
        for commit in self.commits.values().filter(|commit| commit.dataset == dataset) {
            let names = match &commit.of {
                Committed::Files(files) => {
                    for file in files {
                        let last = latest.files.entry(*file).or_default();
                        *last = commit.since.max(*last);
                    }
                    commit.since
                }
                Committed::Blocks(blocks) => {
                    latest.blocks.push((blocks.clone(), commit.since));
                    0
                }
                Committed::Unknown => 0,
            };
            latest.names = latest.names.max(Some(names));
        }
        latest
    }

    /// The first point that counts if everything up to a moment is durable.
    pub fn first_point(&self, since: Moment) -> usize {
        self.points.partition_point(|point| point.at <= since).saturating_sub(1)
    }

    /// The calls that concern a part.
    pub fn calls_on(&self, is_meant: impl Fn(&Scope) -> bool) -> Vec<Range<Moment>> {
        self.spans.values().filter(|span| is_meant(&span.scope)).map(|span| span.begin..span.end).collect()
    }

    /// The points whose states a txg may have that closed at a moment: of the part's `calls`, those under way
    /// then are in it or not.
    pub fn points_between(&self, at: Moment, calls: &[Range<Moment>]) -> Range<usize> {
        let under_way = calls.iter().filter(|call| call.contains(&at));
        let until = under_way.map(|call| call.end).max().unwrap_or(at);
        self.first_point(at)..self.points.partition_point(|point| point.at <= until)
    }
}
