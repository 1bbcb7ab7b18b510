//! What the intent log adds to a tree, kept in memory over the tree on disk.
//!
//! Idea: a read-only pool can't be replayed onto, but it can be *looked at* as if it had been. The overlay holds, for each
//! object that the log touched, what differs: attributes, names, content, extended attributes. `Filesystem` and
//! `Volume` ask the overlay first and the disk for the rest, so that everything above them (listing, hashing, copying)
//! works on a replayed view without knowing of it.
//!
//! Memory: bounded by the log's own records. Blocks that a record only points to are kept as pointers and read when asked for.
//!
//! Invariants: extents of one object never touch the same byte; a name maps to its new entry, or to `None` if it was removed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::ObjectId;

use crate::acl::Ace;
use crate::attr::Attr;
use crate::directory::DirEntry;

/// All changes, by object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlay {
    nodes: HashMap<ObjectId, Node>,
}

/// The changes to one object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// The object was created by the log (or freed): nothing of it is on disk.
    pub fresh: bool,
    /// The object was freed.
    pub freed: bool,
    /// Attributes, if any changed.
    pub attr: Option<Attr>,
    /// A symbolic link's target, if the log created it.
    pub target: Option<Vec<u8>>,
    /// Names in this directory.
    pub names: BTreeMap<Bytes, Option<DirEntry>>,
    /// The ZFS ACL, if the log set one.
    pub acl: Option<Vec<Ace>>,
    /// Extended attributes in SA form, by stored name.
    pub xattrs: BTreeMap<Bytes, Option<Bytes>>,
    /// Content.
    pub content: ContentOverlay,
}

impl Overlay {
    /// The changes to an object, if there are any.
    pub fn get(&self, id: ObjectId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// The same, to change them.
    pub fn entry(&mut self, id: ObjectId) -> &mut Node {
        self.nodes.entry(id).or_default()
    }

    /// Whether the object on disk no longer counts.
    pub fn hides(&self, id: ObjectId) -> bool {
        self.get(id).is_some_and(|node| node.fresh || node.freed)
    }

    /// Starts an object that is not on disk, forgetting what bore its number.
    pub fn create(&mut self, id: ObjectId, attr: Attr) -> &mut Node {
        let content = ContentOverlay { base_end: 0, ..Default::default() };
        let node = Node { fresh: true, attr: Some(attr), content, ..Default::default() };
        self.nodes.insert(id, node);
        self.entry(id)
    }

    /// Frees an object.
    pub fn free(&mut self, id: ObjectId) {
        self.nodes.insert(id, Node { freed: true, ..Default::default() });
    }
}

/// Where new content comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A hole.
    Zeros,
    /// Bytes from the log.
    Bytes(Bytes),
    /// A block on disk, from this offset in it.
    Block(Box<Blkptr>, u64),
}

impl Source {
    fn skip(&self, len: u64) -> Source {
        match self {
            Source::Zeros => Source::Zeros,
            Source::Bytes(bytes) => Source::Bytes(bytes.slice((len as usize).min(bytes.len())..)),
            Source::Block(bp, from) => Source::Block(bp.clone(), from + len),
        }
    }

    fn is_hole(&self) -> bool {
        match self {
            Source::Zeros => true,
            Source::Bytes(_) => false,
            Source::Block(bp, _) => bp.is_hole(),
        }
    }
}

/// Changes to an object's content.
#[derive(Debug, Clone)]
pub(crate) struct ContentOverlay {
    /// Content on disk counts up to here; what follows was cut off.
    base_end: u64,
    /// New content by offset: its length and source.
    extents: BTreeMap<u64, (u64, Source)>,
}

impl Default for ContentOverlay {
    fn default() -> Self {
        ContentOverlay { base_end: u64::MAX, extents: BTreeMap::new() }
    }
}

/// A piece of a range, and where it comes from: `None` is the disk.
pub(crate) type Piece = (Range<u64>, Option<Source>);

impl ContentOverlay {
    /// Nothing changed.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.base_end == u64::MAX
    }

    /// Puts `source` at `range`, over whatever was there.
    pub fn put(&mut self, range: Range<u64>, source: Source) {
        if range.is_empty() {
            return;
        }
        self.remove(range.clone());
        self.extents.insert(range.start, (range.end - range.start, source));
    }

    /// Cuts everything off from `end` on.
    pub fn truncate(&mut self, end: u64) {
        self.remove(end..u64::MAX);
        self.base_end = self.base_end.min(end);
    }

    /// Takes new content out of `range`, splitting extents at its ends.
    fn remove(&mut self, range: Range<u64>) {
        let before = self.extents.range(..range.start).next_back().map(|(&start, _)| start);
        let first = before.filter(|start| self.extents[start].0 > range.start - start).unwrap_or(range.start);
        let touched: Vec<u64> = self.extents.range(first..range.end).map(|(&start, _)| start).collect();
        for start in touched {
            let Some((len, source)) = self.extents.remove(&start) else { continue };
            if start < range.start {
                self.extents.insert(start, (range.start - start, source.clone()));
            }
            if start + len > range.end {
                let cut = range.end - start;
                self.extents.insert(range.end, (len - cut, source.skip(cut)));
            }
        }
    }

    /// Divides `range` into pieces of one source each, in order and without gaps.
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let piece = self.piece_at(at, range.end);
            at = piece.0.end;
            pieces.push(piece);
        }
        pieces
    }

    /// The piece that starts at `at`, at most up to `limit` (which is after `at`).
    pub fn piece_at(&self, at: u64, limit: u64) -> Piece {
        if let Some((&start, (len, source))) = self.extents.range(..=at).next_back()
            && at - start < *len
        {
            return (at..limit.min(start + len), Some(source.skip(at - start)));
        }
        let next = self.extents.range(at..).next().map_or(limit, |(&start, _)| start.min(limit));
        if at >= self.base_end {
            return (at..next, Some(Source::Zeros));
        }
        (at..next.min(self.base_end), None)
    }

    /// Whether a piece is a hole; `None` if the disk knows.
    pub fn is_hole(piece: &Piece) -> Option<bool> {
        piece.1.as_ref().map(Source::is_hole)
    }
}

#[cfg(test)]
mod tests;
