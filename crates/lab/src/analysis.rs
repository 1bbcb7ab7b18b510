//! Analysis: from a result to findings, as a careful engineer would argue them.
//!
//! Each part looks at one question and gives typed values with the numbers that they rest on, and [`Finding`]s with a sentence each:
//! are the repeats stable ([`stability`]); which target is faster, by how much, and do the data support that ([`compare`])... It is
//! deterministic and knows nothing of how it is shown.

mod compare;
mod finding;

pub use compare::{Comparison, Side, compare};
pub use finding::{Evidence, Finding, Severity};
