//! Keys of a changing deadlist, and their lists.
//!
//! Idea: nearly all keys lead to the shared empty list. These are bare numbers, sorted only on lookup; or
//! only counted, if the deadlist is about to go. Destroying a range of snapshots opens thousands of deadlists
//! with thousands of keys each.
//!
//! Invariants: no key is in both parts; there are empty keys only while `empty` is the shared empty list,
//! which lives while any key leads to it. With counted keys, only own lists are looked up.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

use cenote_format::units::{ObjectId, Txg};

/// Lists by the txg after which their blocks were born.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Keys with their own list.
    own: BTreeMap<Txg, ObjectId>,
    /// Keys of the shared empty list.
    empties: Vec<Txg>,
    /// More keys of it.
    counted: usize,
    are_sorted: bool,
    empty: Option<ObjectId>,
}

impl Keys {
    pub(super) fn new(empty: Option<ObjectId>) -> Keys {
        Keys { empty, ..Keys::default() }
    }

    /// Adds keys of the shared empty list, without their numbers.
    pub(super) fn count(&mut self, more: usize) {
        self.counted += more;
    }

    /// Whether some keys are only counted.
    pub(super) fn are_partial(&self) -> bool {
        self.counted > 0
    }

    /// Keys in memory.
    pub(super) fn len(&self) -> usize {
        self.own.len() + self.empties.len()
    }

    pub(super) fn add(&mut self, key: Txg, list: ObjectId, empty: Option<ObjectId>) {
        if empty != Some(list) {
            self.own.insert(key, list);
            return;
        }
        self.empty = empty;
        self.are_sorted = self.are_sorted && self.empties.last().is_none_or(|last| *last < key);
        self.empties.push(key);
    }

    pub(super) fn set(&mut self, key: Txg, list: ObjectId) {
        self.take(key);
        self.own.insert(key, list);
    }

    pub(super) fn get(&mut self, key: Txg) -> Option<ObjectId> {
        match self.own.get(&key) {
            Some(list) => Some(*list),
            None => self.sorted().binary_search(&key).ok().and(self.empty),
        }
    }

    pub(super) fn take(&mut self, key: Txg) -> Option<ObjectId> {
        if let Some(list) = self.own.remove(&key) {
            return Some(list);
        }
        let at = self.sorted().binary_search(&key).ok()?;
        self.empties.remove(at);
        self.empty
    }

    pub(super) fn last_before(&mut self, end: Txg) -> Option<Txg> {
        let own = self.own.range(..end).next_back().map(|(key, _)| *key);
        let empties = self.sorted();
        let empty = empties[..empties.partition_point(|key| *key < end)].last().copied();
        own.max(empty)
    }

    pub(super) fn last(&self) -> Option<Txg> {
        let own = self.own.last_key_value().map(|(key, _)| *key);
        own.max(self.empties.iter().max().copied())
    }

    /// Keys in a range and their lists, without the shared empty one.
    pub(super) fn own(&self, range: impl RangeBounds<Txg>) -> impl Iterator<Item = (Txg, ObjectId)> {
        self.own.range(range).map(|(key, list)| (*key, *list))
    }

    /// Keys in `from..to`, in order.
    pub(super) fn within(&self, from: Txg, to: Txg) -> Vec<Txg> {
        let own = self.own.keys().chain(&self.empties).copied();
        let mut keys: Vec<Txg> = own.filter(|key| (from..to).contains(key)).collect();
        keys.sort_unstable();
        keys
    }

    /// Leaves counted keys.
    pub(super) fn split_off(&mut self, from: Txg) -> Keys {
        let own = self.own.split_off(&from);
        let empties = self.empties.extract_if(.., |key| *key >= from).collect();
        Keys { own, empties, counted: 0, are_sorted: self.are_sorted, empty: self.empty }
    }

    /// In no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Txg> {
        self.own.keys().chain(&self.empties).copied()
    }

    /// The shared empty one once per key.
    pub(super) fn into_lists(mut self) -> impl Iterator<Item = ObjectId> {
        std::mem::take(&mut self.own).into_values().chain(self.into_empties())
    }

    /// Once per key.
    pub(super) fn into_empties(self) -> impl Iterator<Item = ObjectId> {
        self.empty
            .into_iter()
            .flat_map(move |empty| std::iter::repeat_n(empty, self.empties.len() + self.counted))
    }

    fn sorted(&mut self) -> &[Txg] {
        if !self.are_sorted {
            self.empties.sort_unstable();
            self.are_sorted = true;
        }
        &self.empties
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: ObjectId = ObjectId(7);

    fn keys(of: &[(u64, u64)]) -> Keys {
        let mut keys = Keys::new(Some(EMPTY));
        of.iter().for_each(|&(key, list)| keys.add(Txg(key), ObjectId(list), Some(EMPTY)));
        keys
    }

    #[test]
    fn keys_are_found_whatever_their_order_was() {
        let mut keys = keys(&[(30, 7), (10, 7), (20, 5), (0, 7)]);
        assert_eq!((keys.len(), keys.last()), (4, Some(Txg(30))));
        assert_eq!(keys.last_before(Txg(30)), Some(Txg(20)));
        assert_eq!(keys.last_before(Txg(20)), Some(Txg(10)));
        assert_eq!(keys.last_before(Txg(0)), None);
        assert_eq!(keys.get(Txg(10)), Some(EMPTY));
        assert_eq!(keys.get(Txg(20)), Some(ObjectId(5)));
        assert_eq!(keys.get(Txg(15)), None);
        keys.set(Txg(10), ObjectId(9));
        assert_eq!(keys.own(..).collect::<Vec<_>>(), [(Txg(10), ObjectId(9)), (Txg(20), ObjectId(5))]);
        assert_eq!(keys.take(Txg(30)), Some(EMPTY));
        assert_eq!(keys.take(Txg(30)), None);
        keys.add(Txg(5), EMPTY, Some(EMPTY));
        assert_eq!(keys.within(Txg(0), Txg(20)), [Txg(0), Txg(5), Txg(10)]);
    }

    #[test]
    fn keys_that_go_take_their_lists_along() {
        let mut keys = keys(&[(30, 7), (10, 7), (20, 5), (0, 4)]);
        let gone = keys.split_off(Txg(10));
        assert_eq!((keys.len(), gone.len()), (1, 3));
        let mut lists: Vec<ObjectId> = gone.into_lists().collect();
        lists.sort();
        assert_eq!(lists, [ObjectId(5), EMPTY, EMPTY]);
    }

    #[test]
    fn counted_keys_stay_until_all_go() {
        let mut keys = keys(&[(30, 7), (20, 5), (0, 4)]);
        assert!(!keys.are_partial());
        keys.count(3);
        assert!(keys.are_partial());
        assert_eq!(keys.split_off(Txg(10)).into_lists().count(), 2);
        assert_eq!(keys.into_lists().collect::<Vec<_>>(), [ObjectId(4), EMPTY, EMPTY, EMPTY]);
    }
}
