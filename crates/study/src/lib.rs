//! Studies, as values: a request, how far it is meanwhile, an answer.
//!
//! ```text
//!   arc, cache   loads --> bench: a pool on modelled devices, virtual time --> answer --> report
//!   trace        a recorded load --> cenote_policy --> answer
//! ```
//!
//! Idea: a [`Study`] takes all that it needs with its request, tells a callback how far it is, and gives an
//! [`Answer`], which is figures (serde) and a [`Report`] on them. Options, layout and files of the user are
//! above this crate. `bench` knows how any load is run and measured; a study adds the loads, and what their
//! figures mean.
//!
//! Read in this order: [`Progress`], then [`cache`] as an example of a study, then `bench`.

pub mod arc;
mod bench;
pub mod cache;
mod error;
mod report;
pub mod trace;

pub use bench::Progress;
pub use error::{Result, StudyError};
pub use report::{Attachment, Part, Report, Table};

use cenote_runtime::Runtime;
use serde::Serialize;

/// What is asked for.
pub trait Study {
    /// What comes of it.
    type Answer: Answer;

    /// Runs it. Loads run in simulators with threads of their own; if this is dropped, the one that runs goes
    /// on to its end, unseen.
    ///
    /// # Errors
    /// The engine fails on a modelled pool, which it does not.
    fn run(
        self,
        rt: &Runtime,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> impl Future<Output = Result<Self::Answer>>;
}

/// What came of a study: its figures, as JSON, and how they are written down.
pub trait Answer: Serialize {
    /// For people.
    fn report(&self) -> Report;

    /// Tables that go with the report, as files.
    fn attachments(&self) -> Vec<Attachment> {
        Vec::new()
    }
}
