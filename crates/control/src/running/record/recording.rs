//! A recording of a pool's cache look-ups and writes, and of the operations sent to its devices.
//!
//! The file is CSV, compressed with zstd in frames, so everything written before any kind of end can be read.
//! A line of the cache (op `read` or `write`) begins with the fields that a replay needs, then names the
//! object and block; a line of a device (`device_read`, `device_write`) has its queue class, the vdev, and
//! the number of operations aggregated. Final lines name the datasets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use cenote_cache::{LookUp, Wish};
use cenote_engine::Engine;
use cenote_format::units::DatasetId;
use cenote_pool::{Recording as Noted, Transfer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;

const LEVEL: i32 = 3;
const COLUMNS: &str = "id,time,size,class,op,hit,dataset,object,level,block,vdev,offset,joined\n";

/// A recording in progress. Readers never wait for it.
pub struct Recording<W> {
    engine: Engine,
    file: W,
    look_ups: Arc<Noted<LookUp>>,
    transfers: Arc<Noted<Transfer>>,
    datasets: BTreeSet<DatasetId>,
    recorded: Recorded,
}

/// Counts of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recorded {
    /// Cache lines.
    pub look_ups: u64,
    /// Device lines.
    pub transfers: u64,
    /// Lines lost because they were not written in time.
    pub lost: u64,
}

impl<W: Write> Recording<W> {
    /// Starts a recording. Writes at once, so that a process waiting for the file sees it begin.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn begin(engine: &Engine, file: W) -> io::Result<Recording<W>> {
        let look_ups = engine.cache().look_ups().record();
        let transfers = engine.pool().devices().queue_settings().transfers().record();
        let (datasets, recorded) = Default::default();
        let mut begun = Recording { engine: engine.clone(), file, look_ups, transfers, datasets, recorded };
        begun.file.write_all(&packed(COLUMNS))?;
        Ok(begun)
    }

    /// Writes all that happened since the last call. Call it often: the buffer is small.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&mut self) -> io::Result<()> {
        let (seen, sent) = (self.look_ups.take(), self.transfers.take());
        self.recorded.look_ups += seen.len() as u64;
        self.recorded.transfers += sent.len() as u64;
        for text in [lines(&seen), device_lines(&sent)].iter().filter(|text| !text.is_empty()) {
            self.file.write_all(&packed(text))?;
        }
        self.datasets.extend(seen.iter().map(|seen| seen.place.dataset));
        Ok(())
    }

    /// Ends the recording: writes the names of the datasets seen. `name`: the file in errors.
    ///
    /// # Errors
    /// The file can't be written, or the pool can't be read.
    pub async fn end(mut self, name: &str) -> Result<Recorded, ControlError> {
        let names = names(&self.engine, &self.datasets).await?;
        self.file.write_all(&packed(&names)).map_err(ControlError::io(name))?;
        Ok(Recorded { lost: self.look_ups.lost() + self.transfers.lost(), ..self.recorded })
    }
}

/// Lines that name datasets. A destroyed dataset has no name.
async fn names(engine: &Engine, datasets: &BTreeSet<DatasetId>) -> Result<String, ControlError> {
    let mos = engine.mos().await?;
    let mut text = String::new();
    for &id in datasets {
        if let Ok(dataset) = mos.dataset_by_id(id).await {
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

fn packed(text: &str) -> Vec<u8> {
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(text.len()));
    match zstd_safe::compress(&mut frame, text.as_bytes(), LEVEL) {
        Ok(_) => frame,
        // Compression fails only without memory or buffer space, and the space suffices.
        Err(_) => text.as_bytes().to_vec(),
    }
}
