//! Lists of dissolved deadlists, on their way to a later one.
//!
//! Idea: if adjacent snapshots are destroyed in one task, their deadlists end in that of the next version.
//! Merging each into the following one would move every list as often as snapshots follow. Here lists of one
//! key are joined as they come, and move to the last deadlist once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use cenote_format::units::{ObjectId, Txg};

use crate::deadlist::append::BlockLists;
use crate::error::Result;

/// Lists without a deadlist.
#[derive(Debug, Default)]
pub struct Remains {
    /// By the txg after which their blocks were born.
    pub(super) by_birth: BTreeMap<Txg, ObjectId>,
    /// Of pools before version 26.
    pub(super) plain: Vec<ObjectId>,
}

impl Remains {
    pub(super) async fn add(&mut self, lists: BlockLists<'_>, key: Txg, list: ObjectId) -> Result<()> {
        match self.by_birth.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(list);
            }
            Entry::Occupied(entry) => {
                lists.append_list(*entry.get(), list).await?;
            }
        }
        Ok(())
    }
}
