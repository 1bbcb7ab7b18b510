//! Commands that read and write blocks.

use bytes::{Bytes, BytesMut};

use super::cdb::{Access, op};
use super::{BLOCK_BYTES, Outcome, Request, Sense, TRANSFER_BYTES_MAX, Trouble, written};

/// Most blocks of one COMPARE AND WRITE.
pub(super) const COMPARE_BLOCKS_MAX: u8 = 255;
const COMPARE_BYTES: u64 = 1 << 20;
/// DPO and FUA, in the second byte.
const FUA: u8 = 0x08;
/// WRPROTECT, RDPROTECT, VRPROTECT.
const PROTECT: u8 = 0xe0;

impl Request<'_> {
    /// Byte range that a read, write or verify command covers.
    fn moved(&self) -> Outcome<std::ops::Range<u64>> {
        let (lba, count) = self.cdb.blocks();
        let is_short = matches!(self.cdb.opcode(), op::READ_6 | op::WRITE_6);
        // Protection information is not supported.
        if !is_short && self.cdb.byte(1) & PROTECT != 0 {
            return Err(Sense::INVALID_FIELD.into());
        }
        let span = self.span(lba, count)?;
        if span.end - span.start > TRANSFER_BYTES_MAX {
            return Err(Sense::INVALID_FIELD.into());
        }
        Ok(span)
    }

    fn is_fua(&self) -> bool {
        !matches!(self.cdb.opcode(), op::READ_6 | op::WRITE_6) && self.cdb.byte(1) & FUA != 0
    }

    pub(super) async fn read(&self) -> Outcome {
        let span = self.moved()?;
        if span.is_empty() {
            return Ok(Bytes::new());
        }
        if self.is_fua() {
            self.unit().flush().await?;
        }
        Ok(self.unit().read(span).await?)
    }

    /// WRITE and WRITE AND VERIFY. The latter does not read back: the pool verifies checksums when it reads
    /// from disks.
    pub(super) async fn write(&self) -> Outcome {
        let span = self.moved()?;
        let is_verified =
            matches!(self.cdb.opcode(), op::WRITE_VERIFY_10 | op::WRITE_VERIFY_12 | op::WRITE_VERIFY_16);
        // BYTCHK 10 is reserved.
        if is_verified && self.cdb.byte(1) & 6 == 4 {
            return Err(Sense::INVALID_FIELD.into());
        }
        // Short data: writes only the whole blocks received.
        let whole = self.data.len() - self.data.len() % BLOCK_BYTES as usize;
        let data = self.data.slice(..whole.min((span.end - span.start) as usize));
        if !data.is_empty() {
            let _shared = self.lun().alone.read().await;
            written(self.unit().write(span.start, data).await)?;
        }
        if self.is_fua() || is_verified {
            self.flush().await?;
        }
        Ok(Bytes::new())
    }

    async fn flush(&self) -> Outcome<()> {
        written(self.unit().flush().await)
    }

    pub(super) async fn verify(&self) -> Outcome {
        let (lba, count) = self.cdb.blocks();
        let bytchk = self.cdb.byte(1) >> 1 & 3;
        if self.cdb.byte(1) & PROTECT != 0 || bytchk == 2 {
            return Err(Sense::INVALID_FIELD.into());
        }
        let span = self.span(lba, count)?;
        if bytchk == 1 && span.end - span.start > TRANSFER_BYTES_MAX {
            return Err(Sense::INVALID_FIELD.into());
        }
        if bytchk != 0 && !span.is_empty() && (self.data.len() as u64) < self.cdb.out_bytes() {
            return Err(Sense::INVALID_FIELD.into());
        }
        let mut at = span.start;
        while at < span.end {
            let end = span.end.min(at + COMPARE_BYTES);
            let is = self.unit().read(at..end).await?;
            let done = (at - span.start) as usize;
            match bytchk {
                0 => {}
                1 => self.compare(&is, &self.data[done..][..is.len()], done)?,
                _ => {
                    for (index, block) in is.chunks(BLOCK_BYTES as usize).enumerate() {
                        self.compare(block, &self.data, done + index * BLOCK_BYTES as usize)?;
                    }
                }
            }
            at = end;
        }
        Ok(Bytes::new())
    }

    /// Fails with the offset of the first difference, if any.
    fn compare(&self, is: &[u8], wanted: &[u8], start: usize) -> Outcome<()> {
        if is == wanted {
            return Ok(());
        }
        let differs = is.iter().zip(wanted).position(|(is, wanted)| is != wanted);
        let information = Some((start + differs.unwrap_or(wanted.len())) as u64);
        Err(Trouble::Sense(Sense { information, ..Sense::MISCOMPARE }))
    }

    pub(super) async fn compare_and_write(&self) -> Outcome {
        let span = self.moved()?;
        let len = (span.end - span.start) as usize;
        if len == 0 {
            return Ok(Bytes::new());
        }
        if self.data.len() < 2 * len {
            return Err(Sense::INVALID_FIELD.into());
        }
        {
            let _alone = self.lun().alone.write().await;
            let is = self.unit().read(span.clone()).await?;
            self.compare(&is, &self.data[..len], 0)?;
            written(self.unit().write(span.start, self.data.slice(len..2 * len)).await)?;
        }
        if self.is_fua() {
            self.flush().await?;
        }
        Ok(Bytes::new())
    }

    pub(super) async fn or_write(&self) -> Outcome {
        let span = self.moved()?;
        if (self.data.len() as u64) < span.end - span.start {
            return Err(Sense::INVALID_FIELD.into());
        }
        if !span.is_empty() {
            let _alone = self.lun().alone.write().await;
            let mut whole = BytesMut::from(self.unit().read(span.clone()).await?);
            whole.iter_mut().zip(&self.data[..]).for_each(|(is, with)| *is |= with);
            written(self.unit().write(span.start, whole.freeze()).await)?;
        }
        if self.is_fua() {
            self.flush().await?;
        }
        Ok(Bytes::new())
    }

    /// Flushes the whole disk whatever the range: the intent log records no ranges.
    pub(super) async fn synchronize(&self) -> Outcome {
        let (lba, count) = self.cdb.blocks();
        self.span(lba, count)?;
        self.flush().await?;
        Ok(Bytes::new())
    }

    /// A hint: reads ahead at most [`TRANSFER_BYTES_MAX`], so that it ends soon.
    pub(super) async fn prefetch(&self) -> Outcome {
        let (lba, count) = self.cdb.blocks();
        let span = self.span(lba, count)?;
        let end = span.end.min(span.start + TRANSFER_BYTES_MAX);
        if span.start < end {
            self.unit().prefetch(span.start..end).await?;
        }
        Ok(Bytes::new())
    }

    /// Write-protection check for commands that make it after reading.
    pub(super) fn may_write(&self) -> Outcome<()> {
        debug_assert_eq!(self.cdb.known().map(|known| known.access), Some(Access::Write));
        if self.is_protected() { Err(Sense::WRITE_PROTECTED.into()) } else { Ok(()) }
    }
}
