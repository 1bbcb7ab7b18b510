//! Error log: blocks that scrubs and reads found damaged.
//!
//! Idea: one list belongs to the running scrub, one to the time before. In older pools a list names each
//! block of each snapshot. With feature `head_errlog` a list maps each file system to its blocks and births,
//! which determine the affected snapshots (see `affected`).
//!
//! Source: OpenZFS `spa_errlog.c`.

mod affected;

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::names::pool as names;
use cenote_format::errlog::{BlockBookmark, ErrorBookmark, parse_head_key};
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::object::SPILL_BLOCK;
use cenote_object::objset::META_DNODE_OBJECT;
use cenote_object::{Objset, Result, Zap, ZapEntry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mos::Mos;

/// Logged block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedError {
    /// Dataset (with feature `head_errlog`, the live one of the block's chain), object, level and block.
    pub place: BlockBookmark,
    /// Birth, if logged: determines the affected snapshots.
    pub birth: Option<Txg>,
    /// Found by the current or last scrub, not earlier.
    pub by_last_scrub: bool,
}

impl Mos {
    /// All logged blocks; malformed keys are skipped.
    ///
    /// # Errors
    /// The log is damaged.
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

    /// Block pointer at a bookmark.
    ///
    /// # Errors
    /// The dataset or object does not exist, or the path is unreadable.
    #[boxed]
    pub async fn pointer_at(&self, place: &BlockBookmark) -> Result<Blkptr> {
        match place.dataset {
            DatasetId(0) => pointer(self.objset(), place).await,
            dataset => pointer(&self.dataset_by_id(dataset).await?.readable_objset().await?, place).await,
        }
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

async fn pointer(objset: &Objset, place: &BlockBookmark) -> Result<Blkptr> {
    let Ok(level) = u8::try_from(place.level) else { return Ok(*objset.bp()) };
    let object = match place.object {
        META_DNODE_OBJECT => objset.meta().ok_or_else(|| {
            objset.damaged(META_DNODE_OBJECT, "has a damaged block in the error log and none on disk")
        })?,
        object => objset.object(object).await?,
    };
    match place.block {
        SPILL_BLOCK => Ok(object.dnode().spill().unwrap_or(Blkptr::HOLE)),
        block => object.blkptr(level, block).await,
    }
}
