//! The error log: blocks that scrubs and reads found damaged.
//!
//! Idea: two lists, of the scrub under way and of the time before. In older pools a list names each block of
//! each snapshot; since feature `head_errlog` a list is a table of file systems, each with its own list of
//! blocks and births, from which the snapshots concerned follow (see `affected`).
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
use serde::{Deserialize, Serialize};

use crate::mos::Mos;

/// A block in the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

    /// The pointer at a place, as this tree has it.
    ///
    /// # Errors
    /// There is no such dataset or object, or what leads there can't be read.
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

/// The pointer at a place in an object set.
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
