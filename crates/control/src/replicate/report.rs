//! The result of a replication.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::Stream;
use crate::error::Outcome;

/// The state of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It had the snapshot.
    UpToDate,
    /// It got it.
    Sent,
    /// It would get it.
    Planned,
}

/// One dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The source.
    pub source: String,
    /// The copy.
    pub target: String,
    /// Its state.
    pub state: State,
    /// The source's snapshot that both have.
    pub snapshot: String,
    /// When that was taken, in seconds since 1970; zero: there is none.
    pub snapshot_created_s: u64,
    /// Streams sent, or to send.
    pub streams: Vec<Stream>,
    /// An interrupted receive was continued.
    pub is_resumed: bool,
    /// Bytes sent, or to send.
    pub bytes: u64,
    /// Both sides have the same content; none: not compared.
    pub is_verified: Option<bool>,
}

impl Report {
    /// Nothing done yet.
    pub(super) fn of(source: &str, target: &str) -> Report {
        Report {
            source: source.into(),
            target: target.into(),
            state: State::UpToDate,
            snapshot: String::new(),
            snapshot_created_s: 0,
            streams: Vec::new(),
            is_resumed: false,
            bytes: 0,
            is_verified: None,
        }
    }

    /// A copy that differs is damage.
    pub(super) fn outcome(&self) -> Outcome {
        if self.is_verified == Some(false) { Outcome::Damaged } else { Outcome::Done }
    }
}
