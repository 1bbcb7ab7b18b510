//! The meaning of a checksum mismatch.
//!
//! Idea: a mismatch is damage only if the block must be there. Intent logs end with unwritten blocks, and a
//! block freed while a reader walks an older tree may have been overwritten. Only damage is counted against a
//! device, noted and reported. A possible reuse is checked again through a whole tree (`read_errors`).
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mismatch {
    Damage,
    /// Never written: an intent log ends.
    EndOfLog,
    /// Possibly freed, and its space reused.
    MayBeReused,
}

impl Pool {
    /// The meaning if all of a block is wrong.
    pub(crate) fn meaning(&self, check: &Check<'_>, ctx: &ReadContext) -> Mismatch {
        match ctx.in_log {
            Some(InLog::MayEnd) => Mismatch::EndOfLog,
            None if check.is_of_log() => Mismatch::EndOfLog,
            _ if self.has_kept(ctx.kept.as_ref()) => Mismatch::Damage,
            _ => Mismatch::MayBeReused,
        }
    }

    /// The meaning for a copy or column. A log block may have reached other devices before a power cut.
    pub(crate) fn meaning_of_part(&self, check: &Check<'_>, ctx: &ReadContext) -> Mismatch {
        match ctx.in_log {
            Some(_) => Mismatch::EndOfLog,
            None => self.meaning(check, ctx),
        }
    }
}
