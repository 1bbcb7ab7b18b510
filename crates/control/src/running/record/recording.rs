//! A recording: what is looked up and written in a pool's cache, and what its devices are sent, as it
//! happens.
//!
//! The file is CSV, compressed with zstd a piece at a time, so what was written before an end of any kind can
//! be read. A line of the cache (op `read` or `write`) begins with what a replay needs, then says which block
//! of which object it was; one of a device (`device_read`, `device_write`) has the class of its queue, the
//! vdev, and how many operations were joined in it. Lines at the end name the datasets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use cenote_cache::{LookUp, Wish};
use cenote_engine::Engine;
use cenote_format::units::DatasetId;
use cenote_pool::{Recording as Noted, Transfer};
use serde::{Deserialize, Serialize};

use crate::error::ControlError;

const LEVEL: i32 = 3;
const COLUMNS: &str = "id,time,size,class,op,hit,dataset,object,level,block,vdev,offset,joined\n";

/// A recording under way. Readers never wait for it.
pub struct Recording<W> {
    engine: Engine,
    file: W,
    look_ups: Arc<Noted<LookUp>>,
    transfers: Arc<Noted<Transfer>>,
    datasets: BTreeSet<DatasetId>,
    recorded: Recorded,
}

/// What a recording has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Lines of the cache.
    pub look_ups: u64,
    /// Lines of devices.
    pub transfers: u64,
    /// What was not written in time.
    pub lost: u64,
}

impl<W: Write> Recording<W> {
    /// Begins one; by a file that is not empty, whoever waits for it sees that.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn begin(engine: &Engine, file: W) -> io::Result<Recording<W>> {
        let look_ups = engine.cache().look_ups().record();
        let transfers = engine.pool().queue_settings().transfers().record();
        let (datasets, recorded) = Default::default();
        let mut begun = Recording { engine: engine.clone(), file, look_ups, transfers, datasets, recorded };
        begun.file.write_all(&packed(COLUMNS))?;
        Ok(begun)
    }

    /// Writes what has happened since the last time. To be called often: little of it is kept meanwhile.
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

    /// Ends it: writes the names of the datasets that were met. Errors name the file so.
    ///
    /// # Errors
    /// The file can't be written, or the pool can't be read.
    pub async fn end(mut self, name: &str) -> Result<Recorded, ControlError> {
        let names = names(&self.engine, &self.datasets).await?;
        self.file.write_all(&packed(&names)).map_err(ControlError::io(name))?;
        Ok(Recorded { lost: self.look_ups.lost() + self.transfers.lost(), ..self.recorded })
    }
}

/// Lines that name datasets. One that is gone has no name.
async fn names(engine: &Engine, datasets: &BTreeSet<DatasetId>) -> Result<String, ControlError> {
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

/// A frame of its own.
fn packed(text: &str) -> Vec<u8> {
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(text.len()));
    match zstd_safe::compress(&mut frame, text.as_bytes(), LEVEL) {
        Ok(_) => frame,
        // Only without memory or room, and there is room.
        Err(_) => text.as_bytes().to_vec(),
    }
}
