//! One stream of a corrective receive (`zfs receive -c`): lost blocks of its snapshot come back.
//!
//! Idea: only WRITE records count: they have the data of blocks that the snapshot has too; in an increment,
//! those that differ from its source. Blocks of metadata are not in a stream.
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`zfs_receive_one`), `dmu_recv.c` (`receive_process_write_record`).

use bytes::Bytes;
use cenote_codec::compress::Compression;
use cenote_format::bytes::Endian;
use cenote_format::stream::{Begin, Record, RecordFlags, StreamFeatures, Write};
use cenote_object::DatasetError;
use cenote_pool::Kept;
use cenote_tasks::{CorrectError, Corrected, Correction, Offer};

use crate::error::StreamError;
use crate::reader::{Item, StreamReader};
use crate::receive::Around;
use crate::receive::apply::{BATCH_BYTES, RECORD_BYTES};
use crate::receive::error::{ReceiveError, Result};
use crate::receive::name::{Place, Placing};

const CANT_RECONSTRUCT: &str = "corrective receive was not able to reconstruct the data needed for healing.";
const INCOMPATIBLE: &str = "stream is not compatible with the data in the pool.";

/// Checks that a stream can correct this snapshot.
pub(super) async fn check(
    Around { engine, order, .. }: Around<'_>,
    what: &'static str,
    place: &Place,
    begin: &Begin,
) -> Result<()> {
    let refuse = |why: &str| Err(ReceiveError::refused(what, why));
    if order.placing != Placing::Exact || order.is_forced || order.is_resumable || order.skips_holds {
        return refuse("corrective recv can not be used when combined with this flag");
    }
    let found = match engine.mos().await?.dataset(&place.full()).await {
        Err(DatasetError::NoDataset { .. }) => {
            return refuse("corrective recv must specify an existing snapshot to heal");
        }
        found => found?,
    };
    match found.guid() == begin.to_guid {
        true => Ok(()),
        false => refuse("local snapshot doesn't match the snapshot in the provided stream"),
    }
}

/// Corrects a snapshot from the rest of the stream that `begin` opened.
pub(super) async fn correct(
    Around { engine, .. }: Around<'_>,
    what: &'static str,
    reader: &mut StreamReader,
    place: &Place,
    begin: &Begin,
) -> Result<Corrected> {
    let is_raw = begin.features.has(StreamFeatures::RAW);
    let mut correction = match Correction::begin(engine, &place.full(), is_raw).await {
        Err(error) if error.is_locked() => {
            let why = "key must be loaded to do a non-raw corrective recv on an encrypted dataset.";
            return Err(ReceiveError::refused(what, why));
        }
        begun => begun.map_err(|error| ReceiveError::of_task(what, error))?,
    };
    let corrected = records(&mut correction, reader, is_raw).await;
    // Restored blocks stay, even if the rest fails.
    let done = correction.finish().await.map_err(|error| ReceiveError::of_task(what, error));
    corrected.map_err(|broken| match broken {
        Broken::Stream(source) => ReceiveError::Stream { what, source },
        Broken::Block(CorrectError::Mismatch { .. }) => ReceiveError::refused(what, CANT_RECONSTRUCT),
        Broken::Block(CorrectError::Size { .. }) | Broken::Form => ReceiveError::refused(what, INCOMPATIBLE),
        Broken::Block(CorrectError::Pool(error)) => ReceiveError::of_task(what, error),
    })?;
    done
}

enum Broken {
    Stream(StreamError),
    Block(CorrectError),
    /// Blocks that this machine can't store.
    Form,
}

async fn records(correction: &mut Correction, reader: &mut StreamReader, is_raw: bool) -> Result<(), Broken> {
    let (mut offers, mut bytes) = (Vec::new(), 0);
    loop {
        let next = reader.next().await.map_err(Broken::Stream)?;
        let Some(Item { record, payload, .. }) = next else {
            return Err(Broken::Stream(StreamError::Incomplete));
        };
        match record {
            Record::End(_) => break,
            Record::Write(write) => {
                // Empty blocks, too, must not gather for ever.
                bytes += payload.len() as u64 + RECORD_BYTES;
                let kept = kept(&write, payload, is_raw, reader.endian())?;
                let Write { object, offset, logical_bytes, .. } = write;
                offers.push(Offer { object, offset, logical_bytes, kept });
            }
            _ => {}
        }
        if bytes >= BATCH_BYTES {
            correction.correct(std::mem::take(&mut offers)).await.map_err(Broken::Block)?;
            bytes = 0;
        }
    }
    correction.correct(offers).await.map_err(Broken::Block)
}

/// A record's content.
fn kept(write: &Write, payload: Bytes, is_raw: bool, endian: Endian) -> Result<Kept, Broken> {
    if is_raw {
        return match write.flags.has(RecordFlags::RAW_BYTESWAP) {
            true => Err(Broken::Form),
            false => Ok(Kept::Sealed(payload)),
        };
    }
    let is_bytes = !write.object_type.is_zap() || endian == Endian::NATIVE;
    match write.compression_id {
        _ if !is_bytes => Err(Broken::Form),
        0 => Ok(Kept::Clear(payload)),
        id => match Compression::try_from(id) {
            Ok(compression) => Ok(Kept::Packed { bytes: payload, compression }),
            Err(_) => Err(Broken::Form),
        },
    }
}
