//! A raw block by address: `VDEV:OFFSET:SIZE`, in hex, the notation of printed block pointers.
//!
//! ```text
//!   VDEV:OFFSET:LSIZE[/PSIZE]    PSIZE stored bytes (LSIZE if not given)
//! ```
//! A block's checksum is only in the pointer to it, so the bytes read here are not verified. On RAID-Z the
//! data columns are assembled as for a block of that size.

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_dataset::Mos;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr, Dva};
use cenote_format::bytes::Endian;
use cenote_format::units::{
    Asize, PhysicalBirth, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSHIFT, SPA_MINBLOCKSIZE, VdevId,
};
use cenote_pool::{ReadContext, Zbookmark};

use super::Sink;
use crate::error::{InspectError, Result};

/// The location of a block, as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The top-level vdev.
    pub vdev: VdevId,
    /// Bytes from the start of its allocatable space.
    pub offset_bytes: u64,
    /// Uncompressed size in bytes.
    pub lsize_bytes: u64,
    /// Stored size in bytes.
    pub psize_bytes: u64,
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong =
            || format!("'{text}' is not an address: use VDEV:OFFSET:SIZE or VDEV:OFFSET:LSIZE/PSIZE, in hex");
        let hex = |part: &str| u64::from_str_radix(part.trim_start_matches("0x"), 16).map_err(|_| wrong());
        let [vdev, offset, size] = text.split(':').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let (lsize, psize) = size.split_once('/').unwrap_or((size, size));
        let address = Address {
            vdev: VdevId(hex(vdev)?),
            offset_bytes: hex(offset)?,
            lsize_bytes: hex(lsize)?,
            psize_bytes: hex(psize)?,
        };
        let good =
            |size: u64| (SPA_MINBLOCKSIZE..=SPA_MAXBLOCKSIZE).contains(&size) && size.is_multiple_of(512);
        if !good(address.psize_bytes)
            || !good(address.lsize_bytes)
            || !address.offset_bytes.is_multiple_of(512)
        {
            return Err(format!("{}; sizes are multiples of 200 up to 1000000", wrong()));
        }
        Ok(address)
    }
}

/// Reads the stored bytes at an address, unverified. On a vdev with redundancy this is the data, without
/// parity.
///
/// # Errors
/// There is no such vdev or range, or its devices fail.
#[boxed]
pub async fn read(mos: &Mos, address: &Address) -> Result<Bytes> {
    let birth = mos.uberblock().txg;
    let vdevs = mos.pool().tree().vdevs();
    let asize = vdevs
        .psize_to_asize(address.vdev, address.psize_bytes, PhysicalBirth::in_txg(birth))
        .ok_or_else(|| {
            InspectError::Request(format!(
                "there is no vdev {}; the pool has {}",
                address.vdev,
                vdevs.tops().len()
            ))
        })?;
    let dva =
        Dva { vdev: address.vdev, offset_bytes: address.offset_bytes, asize: Asize(asize), gang: false };
    let [first, second] = dva.to_words();
    let sectors = |bytes: u64| (bytes >> SPA_MINBLOCKSHIFT) - 1;
    let mut words = [0; BLKPTR_BYTES / 8];
    (words[0], words[1]) = (first, second);
    words[6] = 1 << 63
        | (Checksum::Off as u64) << 40
        | (Compression::Off as u64) << 32
        | sectors(address.psize_bytes) << 16
        | sectors(address.lsize_bytes);
    words[10] = birth.0;
    Ok(mos
        .pool()
        .as_stored()
        .read(&Blkptr::from_words(words), &ReadContext::new(Zbookmark::default()))
        .await?)
}

/// Decompresses stored bytes with the named algorithm; `None` tries all and takes the first that succeeds.
///
/// # Errors
/// It does not decompress.
pub fn decompress(
    address: &Address,
    stored: &Bytes,
    algorithm: Option<&str>,
) -> Result<(&'static str, Bytes)> {
    let tried = (0..=u8::MAX).map_while(|id| Compression::try_from(id).ok());
    let wanted = tried.filter(|c| match algorithm {
        Some(name) => c.name() == name || c.name().starts_with(&format!("{name}-")),
        None => !matches!(c, Compression::Off | Compression::Inherit | Compression::On | Compression::Empty),
    });
    for compression in wanted {
        if let Ok(bytes) = compression.decompress(stored, address.lsize_bytes as usize) {
            return Ok((compression.name(), bytes.into()));
        }
    }
    let names = algorithm.unwrap_or("any algorithm");
    Err(InspectError::Request(format!(
        "the block does not decompress by {names} to {:x} bytes",
        address.lsize_bytes
    )))
}

/// The block as an array of pointers, like an indirect block.
pub fn pointers(sink: &mut dyn Sink, bytes: &[u8]) {
    sink.table("pointers", &["index", "pointer"]);
    for (i, raw) in bytes.chunks_exact(BLKPTR_BYTES).enumerate() {
        if let Ok(bp) = Blkptr::decode(raw, Endian::NATIVE)
            && !bp.is_hole()
        {
            sink.row(vec![i.into(), bp.into()]);
        }
    }
    sink.close();
}
