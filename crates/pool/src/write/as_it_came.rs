//! Writes blocks that the sender compressed, and perhaps encrypted.
//!
//! Idea: a pointer states its block's compression and encryption, so the sender's form can be kept. Only
//! place and checksum are this pool's.
//!
//! Source: OpenZFS `zio.c` (`zio_write_compress` for `ZIO_FLAG_RAW`), `dmu_recv.c`
//! (`flush_write_batch_impl`).

use bytes::{Bytes, BytesMut};
use cenote_boxed::boxed;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, CryptParams};
use cenote_format::bytes::Endian;
use cenote_format::units::{Lsize, Psize, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE, Txg};

use super::{WriteProps, Written, refused};
use crate::alloc::Allocator;
use crate::as_stored::AsStored;
use crate::error::Result;
use crate::pool::Pool;

/// A block in its stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlock {
    /// Stored bytes.
    pub bytes: Bytes,
    /// Logical size.
    pub lsize: Lsize,
    /// Compression.
    pub compression: Compression,
    /// Byte order of the content.
    pub endian: Endian,
    /// Encryption; for types only authenticated, just the MAC counts.
    pub crypt: Option<CryptParams>,
}

impl StoredBlock {
    /// The decoded block; `None` if encrypted, or inconsistent.
    pub fn content(&self) -> Option<Bytes> {
        if self.crypt.is_some() {
            return None;
        }
        match self.compression {
            Compression::Off => Some(self.bytes.clone()),
            compression => compression.decompress(&self.bytes, self.lsize.0 as usize).ok().map(Bytes::from),
        }
    }
}

impl AsStored<'_> {
    /// Writes a block as it came. The caller has validated it, unless encrypted.
    ///
    /// # Errors
    /// Those of [`Pool::write`].
    #[boxed]
    pub async fn write(
        &self,
        space: &Allocator,
        block: &StoredBlock,
        props: &WriteProps,
        txg: Txg,
    ) -> Result<Written> {
        let stored = self.0.whole_units(block, props)?;
        let identity = props.identity(block.lsize.0, txg);
        let (psize, compression) = (Psize(stored.len() as u64), block.compression as u8);
        let mut bp = Blkptr::block(&identity, psize, compression, props.checksum as u8, props.fill)
            .with_endian(block.endian);
        if let Some(params) = &block.crypt {
            let is_encrypted = props.object_type.is_encrypted();
            bp = if is_encrypted { bp.with_crypt(params) } else { bp.with_mac(Some(params.mac)) };
        }
        let bp = self.0.with_checksum_of(bp, &stored, props).await?;
        self.0.txg_writes().store(space, bp, &stored, props, txg).await
    }
}

impl Pool {
    /// Padded to units that vdevs can store, unless encrypted: a MAC covers the bytes.
    fn whole_units(&self, block: &StoredBlock, props: &WriteProps) -> Result<Bytes> {
        let len = block.bytes.len() as u64;
        let is_size =
            |bytes: u64| bytes > 0 && bytes <= SPA_MAXBLOCKSIZE && bytes.is_multiple_of(SPA_MINBLOCKSIZE);
        if !is_size(block.lsize.0) || len == 0 || len > block.lsize.0 {
            return Err(refused(props.place, format!("a block can't have {len} of {} bytes", block.lsize)));
        }
        if block.crypt.is_some() || block.compression == Compression::Off {
            return match is_size(len) {
                true => Ok(block.bytes.clone()),
                false => Err(refused(props.place, format!("a block can't be stored in {len} bytes"))),
            };
        }
        let (least, unit) = self.tree().vdevs().alloc_unit_bytes();
        let whole = len.next_multiple_of(unit.max(SPA_MINBLOCKSIZE)).max(least).min(block.lsize.0);
        if whole == len {
            return Ok(block.bytes.clone());
        }
        let mut padded = BytesMut::from(&block.bytes[..]);
        padded.resize(whole as usize, 0);
        Ok(padded.freeze())
    }
}
