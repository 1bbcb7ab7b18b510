//! The caller's knowledge of a block to be read.

use crate::alloc::KeptSpace;
use crate::crypt::DatasetKey;
use crate::second::Secondary;
use crate::zbookmark::Zbookmark;
use std::sync::Arc;

/// Context of a read.
#[derive(Debug, Default, Clone)]
pub struct ReadContext {
    /// For error messages.
    pub place: Zbookmark,
    /// Opens encrypted blocks.
    pub key: Option<Arc<DatasetKey>>,
    /// Whether cache devices may take it.
    pub secondary: Secondary,
    /// Kept space of its tree, if not the view's.
    pub kept: Option<KeptSpace>,
    /// Set if an intent log leads to it.
    pub in_log: Option<InLog>,
    /// The form to return.
    pub form: Form,
}

/// How far a block is decoded.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Decrypted and decompressed.
    #[default]
    Clear,
    /// Decrypted, still compressed.
    Compressed,
    /// As stored.
    Stored,
}

/// Whether a block of an intent log must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InLog {
    /// It may never have been written.
    MayEnd,
    /// At least one device had it when the log was claimed.
    Claimed,
}

impl ReadContext {
    /// For an unencrypted block.
    pub fn new(place: Zbookmark) -> ReadContext {
        ReadContext { place, ..ReadContext::default() }
    }

    /// For a block of an intent log, or one that a log record names. Unless claimed, it may never have been
    /// written.
    pub fn of_log(place: Zbookmark, is_claimed: bool) -> ReadContext {
        let in_log = if is_claimed { InLog::Claimed } else { InLog::MayEnd };
        ReadContext { in_log: Some(in_log), ..ReadContext::new(place) }
    }

    /// Adds a key, if any.
    pub fn with_key(mut self, key: Option<Arc<DatasetKey>>) -> ReadContext {
        self.key = key;
        self
    }
}
