//! Studies, as values: a request, progress, an answer.
//!
//! ```text
//!   arc, cache   loads --> bench: a pool on modelled devices, virtual time --> answer --> report
//!   trace        a recorded load --> cenote_policy --> answer
//! ```
//!
//! Idea: a [`Study`] is a complete request and gives an [`Answer`]: figures (serde) and a [`Report`] on them.
//! Command-line options, layout and the user's files belong to the caller. `bench` runs and measures any
//! load; a study defines loads and interprets figures.
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

/// Request of a study.
pub trait Study {
    /// Figures and report.
    type Answer: Answer;

    /// Runs the study. Loads run in simulators with their own threads; if the future is dropped, the current
    /// one runs on to its end.
    ///
    /// # Errors
    /// The engine fails on a modelled pool, which it should not.
    fn run(
        self,
        rt: &Runtime,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> impl Future<Output = Result<Self::Answer>>;
}

/// Figures as JSON, and a report on them.
pub trait Answer: Serialize {
    /// Report for people.
    fn report(&self) -> Report;

    /// Tables beside the report, as files.
    fn attachments(&self) -> Vec<Attachment> {
        Vec::new()
    }
}
