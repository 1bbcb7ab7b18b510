//! What a read says of its block.

use crate::alloc::KeptSpace;
use crate::crypt::DatasetKey;
use crate::second::Secondary;
use crate::zbookmark::Zbookmark;
use std::sync::Arc;

/// Context of a read: what the block is, and the key for it.
#[derive(Debug, Default, Clone)]
pub struct ReadContext {
    /// Named in errors.
    pub place: Zbookmark,
    /// Opens encrypted blocks.
    pub key: Option<Arc<DatasetKey>>,
    /// Whether cache devices may take it.
    pub secondary: Secondary,
    /// The space of the tree that leads to it, if it is not that of the view that it is read through.
    pub kept: Option<KeptSpace>,
    /// An intent log leads to it.
    pub in_log: Option<InLog>,
    /// What is wanted of it.
    pub form: Form,
}

/// How far a block goes through the pipeline that reads it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The owner's bytes.
    #[default]
    Clear,
    /// Decrypted, and compressed as it is stored.
    Compressed,
    /// As it is stored.
    Stored,
}

/// What a reader knows of a block that an intent log leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InLog {
    /// It may never have been written.
    MayEnd,
    /// The log was claimed with it: it was there, on one device at least.
    Claimed,
}

impl ReadContext {
    /// For a block that is not encrypted.
    pub fn new(place: Zbookmark) -> ReadContext {
        ReadContext { place, ..ReadContext::default() }
    }

    /// For a block of an intent log, or one that a record there names. It may never have been written, unless
    /// the log was claimed with it.
    pub fn of_log(place: Zbookmark, is_claimed: bool) -> ReadContext {
        let in_log = if is_claimed { InLog::Claimed } else { InLog::MayEnd };
        ReadContext { in_log: Some(in_log), ..ReadContext::new(place) }
    }

    /// The same with a key, if there is one.
    pub fn with_key(mut self, key: Option<Arc<DatasetKey>>) -> ReadContext {
        self.key = key;
        self
    }
}
