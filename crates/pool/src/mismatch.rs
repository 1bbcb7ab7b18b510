//! What it means that a block's bytes are not what its pointer says.
//!
//! Idea: a mismatch is damage only if the block must be there. Intent logs end with blocks that were
//! allocated and never written; and a block that was freed while somebody still read an older tree may have
//! been written over. So each read knows what a mismatch would mean, and only damage is held against a
//! device: it is counted, noted, and reported. What may have been reused is noted as suspect, and looked at
//! again through a tree that is whole (`wrong`).
//!
//! | read | mismatch |
//! |---|---|
//! | through a view whose tree is whole ([`Pool::has_whole_tree`]) | damage |
//! | through an older view | may have been reused |
//! | of an intent log's chain | the log ends here |
//! | of a log that was claimed with the block ([`ReadContext::of_log`]) | damage, if no device has it |
//!
//! Source: OpenZFS `ZIO_FLAG_SPECULATIVE`.

use crate::check::Check;
use crate::context::{InLog, ReadContext};
use crate::pool::Pool;

/// What bytes mean that are not the block that was read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The block is damaged.
    Damage,
    /// The block was never written: an intent log ends.
    EndOfLog,
    /// The block may have been freed, and its space be another one's.
    MayBeReused,
}

impl Pool {
    /// What it means that all of a block is wrong, as was found just now.
    pub(crate) fn meaning(&self, check: &Check<'_>, ctx: &ReadContext) -> Mismatch {
        match ctx.in_log {
            Some(InLog::MayEnd) => Mismatch::EndOfLog,
            None if check.is_of_log() => Mismatch::EndOfLog,
            _ if self.has_kept(ctx.kept.as_ref()) => Mismatch::Damage,
            _ => Mismatch::MayBeReused,
        }
    }

    /// The same for a copy or column of a block that others have. In a log it may not have come to this
    /// device when the power went, though it did to others.
    pub(crate) fn meaning_of_part(&self, check: &Check<'_>, ctx: &ReadContext) -> Mismatch {
        match ctx.in_log {
            Some(_) => Mismatch::EndOfLog,
            None => self.meaning(check, ctx),
        }
    }
}
