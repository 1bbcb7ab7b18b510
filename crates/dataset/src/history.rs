//! Pool history: commands that changed the pool, and internal events.
//!
//! Source: OpenZFS `spa_history.c`.

use cenote_boxed::boxed;
use cenote_format::dsl::names::pool as names;
use cenote_format::history::{HistoryPhys, records};
use cenote_format::nvlist::Nvlist;
use cenote_format::units::ObjectId;
use cenote_format::words::Phys;
use cenote_object::Result;

use crate::mos::Mos;

impl Mos {
    /// All records, oldest first, with the keys of `cenote_format::history::key`. Malformed records are
    /// skipped.
    ///
    /// Memory: the size of the ring, which OpenZFS keeps below 32 MiB and Cenote below 1 GiB.
    ///
    /// # Errors
    /// The history object is damaged.
    #[boxed]
    pub async fn history(&self) -> Result<Vec<Nvlist>> {
        let Some(id) = self.directory_u64(names::HISTORY).await? else { return Ok(Vec::new()) };
        let object = self.objset().object(ObjectId(id)).await?;
        let phys = HistoryPhys::decode(object.dnode().bonus(), object.dnode().endian());
        let phys = phys.map_err(|e| object.format(e))?;
        let mut bytes = Vec::new();
        for range in phys.ranges().map_err(|e| object.format(e))? {
            if range.end > object.capacity_bytes() {
                return Err(object.damaged("claims a longer history than it has room for"));
            }
            bytes.extend_from_slice(&object.read(range.start, (range.end - range.start) as usize).await?);
        }
        Ok(records(&bytes).flatten().filter_map(|packed| Nvlist::decode(packed).ok()).collect())
    }
}
