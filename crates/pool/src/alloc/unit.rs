//! The unit of allocation of a vdev, and ranges of whole units.
//!
//! Idea: a unit is a sector, or a row of a dRAID redundancy group, which need not be a power of two. A block
//! not aligned to rows could not be mapped to disks. So free space takes and gives only [`Span`]s, which only
//! a [`Unit`] creates.

#[derive(Debug, Clone, Copy)]
pub(super) struct Unit(u64);

/// A non-empty range of whole units, in bytes from the start of the vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    start: u64,
    end: u64,
}

impl Unit {
    pub(super) fn new(bytes: u64) -> Unit {
        Unit(bytes.max(1))
    }

    pub(super) fn span(self, start: u64, len: u64) -> Option<Span> {
        let end = start.checked_add(len)?;
        let is_whole = start.is_multiple_of(self.0) && len.is_multiple_of(self.0) && len > 0;
        is_whole.then_some(Span { start, end })
    }

    pub(super) fn within(self, (start, end): (u64, u64)) -> Option<Span> {
        let (start, end) = (start.checked_next_multiple_of(self.0)?, end / self.0 * self.0);
        (start < end).then_some(Span { start, end })
    }

    /// At most `most_bytes` but at least one unit.
    pub(super) fn first(self, span: Span, most_bytes: u64) -> Span {
        let most = (most_bytes / self.0).max(1) * self.0;
        Span { end: span.end.min(span.start.saturating_add(most)), ..span }
    }
}

impl Span {
    pub(super) fn start(self) -> u64 {
        self.start
    }

    pub(super) fn end(self) -> u64 {
        self.end
    }

    pub(super) fn len(self) -> u64 {
        self.end - self.start
    }
}
