//! Provisioning: unmapping, zeroing, and block status.
//!
//! Unmapped ranges read as zeros (`LBPRZ`), even parts of a volume's blocks. Only whole blocks free space.

use bytes::{BufMut, Bytes, BytesMut};

use super::{BLOCK_BYTES, Outcome, Request, Sense, written};

/// Descriptors of one UNMAP.
pub(super) const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// Blocks of one WRITE SAME: 1 GiB.
pub(super) const WRITE_SAME_BLOCKS_MAX: u64 = 1 << 21;
/// Most extents in one GET LBA STATUS answer.
const EXTENTS_MAX: usize = 512;
/// Bytes that WRITE SAME writes at a time.
const PATTERN_BYTES: u64 = 1 << 20;

impl Request<'_> {
    pub(super) async fn unmap(&self) -> Outcome {
        // ANCHOR: anchored blocks are not supported.
        if self.cdb.byte(1) & 1 != 0 {
            return Err(Sense::INVALID_FIELD.into());
        }
        let list = &self.data[..];
        if list.is_empty() {
            return Ok(Bytes::new());
        }
        let Some((header, list)) = list.split_first_chunk::<8>() else {
            return Err(Sense::LIST_LENGTH.into());
        };
        let len = usize::from(u16::from_be_bytes([header[2], header[3]])).min(list.len());
        let descriptors = list[..len].as_chunks::<16>().0;
        if descriptors.len() > UNMAP_DESCRIPTORS_MAX as usize {
            return Err(Sense::INVALID_PARAMETER.into());
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let mut spans = Vec::with_capacity(descriptors.len());
        for descriptor in descriptors {
            let (lba, count) = (number(&descriptor[..8]), number(&descriptor[8..12]));
            if count > 0 {
                spans.push(self.span(lba, count)?);
            } else if lba > self.blocks() {
                return Err(Sense::OUT_OF_RANGE.into());
            }
        }
        self.may_write()?;
        let _shared = self.lun().alone.read().await;
        for span in spans {
            written(self.unit().zero(span).await)?;
        }
        Ok(Bytes::new())
    }

    pub(super) async fn write_same(&self) -> Outcome {
        const ANCHOR: u8 = 0x10;
        const PROTECT: u8 = 0xe0;
        let flags = self.cdb.byte(1);
        let (lba, count) = self.cdb.blocks();
        let has_no_data = self.cdb.out_bytes() == 0;
        // PBDATA and LBDATA of WRITE SAME (10) are obsolete.
        let is_obsolete = self.cdb.opcode() == super::cdb::op::WRITE_SAME_10 && flags & 6 != 0;
        if flags & (PROTECT | ANCHOR) != 0 || is_obsolete || count == 0 || count > WRITE_SAME_BLOCKS_MAX {
            return Err(Sense::INVALID_FIELD.into());
        }
        let span = self.span(lba, count)?;
        if !has_no_data && self.data.len() as u64 != BLOCK_BYTES {
            return Err(Sense::INVALID_FIELD.into());
        }
        let _shared = self.lun().alone.read().await;
        let is_zero = self.data.iter().all(|&byte| byte == 0);
        // Zeros free space with or without UNMAP. Other data must be written in any case.
        if is_zero {
            written(self.unit().zero(span).await)?;
            return Ok(Bytes::new());
        }
        let most = (span.end - span.start).min(PATTERN_BYTES);
        let mut pattern = BytesMut::with_capacity(most as usize);
        (0..most / BLOCK_BYTES).for_each(|_| pattern.extend_from_slice(&self.data));
        let pattern = pattern.freeze();
        let mut at = span.start;
        while at < span.end {
            let len = (span.end - at).min(most);
            written(self.unit().write(at, pattern.slice(..len as usize)).await)?;
            at += len;
        }
        Ok(Bytes::new())
    }

    pub(super) async fn lba_status(&self) -> Outcome {
        let lba = self.cdb.number(2, 8);
        let span = self.span(lba, 1)?;
        let end = self.blocks() * BLOCK_BYTES;
        let mut extents: Vec<(u64, u64, bool)> = Vec::new();
        let most = (self.cdb.list_bytes().saturating_sub(8) / 16).clamp(1, EXTENTS_MAX as u64) as usize;
        let mut at = span.start;
        while at < end && extents.len() < most {
            let (is_data, to) = self.unit().extent(at..end).await?;
            // The count has 32 bits.
            let to = to.min(at + (u64::from(u32::MAX) & !7) * BLOCK_BYTES).max(at + BLOCK_BYTES);
            extents.push((at / BLOCK_BYTES, (to - at) / BLOCK_BYTES, is_data));
            at = to;
        }
        let mut answer = BytesMut::with_capacity(8 + 16 * extents.len());
        answer.put_u32(4 + 16 * extents.len() as u32);
        answer.put_u32(0);
        for (lba, count, is_data) in extents {
            answer.put_u64(lba);
            answer.put_u32(count as u32);
            // Provisioning status: mapped, or deallocated.
            answer.put_u32(u32::from(!is_data) << 24);
        }
        Ok(self.cdb.cut(answer.into()))
    }
}
