//! Records in memory, until their group is on disk.
//!
//! Source: OpenZFS `zil.c` (`zil_itx_assign`, `zil_async_to_sync`, `zil_remove_async`, `zil_clean`).

use std::collections::BTreeMap;

use cenote_format::units::{ObjectId, Txg};
use cenote_format::zil::record::Operation;

/// Records by group.
#[derive(Default)]
pub(super) struct Records {
    groups: BTreeMap<Txg, OfGroup>,
    /// The last group with something that no record says.
    unsaid: Txg,
}

#[derive(Default)]
struct OfGroup {
    /// To be written with the next commit, in this order.
    ordered: Vec<Operation>,
    /// To be written when their object is committed.
    waiting: BTreeMap<ObjectId, Vec<Operation>>,
}

impl Records {
    pub(super) fn append(&mut self, txg: Txg, operation: Operation) {
        let group = self.groups.entry(txg).or_default();
        match may_be_late(&operation) {
            Some(object) => group.waiting.entry(object).or_default().push(operation),
            None => group.ordered.push(operation),
        }
    }

    pub(super) fn cannot_say(&mut self, txg: Txg) {
        self.unsaid = self.unsaid.max(txg);
    }

    /// The last group with something that only that group itself can make durable.
    pub(super) fn unsaid(&self) -> Txg {
        self.unsaid
    }

    /// What waits with an object, or with any, is to be written with the next commit.
    pub(super) fn release(&mut self, object: Option<ObjectId>) {
        for group in self.groups.values_mut() {
            let released = match object {
                Some(object) => group.waiting.remove(&object).unwrap_or_default(),
                None => std::mem::take(&mut group.waiting).into_values().flatten().collect(),
            };
            group.ordered.extend(released);
        }
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        self.groups.values_mut().for_each(|group| _ = group.waiting.remove(&object));
    }

    pub(super) fn drop_through(&mut self, txg: Txg) {
        self.groups = self.groups.split_off(&Txg(txg.0 + 1));
    }

    /// Whether anything is to be written that group `synced` does not cover.
    pub(super) fn has_any(&self, synced: Txg) -> bool {
        self.groups.iter().any(|(txg, group)| *txg > synced && !group.ordered.is_empty())
    }

    /// What is to be written and not covered by group `synced`, in order.
    pub(super) fn take(&mut self, synced: Txg) -> Vec<(Txg, Operation)> {
        self.drop_through(synced);
        let of_group = |(&txg, group): (&Txg, &mut OfGroup)| {
            std::mem::take(&mut group.ordered).into_iter().map(move |operation| (txg, operation))
        };
        self.groups.iter_mut().flat_map(of_group).collect()
    }
}

/// The object that a record is about, if it is about nothing else: it may come after records of operations that came later
/// (`TX_OOO`).
fn may_be_late(operation: &Operation) -> Option<ObjectId> {
    match operation {
        Operation::Write { object, .. }
        | Operation::Truncate { object, .. }
        | Operation::SetAttr { object, .. }
        | Operation::SetAcl { object, .. }
        | Operation::SetAclV0 { object, .. }
        | Operation::SetSaXattr { object, .. }
        | Operation::CloneRange { object, .. } => Some(*object),
        _ => None,
    }
}
