//! Records in memory, until their group is on disk.
//!
//! Source: OpenZFS `zil.c` (`zil_itx_assign`, `zil_async_to_sync`, `zil_remove_async`, `zil_clean`).

use std::collections::BTreeMap;

use cenote_format::units::{ObjectId, Txg};
use cenote_format::zil::record::Operation;

/// Records by group.
#[derive(Default)]
pub(super) struct Records(BTreeMap<Txg, OfGroup>);

#[derive(Default)]
struct OfGroup {
    /// To be written with the next commit, in this order.
    ordered: Vec<Operation>,
    /// To be written when their object is committed.
    waiting: BTreeMap<ObjectId, Vec<Operation>>,
}

impl Records {
    pub(super) fn append(&mut self, txg: Txg, operation: Operation) {
        let group = self.0.entry(txg).or_default();
        match may_be_late(&operation) {
            Some(object) => group.waiting.entry(object).or_default().push(operation),
            None => group.ordered.push(operation),
        }
    }

    /// What waits with an object, or with any, is to be written with the next commit.
    pub(super) fn release(&mut self, object: Option<ObjectId>) {
        for group in self.0.values_mut() {
            let released = match object {
                Some(object) => group.waiting.remove(&object).unwrap_or_default(),
                None => std::mem::take(&mut group.waiting).into_values().flatten().collect(),
            };
            group.ordered.extend(released);
        }
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        self.0.values_mut().for_each(|group| _ = group.waiting.remove(&object));
    }

    pub(super) fn drop_through(&mut self, txg: Txg) {
        self.0 = self.0.split_off(&Txg(txg.0 + 1));
    }

    /// Whether anything is to be written that group `synced` does not cover.
    pub(super) fn has_any(&self, synced: Txg) -> bool {
        self.0.iter().any(|(txg, group)| *txg > synced && !group.ordered.is_empty())
    }

    /// What is to be written and not covered by group `synced`, in order.
    pub(super) fn take(&mut self, synced: Txg) -> Vec<(Txg, Operation)> {
        self.drop_through(synced);
        let of_group = |(&txg, group): (&Txg, &mut OfGroup)| {
            std::mem::take(&mut group.ordered).into_iter().map(move |operation| (txg, operation))
        };
        self.0.iter_mut().flat_map(of_group).collect()
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
