//! The oracle: which histories are right.
//!
//! ```text
//!   calls begin and end --> linear: every state that the pool may have now
//!                       --> history: every state that it may have had, and the durable part
//!   power cut, reopened --> crash: has it one of the states that it may have kept?
//!                       --> the history goes on from there
//! ```
//!
//! Idea: the model is sequential; clients are not. The oracle keeps the states of all orders of calls that
//! agree with the outcomes so far. A history is wrong once none is left.
//!
//! Read in this order: [`linear`], [`history`], [`crash`], [`torn`], [`space`], [`accounts`], [`links`],
//! [`accused`].

pub mod accounts;
pub mod accused;
pub mod crash;
pub mod history;
pub mod linear;
pub mod links;
pub mod space;
pub mod torn;

use std::sync::Arc;

use crate::model::{Action, BLOCK_BYTES, Call, CallId, DatasetId, Outcome, Pool};
use history::History;
use linear::Linear;

/// The fault of a wrong history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

/// Knows the calls so far.
#[derive(Default, Clone)]
pub struct Oracle {
    linear: Linear,
    history: History,
}

impl Oracle {
    /// A call begins.
    pub fn begin(&mut self, id: CallId, call: Arc<Call>) {
        self.history.begin(id, &call);
        self.linear.begin(id, call);
    }

    /// A call has ended.
    ///
    /// # Errors
    /// No order of the calls explains its outcome.
    pub fn end(&mut self, id: CallId, outcome: &Outcome) -> Result<(), Violation> {
        let call = self.linear.call(id);
        self.linear.end(id, outcome)?;
        self.history.end(id, self.linear.states_since());
        if *outcome != Outcome::Done {
            return Ok(());
        }
        match &call.action {
            // It returns when the txg is on disk, with all before.
            Action::Fsync { slot, .. } => {
                let states = self.linear.states();
                let files = states.filter_map(|state| state.open_file(call.client, *slot)).collect();
                self.history.committed(id, files);
            }
            Action::FlushVolume { .. } => self.history.committed(id, Default::default()),
            Action::WriteBlocks { is_durable: true, block, data, .. } => {
                let count = data.len() as u64 / BLOCK_BYTES;
                self.history.committed_blocks(id, *block..block + count);
            }
            _ if call.is_synced() => self.history.synced(id),
            _ => {}
        }
        Ok(())
    }

    /// Whether calls have not ended, or were given up.
    pub fn has_calls_under_way(&self) -> bool {
        self.linear.has_pending()
    }

    /// Snapshots of a dataset that are being taken.
    pub fn snapshots_at_work(&self, dataset: DatasetId) -> Vec<String> {
        let names = self.linear.under_way().filter_map(|call| match &call.action {
            Action::Snapshot { dataset: of, name } if *of == dataset => Some(name.clone()),
            _ => None,
        });
        names.collect()
    }

    /// States that the pool may have now.
    pub fn states(&self) -> impl Iterator<Item = &Pool> {
        self.linear.states()
    }
}
