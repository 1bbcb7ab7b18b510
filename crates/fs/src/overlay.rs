//! The changes in an intent log, kept in memory on top of the tree on disk.
//!
//! Idea: a log can't be replayed onto a read-only pool, but the pool can be *shown* as if it had been. For
//! each object that the log changed, the overlay holds the differences: attributes, names, content, extended
//! attributes. `Filesystem` and `Volume` consult the overlay first, so everything above them (listing,
//! hashing, copying) works unchanged.
//!
//! Memory: bounded by the log's own records. Blocks that a record only references are kept as pointers and
//! read on demand.
//!
//! Invariants: extents of one object never overlap; a name maps to its new entry, or to `None` if removed.

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
    /// The object was created (or freed) by the log: its version on disk does not count.
    pub fresh: bool,
    /// The object was freed.
    pub freed: bool,
    /// Attributes, if any changed.
    pub attr: Option<Attr>,
    /// The target of a symbolic link that the log created.
    pub target: Option<Vec<u8>>,
    /// Changed names in this directory.
    pub names: BTreeMap<Bytes, Option<DirEntry>>,
    /// The ZFS ACL, if the log set one.
    pub acl: Option<Vec<Ace>>,
    /// Changed extended attributes in SA form, by stored name.
    pub xattrs: BTreeMap<Bytes, Option<Bytes>>,
    /// Changed content.
    pub content: ContentOverlay,
}

impl Overlay {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Any changes to an object.
    pub fn get(&self, id: ObjectId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// The changes to an object, for modification.
    pub fn entry(&mut self, id: ObjectId) -> &mut Node {
        self.nodes.entry(id).or_default()
    }

    /// Whether the object's version on disk no longer counts.
    pub fn hides(&self, id: ObjectId) -> bool {
        self.get(id).is_some_and(|node| node.fresh || node.freed)
    }

    /// Starts a new object, forgetting any previous object with its number.
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

#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A hole.
    Zeros,
    /// Bytes from the log.
    Bytes(Bytes),
    /// A block on disk, starting at this offset in it.
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

#[derive(Debug, Clone)]
pub(crate) struct ContentOverlay {
    /// Content on disk is valid up to here; the rest was truncated.
    base_end: u64,
    /// New content by offset: its length and source.
    extents: BTreeMap<u64, (u64, Source)>,
}

impl Default for ContentOverlay {
    fn default() -> Self {
        ContentOverlay { base_end: u64::MAX, extents: BTreeMap::new() }
    }
}

/// A piece of a range and its source; `None` means the disk.
pub(crate) type Piece = (Range<u64>, Option<Source>);

impl ContentOverlay {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.base_end == u64::MAX
    }

    /// Replaces `range` with `source`.
    pub fn put(&mut self, range: Range<u64>, source: Source) {
        if range.is_empty() {
            return;
        }
        self.remove(range.clone());
        self.extents.insert(range.start, (range.end - range.start, source));
    }

    /// Truncates the content at `end`.
    pub fn truncate(&mut self, end: u64) {
        self.remove(end..u64::MAX);
        self.base_end = self.base_end.min(end);
    }

    /// Removes new content from `range`, splitting extents at its ends.
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

    /// Splits `range` into consecutive pieces with one source each.
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

    /// The piece that starts at `at`, clipped at `limit` (which is after `at`).
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

    /// Whether a piece is a hole; `None` if only the disk knows.
    pub fn is_hole(piece: &Piece) -> Option<bool> {
        piece.1.as_ref().map(Source::is_hole)
    }
}

#[cfg(test)]
mod tests;
