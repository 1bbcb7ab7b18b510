//! Appending to space maps, and truncating them.
//!
//! Source: OpenZFS `space_map.c` (`space_map_write`, `space_map_histogram_add`, `space_map_truncate`).

use cenote_boxed::boxed;
use cenote_dataset::spacemaps::SpaceMapHead;
use cenote_format::dnode::ObjectType;
use cenote_format::space_map::{
    MapType, SPACE_MAP_HISTOGRAM_SIZE, SPACE_MAP_SIZE_V0, Segment, SpaceMapPhys, SpaceMapWriter,
};
use cenote_format::units::{BlockId, ObjectId, VdevId};
use cenote_format::words::{Pad, Phys, Words};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{Edit, NewObject, Result};
use cenote_pool::alloc::SizeHistogram;

/// `space_map_ibs`.
const INDIRECT_BLOCK_SHIFT: u8 = 14;
const HISTOGRAM_FEATURE: &str = "spacemap_histogram";
const LONG_ENTRIES_FEATURE: &str = "spacemap_v2";

/// Editor of a space map.
#[derive(Debug, Clone, Copy)]
pub struct SpaceMapEdit<'a> {
    mos: &'a Edit,
    object: ObjectId,
    shift: u32,
}

/// A change of a range, relative to the map's start.
#[derive(Debug, Clone, Copy)]
pub struct SpaceMapChange {
    /// Allocated or freed.
    pub map_type: MapType,
    /// Its vdev, in a log space map.
    pub vdev: Option<VdevId>,
    /// Start.
    pub offset_bytes: u64,
    /// Length.
    pub run_bytes: u64,
}

impl<'a> SpaceMapEdit<'a> {
    /// Makes an empty map with units of `1 << shift` bytes (`space_map_alloc`).
    ///
    /// # Errors
    /// Damaged MOS.
    pub async fn create(mos: &'a Edit, block_bytes: u32, shift: u32) -> Result<SpaceMapEdit<'a>> {
        let features = FeatureCounts::of(mos);
        let head_bytes = match features.count(HISTOGRAM_FEATURE).await? {
            None => SPACE_MAP_SIZE_V0,
            Some(_) => {
                features.change(HISTOGRAM_FEATURE, 1).await?;
                SpaceMapPhys::COUNT * 8
            }
        };
        let new = NewObject::of(ObjectType::SPACE_MAP).block_bytes(block_bytes);
        let new = new.indirect_block_shift(INDIRECT_BLOCK_SHIFT);
        let new = new.bonus(ObjectType::SPACE_MAP_HEADER, vec![0; head_bytes]);
        Ok(SpaceMapEdit { mos, object: mos.create(&new).await?, shift })
    }

    /// An existing map with units of `1 << shift` bytes.
    pub fn new(mos: &'a Edit, object: ObjectId, shift: u32) -> SpaceMapEdit<'a> {
        SpaceMapEdit { mos, object, shift }
    }

    /// Its object.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Appends a pass's changes, all of one type (`space_map_write`).
    ///
    /// # Errors
    /// Damage; a range that is no multiple of the unit.
    #[boxed]
    pub async fn append(&self, changes: &[SpaceMapChange], sync_pass: u16) -> Result<()> {
        let Some(first) = changes.first() else { return Ok(()) };
        let (block_bytes, mut phys) = self.head().await?;
        let long_entries = FeatureCounts::of(self.mos).count(LONG_ENTRIES_FEATURE).await?.unwrap_or(0) > 0;
        let mut writer = SpaceMapWriter::new(block_bytes).after(phys.length_bytes);
        if !long_entries {
            writer = writer.one_word();
        }
        writer.debug(first.map_type, self.mos.txg(), sync_pass);
        let unit_mask = (1u64 << self.shift.min(63)) - 1;
        for change in changes {
            if (change.offset_bytes | change.run_bytes) & unit_mask != 0 || change.run_bytes == 0 {
                return Err(self.mos.damaged(self.object, "is to log a range of no whole units"));
            }
            let (offset, run) = (change.offset_bytes >> self.shift, change.run_bytes >> self.shift);
            writer.segment(Segment { map_type: change.map_type, vdev: change.vdev, offset, run });
            let sign = if change.map_type == MapType::Alloc { 1 } else { -1 };
            phys.alloc_bytes = phys.alloc_bytes.wrapping_add(sign * change.run_bytes.cast_signed());
        }
        let words = writer.into_words();
        self.mos.write_words(self.object, phys.length_bytes / 8, &words).await?;
        phys.length_bytes += words.len() as u64 * 8;
        self.set_head(SpaceMapPhys { object: self.object, ..phys }).await
    }

    /// Stores the histogram of free ranges, except in the oldest form (`space_map_histogram_add`).
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn set_free_ranges(&self, counts: &SizeHistogram) -> Result<()> {
        let (_, phys) = self.head().await?;
        let histogram = counts.to_space_map(self.shift);
        self.set_head(SpaceMapPhys { histogram, ..phys }).await
    }

    /// Empties the map (`space_map_truncate`).
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn truncate(&self) -> Result<()> {
        let (_, phys) = self.head().await?;
        let histogram = [0; SPACE_MAP_HISTOGRAM_SIZE];
        self.mos.punch(self.object, BlockId(0), u64::MAX).await?;
        self.set_head(SpaceMapPhys { length_bytes: 0, alloc_bytes: 0, histogram, ..phys }).await
    }

    /// Destroys the map (`space_map_free_obj`). An unreadable one counts as of the present form.
    ///
    /// # Errors
    /// Damage.
    pub async fn free(self) -> Result<()> {
        let dnode = self.mos.view().dnode(self.object).await;
        let counts_free = dnode.map_or(true, |dnode| dnode.bonus().len() > SPACE_MAP_SIZE_V0);
        let features = FeatureCounts::of(self.mos);
        if counts_free && features.count(HISTOGRAM_FEATURE).await?.is_some() {
            features.change(HISTOGRAM_FEATURE, -1).await?;
        }
        self.mos.destroy(self.object).await
    }

    async fn head(&self) -> Result<(usize, SpaceMapPhys)> {
        let object = self.mos.view().object(self.object).await?;
        // Appending relies on its checks.
        SpaceMapHead::of(&object, self.shift)?;
        let dnode = object.dnode();
        let mut phys = SpaceMapPhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| object.format(e))?;
        phys.pad = Pad;
        Ok((dnode.data_block_bytes as usize, phys))
    }

    async fn set_head(&self, phys: SpaceMapPhys) -> Result<()> {
        self.mos.set_bonus_words(self.object, &phys.to_words()).await
    }
}
