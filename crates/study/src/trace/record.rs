//! Records a pool's cache look-ups and writes, and its device operations, as they happen.
//!
//! The file is CSV, compressed with zstd piece by piece, so that all pieces before an abrupt end are
//! readable. A cache line (op `read` or `write`) begins with the columns that a replay needs, then identifies
//! block and object. A device line (`device_read`, `device_write`) has the class of its queue, the vdev, and
//! the number of operations aggregated in it. Lines at the end name the datasets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use cenote_cache::{LookUp, Wish};
use cenote_engine::Engine;
use cenote_format::units::DatasetId;
use cenote_pool::{Recording as Noted, Transfer};

use crate::error::Result;

const LEVEL: i32 = 3;
const COLUMNS: &str = "id,time,size,class,op,hit,dataset,object,level,block,vdev,offset,joined\n";

/// A running recording. Readers never wait for it.
pub struct Recording<W> {
    engine: Engine,
    file: W,
    look_ups: Arc<Noted<LookUp>>,
    transfers: Arc<Noted<Transfer>>,
    datasets: BTreeSet<DatasetId>,
    recorded: Recorded,
}

/// Totals of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Cache lines.
    pub look_ups: u64,
    /// Device lines.
    pub transfers: u64,
    /// Events lost because writes came too late.
    pub lost: u64,
}

impl<W: Write> Recording<W> {
    /// Begins a recording. It writes the header at once, so that a non-empty file tells waiting programs that
    /// the recording has begun.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn begin(engine: &Engine, file: W) -> Result<Recording<W>> {
        let look_ups = engine.cache().look_ups().record();
        let transfers = engine.pool().queue_settings().transfers().record();
        let (datasets, recorded) = Default::default();
        let mut begun = Recording { engine: engine.clone(), file, look_ups, transfers, datasets, recorded };
        begun.file.write_all(&packed(COLUMNS))?;
        Ok(begun)
    }

    /// Writes events since the last call. Call it often: the buffer is small.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&mut self) -> Result<()> {
        let (seen, sent) = (self.look_ups.take(), self.transfers.take());
        self.recorded.look_ups += seen.len() as u64;
        self.recorded.transfers += sent.len() as u64;
        for text in [lines(&seen), device_lines(&sent)].iter().filter(|text| !text.is_empty()) {
            self.file.write_all(&packed(text))?;
        }
        self.datasets.extend(seen.iter().map(|seen| seen.place.dataset));
        Ok(())
    }

    /// Ends the recording with the names of its datasets.
    ///
    /// # Errors
    /// The file can't be written, or the pool can't be read.
    pub async fn end(mut self) -> Result<Recorded> {
        let names = names(&self.engine, &self.datasets).await?;
        self.file.write_all(&packed(&names))?;
        Ok(Recorded { lost: self.look_ups.lost() + self.transfers.lost(), ..self.recorded })
    }
}

/// Lines that name datasets. Destroyed ones have no name.
async fn names(engine: &Engine, datasets: &BTreeSet<DatasetId>) -> Result<String> {
    let mos = engine.mos().await?;
    let mut text = String::new();
    for &id in datasets {
        if let Ok(dataset) = mos.dataset_by_id(id).await {
            // Writing to a string can't fail.
            let _ = writeln!(text, "# dataset {} {}", id.0, dataset.name());
        }
    }
    Ok(text)
}

fn lines(seen: &[LookUp]) -> String {
    let mut text = String::with_capacity(seen.len() * 64);
    for LookUp { now_ns, id, bytes, class, wish, place } in seen {
        let (op, hit) = match wish {
            Wish::Hit => ("read", "1"),
            Wish::Miss => ("read", "0"),
            Wish::Write => ("write", ""),
        };
        let (dataset, object, block) = (place.dataset.0, place.object.0, place.block.0);
        let (time, class, level) = (time(*now_ns), class.name(), place.level);
        // Writing to a string can't fail.
        let _ =
            writeln!(text, "{id},{time},{bytes},{class},{op},{hit},{dataset},{object},{level},{block},,,");
    }
    text
}

fn device_lines(sent: &[Transfer]) -> String {
    let mut text = String::with_capacity(sent.len() * 64);
    for Transfer { now_ns, leaf, class, is_write, offset_bytes, bytes, operations } in sent {
        let op = if *is_write { "device_write" } else { "device_read" };
        let (time, class, leaf) = (time(*now_ns), class.name(), leaf.0);
        let _ = writeln!(text, ",{time},{bytes},{class},{op},,,,,,{leaf},{offset_bytes},{operations}");
    }
    text
}

fn time(now_ns: u64) -> String {
    format!("{}.{:09}", now_ns / 1_000_000_000, now_ns % 1_000_000_000)
}

/// Compresses to a frame of its own.
fn packed(text: &str) -> Vec<u8> {
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(text.len()));
    match zstd_safe::compress(&mut frame, text.as_bytes(), LEVEL) {
        Ok(_) => frame,
        // Compression fails only without memory or space; `compress_bound` reserved the space.
        Err(_) => text.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

    use cenote_cache::CacheOptions;
    use cenote_device::{Device, MemoryDevice};
    use cenote_fs::write::NewKind;
    use cenote_policy::trace::Trace;
    use cenote_pool::VdevClass;
    use cenote_runtime::{Runtime, SimConfig};

    use super::*;
    use crate::bench::{Bench, open};

    #[test]
    fn a_recording_is_a_trace_that_names_its_datasets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv.zst");
        let file = std::fs::File::create_new(&path).unwrap();
        let recorded = Runtime::simulate(SimConfig::seed(1), async |rt| {
            let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", 128 << 20));
            let bench = Bench::make(&rt, vec![(disk.clone(), VdevClass::Normal)], Vec::new()).await?;
            let id = bench.create(bench.fs.root(), b"file".to_vec(), NewKind::Regular).await?;
            bench.write(id, 0, vec![7; 1 << 20].into()).await?;
            bench.close().await?;

            let cache = CacheOptions { data: true, ..CacheOptions::metadata(64 << 20) };
            let bench = Bench::of(&rt, open(&rt, vec![disk], cache).await?).await?;
            let mut recording = Recording::begin(&bench.engine, file)?;
            for _ in 0..2 {
                bench.fs.view().open_file(id).await?.read(0, 1 << 20).await?;
                recording.write()?;
            }
            recording.end().await
        });
        let recorded = recorded.0.unwrap();
        let trace = Trace::read(&path).unwrap();
        assert_eq!((recorded.look_ups, recorded.lost), (trace.requests.len() as u64, 0));
        assert!(trace.devices[0].operations > 0 && trace.devices[0].operations <= recorded.transfers);
        let parts = trace.parts.list();
        let data = parts.iter().find(|part| part.dataset == "lab" && part.class.name() == "data").unwrap();
        // Eight blocks of 128 KiB: missed at the first read, hit at the second.
        assert_eq!((data.sum.requests, data.sum.missed), (16, 8));
    }
}
