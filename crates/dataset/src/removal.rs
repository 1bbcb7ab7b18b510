//! Removal of a top-level vdev.
//!
//! Idea: its blocks are copied to other vdevs in offset order, and stay in use until all are copied; then the
//! vdev becomes its map. Until then a copied range is allocated, and freed, in both places.
//!
//! Source: OpenZFS `vdev_removal.c` (`spa_vdev_copy_impl`, `free_from_removing_vdev`).

use cenote_format::blkptr::Dva;
use cenote_format::indirect::IndirectMapping;
use cenote_format::units::ObjectId;
use cenote_object::Result;
use cenote_pool::VdevConfig;

use crate::import::indirect::read_mapping;
use crate::mos::Mos;

impl Mos {
    /// Copies, so far, of the allocated ranges (`start..end`) of a vdev being removed; none for other vdevs.
    ///
    /// # Errors
    /// The map is damaged.
    pub async fn removal_copies(
        &self,
        vdev: &VdevConfig,
        allocated: impl Iterator<Item = (u64, u64)>,
    ) -> Result<Vec<Dva>> {
        let object = vdev.indirect_object;
        if !vdev.removing || object == ObjectId(0) {
            return Ok(Vec::new());
        }
        let mapping = IndirectMapping::new(read_mapping(self.objset(), object).await?);
        let mapping = mapping.map_err(|error| self.objset().format(object, error))?;
        let copied_to = mapping.end_bytes();
        let copied =
            allocated.map(|(start, end)| (start, end.min(copied_to))).filter(|(start, end)| start < end);
        Ok(copied.flat_map(|(start, end)| mapping.resolve(start, end - start)).collect())
    }
}
