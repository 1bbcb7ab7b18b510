//! Tables of shared blocks: deduplication (DDT) and block references (BRT).
//!
//! Source: OpenZFS `ddt.c`, `ddt_zap.c`, `brt.c`.

use cenote_codec::compress::Compression;
use cenote_dataset::Mos;
use cenote_dataset::sharing::{Ddt, brt_entry};
use cenote_format::Phys;
use cenote_format::brt::{BRT_OBJECT_VDEV_PREFIX, BrtEntry, BrtVdevPhys};
use cenote_format::ddt::{
    DDT_CHECKSUMS, DDT_DIR_FLAGS, DDT_DIR_VERSION, DDT_FLAG_FLAT, DdtClass, DdtHistogram, DdtKey, DdtValue,
    ddt_blkptr, ddt_dir_name, ddt_log_name, ddt_object_name,
};
use cenote_format::dsl::names::pool as names;
use cenote_format::units::ObjectId;
use cenote_object::{Zap, ZapEntry};

use super::label::record;
use super::{Sink, Value, failure};
use crate::error::Result;

const BLOCK_COLUMNS: [&str; 2] = ["references", "pointer"];

/// Shows all deduplication tables and block reference tables; with `entries`, every entry.
///
/// # Errors
/// The object directory is damaged.
pub async fn tables(sink: &mut dyn Sink, mos: &Mos, entries: bool) -> Result<()> {
    sink.list("ddt");
    for (id, checksum) in DDT_CHECKSUMS {
        if let Err(error) = ddt(sink, mos, id, checksum, entries).await {
            sink.open(checksum);
            failure(sink, &error);
            sink.close();
        }
    }
    for table in mos.dedup_tables().await.unwrap_or_default() {
        if let Err(error) = ddt_logs(sink, &table, entries).await {
            sink.open("log");
            failure(sink, &error);
            sink.close();
        }
    }
    sink.close();
    sink.list("brt");
    let directory = mos.directory()?.to_vec().await?;
    for entry in directory.iter().filter(|entry| entry.name.starts_with(BRT_OBJECT_VDEV_PREFIX.as_bytes())) {
        sink.open(&entry.name_text());
        if let Err(error) = brt(sink, mos, entry, entries).await {
            failure(sink, &error);
        }
        sink.close();
    }
    sink.close();
    Ok(())
}

async fn ddt(sink: &mut dyn Sink, mos: &Mos, id: u8, checksum: &str, entries: bool) -> Result<()> {
    // Newer (flat) tables have their own directory; older ones are listed in the pool's.
    let own = mos.directory_zap(&ddt_dir_name(checksum)).await?;
    let flags = match &own {
        Some(zap) => zap.get_u64(DDT_DIR_FLAGS).await?.unwrap_or(0),
        None => 0,
    };
    let histograms = match &own {
        Some(zap) => Some(zap.clone()),
        None => mos.directory_zap(names::DDT_STATS).await?,
    };
    for class in DdtClass::ALL {
        let name = ddt_object_name(checksum, class);
        let table = match &own {
            Some(zap) => zap.get_u64(&name).await?,
            None => mos.directory_u64(&name).await?,
        };
        let Some(table) = table.filter(|&table| table != 0).map(ObjectId) else { continue };
        let zap = Zap::open_id(mos.objset(), table).await?;
        sink.open(&name);
        sink.field("table", name.as_str().into());
        sink.field("object", table.0.into());
        if let Some(own) = &own {
            sink.field("version", own.get_u64(DDT_DIR_VERSION).await?.into());
            sink.field("flags", Value::Hex(flags));
        }
        sink.field("entries", zap.count().into());
        if let Some(histograms) = &histograms {
            histogram(sink, histograms, &name).await?;
        }
        if entries {
            ddt_entries(sink, &zap, id, flags & DDT_FLAG_FLAT != 0).await;
        }
        sink.close();
    }
    Ok(())
}

/// Entries still in the logs; without `entries` only their number.
async fn ddt_logs(sink: &mut dyn Sink, table: &Ddt, entries: bool) -> cenote_object::Result<()> {
    let id = table.checksum_id;
    let checksum = DDT_CHECKSUMS.iter().find(|(other, _)| *other == id).map_or("", |(_, name)| name);
    for (index, log) in (0..).zip(table.logs().await?) {
        let name = ddt_log_name(checksum, index);
        sink.open(&name);
        sink.field("table", name.as_str().into());
        sink.field("object", log.object.0.into());
        sink.field("entries", log.items.len().into());
        record(sink, "ddt_log", &log.header);
        if entries {
            sink.table("blocks", &BLOCK_COLUMNS);
            log.items.iter().for_each(|item| blocks(sink, id, &item.key, &item.value));
            sink.close();
        }
        sink.close();
    }
    Ok(())
}

/// Number of blocks by reference count: 1, 2 to 3, 4 to 7...
async fn histogram(sink: &mut dyn Sink, zap: &Zap, name: &str) -> Result<()> {
    let Some(value) = zap.lookup(name.as_bytes()).await? else { return Ok(()) };
    let words: Vec<u64> = value.words().collect();
    let Ok(histogram) = DdtHistogram::from_words(&words) else { return Ok(()) };
    let columns = [
        "references",
        "blocks",
        "lsize",
        "psize",
        "dsize",
        "ref_blocks",
        "ref_lsize",
        "ref_psize",
        "ref_dsize",
    ];
    sink.table("histogram", &columns);
    for (i, bucket) in histogram.buckets.iter().enumerate().filter(|(_, bucket)| bucket.blocks != 0) {
        sink.row(vec![
            (1u64 << i).into(),
            bucket.blocks.into(),
            Value::Size(bucket.lsize_bytes),
            Value::Size(bucket.psize_bytes),
            Value::Size(bucket.dsize_bytes),
            bucket.referenced_blocks.into(),
            Value::Size(bucket.referenced_lsize_bytes),
            Value::Size(bucket.referenced_psize_bytes),
            Value::Size(bucket.referenced_dsize_bytes),
        ]);
    }
    sink.close();
    Ok(())
}

async fn ddt_entries(sink: &mut dyn Sink, zap: &Zap, checksum_id: u8, flat: bool) {
    sink.table("blocks", &BLOCK_COLUMNS);
    let mut failed = None;
    let mut batches = zap.entries();
    while let Some(batch) = batches.next_batch().await {
        match batch {
            Ok(batch) => {
                for entry in &batch {
                    match ddt_entry(entry, flat) {
                        Ok((key, value)) => blocks(sink, checksum_id, &key, &value),
                        Err(error) => failed = Some(error.to_string()),
                    }
                }
            }
            Err(error) => failed = Some(error.to_string()),
        }
        if sink.is_closed() {
            break;
        }
    }
    sink.close();
    if let Some(error) = failed {
        failure(sink, &error);
    }
}

fn blocks(sink: &mut dyn Sink, checksum_id: u8, key: &DdtKey, value: &DdtValue) {
    for phys in value.phys() {
        sink.row(vec![phys.refcount.into(), ddt_blkptr(checksum_id, key, &phys).into()]);
    }
}

fn ddt_entry(entry: &ZapEntry, flat: bool) -> cenote_format::Result<(DdtKey, DdtValue)> {
    let key = DdtKey::from_words(&entry.name_words())?;
    let packed = entry.value.as_bytes().map(|b| &b[..]).unwrap_or_default();
    let value = DdtValue::decode(packed, flat, |packed, len| Compression::Zle.decompress(packed, len).ok())?;
    Ok((key, value))
}

async fn brt(sink: &mut dyn Sink, mos: &Mos, directory: &ZapEntry, entries: bool) -> Result<()> {
    let id = ObjectId(directory.value.as_u64().unwrap_or(0));
    sink.field("table", directory.name_text().into());
    sink.field("object", id.0.into());
    let object = mos.objset().object(id).await?;
    let phys = BrtVdevPhys::decode(object.dnode().bonus(), object.dnode().endian());
    let phys = phys.map_err(|e| object.format(e))?;
    record(sink, "brt_vdev", &phys);
    if !entries || phys.entries_zap.0 == 0 {
        return Ok(());
    }
    let zap = Zap::open_id(mos.objset(), phys.entries_zap).await?;
    let all = zap.to_vec().await?;
    sink.table("blocks", &["offset", "references"]);
    for entry in all {
        if let Some(BrtEntry { offset_bytes, count }) = brt_entry(&entry, phys.endian()) {
            sink.row(vec![Value::Hex(offset_bytes), count.into()]);
        }
    }
    sink.close();
    Ok(())
}
