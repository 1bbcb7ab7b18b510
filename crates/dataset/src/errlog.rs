//! The error log: blocks that scrubs and reads found damaged.
//!
//! Idea: two lists, of the scrub under way and of the time before. In older pools a list names each block of
//! each snapshot; since feature `head_errlog` a list is a table of file systems, each with its own list of
//! blocks and births, from which the snapshots concerned follow (see `affected`).
//!
//! Source: OpenZFS `spa_errlog.c`.

mod affected;

use cenote_boxed::boxed;
use cenote_format::dsl::names::pool as names;
use cenote_format::errlog::{BlockBookmark, ErrorBookmark, parse_head_key};
use cenote_format::units::{ObjectId, Txg};
use cenote_object::{Result, Zap, ZapEntry};

use crate::mos::Mos;

/// A block in the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedError {
    /// The dataset (with feature `head_errlog`, the live one whose chain has the block), object, level and
    /// block.
    pub place: BlockBookmark,
    /// When the block was born, if the log says: which snapshots have it.
    pub birth: Option<Txg>,
    /// Found by the scrub under way or the last one, rather than before.
    pub by_last_scrub: bool,
}

impl Mos {
    /// All blocks in the error log.
    ///
    /// # Errors
    /// The log is damaged. A key that makes no sense is left out.
    #[boxed]
    pub async fn error_log(&self) -> Result<Vec<LoggedError>> {
        let mut found = Vec::new();
        for (name, by_last_scrub) in [(names::ERRLOG_LAST, false), (names::ERRLOG_SCRUB, true)] {
            let Some(log) = self.directory_zap(name).await? else { continue };
            for entry in log.to_vec().await? {
                if let Ok(place) = BlockBookmark::from_key(&entry.name) {
                    found.push(LoggedError { place, birth: None, by_last_scrub });
                } else {
                    self.head_errors(&entry, by_last_scrub, &mut found).await?;
                }
            }
        }
        Ok(found)
    }

    async fn head_errors(
        &self,
        head: &ZapEntry,
        by_last_scrub: bool,
        found: &mut Vec<LoggedError>,
    ) -> Result<()> {
        let (Ok(dataset), Some(list)) = (parse_head_key(&head.name), head.value.as_u64()) else {
            return Ok(());
        };
        for entry in Zap::open_id(self.objset(), ObjectId(list)).await?.to_vec().await? {
            let Ok(error) = ErrorBookmark::from_key(&entry.name) else { continue };
            let ErrorBookmark { object, level, block, birth } = error;
            let place = BlockBookmark { dataset, object, level, block };
            found.push(LoggedError { place, birth: (birth.0 != 0).then_some(birth), by_last_scrub });
        }
        Ok(())
    }
}
