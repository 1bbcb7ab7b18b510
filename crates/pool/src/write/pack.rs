//! Compresses or embeds a block to be written.
//!
//! Compression must save an eighth, in units that the vdevs can store; otherwise the block is stored
//! uncompressed.
//!
//! Source: OpenZFS `zio_write_compress`, `zio_get_compression_max_size`, `zio_roundup_alloc_size`.

use super::{SYNC_PASS_DONT_COMPRESS, WriteProps, refused};
use crate::check::compression_work;
use crate::error::Result;
use crate::pool::Pool;
use bytes::Bytes;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{BPE_PAYLOAD_BYTES, Blkptr};
use cenote_format::bytes::is_zero;
use cenote_format::dnode::ObjectType;
use cenote_format::units::Txg;

pub(super) enum Packed {
    /// All zeros.
    Hole,
    /// In its pointer.
    Embedded(Blkptr),
    /// On disk, in whole sectors.
    Stored { bytes: Bytes, compression: Compression },
}

impl Pool {
    pub(super) async fn pack(&self, data: &Bytes, props: &WriteProps, txg: Txg) -> Result<Packed> {
        let as_it_is = || Packed::Stored { bytes: data.clone(), compression: Compression::Off };
        let compression = effective(props, txg);
        if compression == Compression::Off {
            return Ok(as_it_is());
        }
        if is_zero(data) {
            return Ok(Packed::Hole);
        }
        if compression == Compression::Empty {
            return Ok(as_it_is());
        }
        let (least, unit) = self.tree().vdevs().alloc_unit_bytes();
        let limit = longest_worthwhile(compression, data.len(), least as usize, unit as usize);
        self.runtime().work(compression_work(compression), data.len() as u64).await;
        let packed = compression.compress(data, limit, props.zstd_level);
        let Some(mut packed) = packed.map_err(|error| refused(props.place, error.to_string()))? else {
            return Ok(as_it_is());
        };
        if may_embed(props)
            && let Some(bp) =
                Blkptr::embedded(&props.identity(data.len() as u64, txg), compression as u8, &packed)
        {
            return Ok(Packed::Embedded(bp));
        }
        let stored = if packed.len() > least as usize {
            packed.len().next_multiple_of(unit as usize)
        } else {
            least as usize
        };
        if stored >= data.len() {
            return Ok(as_it_is());
        }
        // Exactly: the block may be kept until the txg is on disk, and counts with its length.
        packed.reserve_exact(stored - packed.len());
        packed.resize(stored, 0);
        Ok(Packed::Stored { bytes: packed.into(), compression })
    }
}

/// Off if the sync must converge.
fn effective(props: &WriteProps, txg: Txg) -> Compression {
    if props.is_written_again(txg) && props.sync_pass >= SYNC_PASS_DONT_COMPRESS {
        Compression::Off
    } else if props.must_stay_readable() && props.compression != Compression::Off {
        Compression::Empty
    } else {
        props.compression
    }
}

fn may_embed(props: &WriteProps) -> bool {
    // The payload overwrites the fill count, which these two types need.
    let needs_fill = matches!(props.object_type, ObjectType::DNODE | ObjectType::OBJSET);
    props.embed && props.place.level == 0 && props.key.is_none() && !needs_fill
}

fn longest_worthwhile(compression: Compression, len: usize, least: usize, unit: usize) -> usize {
    let saves_an_eighth = len - (len >> 3);
    if compression == Compression::Zle {
        // The compressor needs some room to work.
        return saves_an_eighth;
    }
    let stored = saves_an_eighth - saves_an_eighth % unit;
    if stored < least { BPE_PAYLOAD_BYTES } else { stored }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worth_compressing_depends_on_what_can_be_stored() {
        let limit = |len, least| longest_worthwhile(Compression::Lz4, len, least, least);
        assert_eq!(limit(128 << 10, 512), 112 << 10);
        assert_eq!(limit(128 << 10, 4096), 112 << 10);
        assert_eq!(limit(8192, 4096), 4096);
        // 3.5 KiB can't be stored where sectors have 4 KiB; only an embedded payload helps.
        assert_eq!(limit(4096, 4096), BPE_PAYLOAD_BYTES);
        assert_eq!(longest_worthwhile(Compression::Zle, 4096, 4096, 4096), 3584);
    }
}
