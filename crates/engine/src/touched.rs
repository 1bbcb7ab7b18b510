//! The datasets that a command's tasks touched, so that their mounts may follow.
//!
//! Idea: a command costs in proportion to its changes. A task that changes few datasets says which
//! ([`crate::SyncContext::touch`]), one about the whole pool none ([`crate::Engine::run_on_pool`]); one that
//! says nothing may have touched all.
//!
//! ```text
//!   task: context.touch(..) --when done--> the command's Touched --Engine::touched--> the mounts of the pool
//! ```
//!
//! Only commands note: background work ([`crate::Engine::acting_for`] was not called) changes no dataset.

use std::collections::BTreeMap;

use cenote_format::units::DatasetId;

/// How a dataset was touched.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Touch {
    /// Its name then; it may have been renamed or destroyed since.
    pub name: String,
    /// The dataset changed or is gone; otherwise only snapshots of it did.
    pub is_itself: bool,
    /// All below it are touched, too: they inherit, and have its name in theirs.
    pub with_below: bool,
    /// It was made, or its reception completed.
    pub is_new: bool,
}

/// File systems and volumes touched by a command.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Touched {
    /// A task did not say which.
    pub is_all: bool,
    /// By the number of the head.
    pub heads: BTreeMap<DatasetId, Touch>,
}

impl Touched {
    /// Everything.
    pub fn all() -> Touched {
        Touched { is_all: true, heads: BTreeMap::new() }
    }

    /// Whether there is nothing to follow.
    pub fn is_empty(&self) -> bool {
        !self.is_all && self.heads.is_empty()
    }

    /// Adds a dataset.
    pub fn add(&mut self, id: DatasetId, touch: Touch) {
        let known = self.heads.entry(id).or_default();
        known.is_itself |= touch.is_itself;
        known.with_below |= touch.with_below;
        known.is_new |= touch.is_new;
        known.name = touch.name;
    }

    /// Adds those of a later task.
    pub fn merge(&mut self, later: Touched) {
        self.is_all |= later.is_all;
        later.heads.into_iter().for_each(|(id, touch)| self.add(id, touch));
    }
}

/// Which mounts depend on a task's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The dataset's own, which shows other snapshots.
    Snapshots,
    /// The dataset's own: it is gone, or has another content.
    Own,
    /// Also those below: a property or the name changed.
    Below,
    /// The dataset is new.
    New,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(name: &str, with_below: bool, is_new: bool) -> Touch {
        Touch { name: name.into(), is_itself: with_below || is_new, with_below, is_new }
    }

    #[test]
    fn a_later_task_adds_to_an_earlier_one_and_knows_the_newer_name() {
        let mut touched = Touched::default();
        assert!(touched.is_empty());
        touched.add(DatasetId(7), touch("tank/a", false, true));
        let mut later = Touched::default();
        later.add(DatasetId(7), touch("tank/b", true, false));
        later.add(DatasetId(8), touch("tank/c", false, false));
        touched.merge(later);
        assert_eq!(touched.heads[&DatasetId(7)], touch("tank/b", true, true));
        assert!(touched.heads.contains_key(&DatasetId(8)) && !touched.is_all);
        touched.merge(Touched::all());
        assert!(touched.is_all && touched.heads.len() == 2);
    }
}
