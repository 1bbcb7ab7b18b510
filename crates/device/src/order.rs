//! Orders overlapping changes: each begins when those before it are over.
//!
//! Idea: neither the kernel nor a disk orders concurrent writes, and a write whose future was dropped goes on
//! while its place may get a new owner. So each change (a write, a discard) takes its turn when its method is
//! called, and returns it when done.
//!
//! ```text
//!   under way    |--a--|      |--b--|            none overlaps another
//!   waiting         |--c--|                      behind a
//!                      |--d---|                  behind c
//! ```
//!
//! Invariants: ranges under way are disjoint; a waiting one overlaps one under way, or an earlier waiting
//! one.
//!
//! Locking: one mutex, held for an access to the table; turns are passed on after it is released.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use futures::channel::oneshot;
use parking_lot::Mutex;

/// The table of a device's changes. Clones share it.
#[derive(Clone, Default)]
pub struct Order(Arc<Mutex<Changes>>);

#[derive(Default)]
struct Changes {
    /// Ends, by start.
    under_way: BTreeMap<u64, u64>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    range: Range<u64>,
    go: oneshot::Sender<Turn>,
}

/// A change's turn, until dropped.
pub struct Turn {
    order: Order,
    start: u64,
}

/// A change's position among those that it overlaps.
pub enum Position {
    /// It may begin; `None` for an empty range.
    First(Option<Turn>),
    /// It waits for its turn.
    Behind(oneshot::Receiver<Turn>),
}

impl Order {
    /// Enters a change.
    pub fn enter(&self, offset: u64, len: u64) -> Position {
        let range = offset..offset.saturating_add(len);
        if range.is_empty() {
            return Position::First(None);
        }
        let mut changes = self.0.lock();
        let Changes { under_way, waiting } = &mut *changes;
        if is_free(under_way, &range) && !waiting.iter().any(|before| overlap(&before.range, &range)) {
            under_way.insert(range.start, range.end);
            return Position::First(Some(Turn { order: self.clone(), start: range.start }));
        }
        let (go, turn) = oneshot::channel();
        waiting.push_back(Waiting { range, go });
        Position::Behind(turn)
    }

    fn leave(&self, start: u64) {
        let mut next = Vec::new();
        let mut changes = self.0.lock();
        changes.under_way.remove(&start);
        if !changes.waiting.is_empty() {
            let Changes { under_way, waiting } = &mut *changes;
            let mut still = VecDeque::new();
            for one in waiting.drain(..) {
                let is_behind = still.iter().any(|before: &Waiting| overlap(&before.range, &one.range));
                if is_behind || !is_free(under_way, &one.range) {
                    still.push_back(one);
                } else {
                    under_way.insert(one.range.start, one.range.end);
                    next.push((one.go, Turn { order: self.clone(), start: one.range.start }));
                }
            }
            *waiting = still;
        }
        drop(changes);
        for (go, turn) in next {
            // If it was withdrawn, its turn is over.
            drop(go.send(turn));
        }
    }
}

impl Position {
    /// Waits for the turn.
    pub async fn turn(self) -> Option<Turn> {
        match self {
            Position::First(turn) => turn,
            // As long as it waits, a change before it exists that will pass the turn on.
            Position::Behind(turn) => turn.await.ok(),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.order.leave(self.start);
    }
}

fn is_free(under_way: &BTreeMap<u64, u64>, range: &Range<u64>) -> bool {
    // They are disjoint: the last one to begin before the end also ends last.
    under_way.range(..range.end).next_back().is_none_or(|(_, end)| *end <= range.start)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn begins(position: Position) -> Result<Option<Turn>, oneshot::Receiver<Turn>> {
        match position {
            Position::First(turn) => Ok(turn),
            Position::Behind(mut turn) => match (&mut turn).now_or_never() {
                Some(turn) => Ok(turn.ok()),
                None => Err(turn),
            },
        }
    }

    #[test]
    fn changes_that_overlap_go_one_after_the_other_and_others_at_once() {
        let order = Order::default();
        let a = begins(order.enter(0, 10)).unwrap();
        let b = begins(order.enter(20, 10)).unwrap();
        let c = begins(order.enter(5, 10)).err().unwrap();
        let d = begins(order.enter(14, 10)).err().unwrap();
        let nothing = begins(order.enter(7, 0)).unwrap();
        assert!(nothing.is_none() && begins(order.enter(30, 1)).is_ok(), "they wait for nobody");
        drop(b);
        let d = begins(Position::Behind(d)).err().expect("it is behind c");
        drop(a);
        let c = begins(Position::Behind(c)).unwrap();
        let d = begins(Position::Behind(d)).err().unwrap();
        drop(c);
        drop(begins(Position::Behind(d)).unwrap());
        assert!(order.0.lock().under_way.is_empty() && order.0.lock().waiting.is_empty());
    }

    #[test]
    fn a_change_that_was_withdrawn_is_passed_over() {
        let order = Order::default();
        let a = begins(order.enter(0, 10)).unwrap();
        drop(order.enter(0, 10));
        let c = begins(order.enter(0, 10)).err().unwrap();
        drop(a);
        assert!(begins(Position::Behind(c)).is_ok());
        assert!(order.0.lock().under_way.is_empty());
    }
}
