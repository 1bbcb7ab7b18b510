//! The entries of a ZAP in a stream: directories and tables.

use cenote_format::FormatError;
use cenote_format::bytes::Endian;
use cenote_format::units::ObjectId;
use cenote_format::zap::{Leaf, ZBT_LEAF, ZapBlock0};
use cenote_fs::FsError;

use super::{Result, Sent, damaged};

impl Sent {
    /// Visits all entries of a ZAP, in disk order: name, and the integers of the value.
    pub(super) fn entries(&mut self, id: ObjectId, mut visit: impl FnMut(&[u8], &[u64])) -> Result<()> {
        let format = |source: FormatError| FsError::Format { object: id, source };
        let (record, _) = self.object(id)?;
        if !record.object_type.is_zap() {
            return Err(damaged(id, "is no directory or table"));
        }
        let Some((0, block)) = self.block(id, 0)? else {
            return Err(damaged(id, "its first block is missing"));
        };
        let fat = match ZapBlock0::decode(block, self.endian).map_err(format)? {
            ZapBlock0::Micro(micro) => {
                micro.entries().for_each(|entry| visit(entry.name, &[entry.value]));
                return Ok(());
            }
            ZapBlock0::Fat(fat) => fat,
        };
        let block_bytes = fat.block_bytes() as u64;
        let (mut offset, end) = (block_bytes, fat.free_block.0.saturating_mul(block_bytes));
        let mut name = Vec::new();
        while let Some((at, block)) = self.block(id, offset)?.filter(|(at, _)| *at < end) {
            offset = at.saturating_add(1);
            if first_word(&block, self.endian) != Some(ZBT_LEAF) {
                continue;
            }
            let leaf = Leaf::decode(block, self.endian).map_err(format)?;
            for entry in leaf.entries() {
                let entry = entry.map_err(format)?;
                entry.read_name(&mut name).map_err(format)?;
                visit(&name, &entry.value_words().map_err(format)?);
            }
        }
        Ok(())
    }
}

fn first_word(block: &[u8], endian: Endian) -> Option<u64> {
    block.first_chunk().map(|word| endian.u64(*word))
}
