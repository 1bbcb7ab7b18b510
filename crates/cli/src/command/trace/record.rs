//! `cenote trace record`: what is looked up and written in a pool's cache, and what its devices are sent, as
//! it happens.
//!
//! The file is CSV, compressed with zstd a piece at a time, so what was written before an end of any kind can
//! be read. A line of the cache (op `read` or `write`) begins with what a replay needs, then says which block
//! of which object it was; one of a device (`device_read`, `device_write`) has the class of its queue, the
//! vdev, and how many operations were joined in it. Lines at the end name the datasets.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use cenote_cache::{LookUp, Wish};
use cenote_engine::Engine;
use cenote_format::units::DatasetId;
use cenote_pool::Transfer;
use clap::Args;
use serde_json::json;

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, interrupted, print, print_json};
use crate::streams::local;

/// How often what happened is written.
const EVERY: Duration = Duration::from_millis(200);
const LEVEL: i32 = 3;
const COLUMNS: &str = "id,time,size,class,op,hit,dataset,object,level,block,vdev,offset,joined\n";

/// `cenote trace record`
#[derive(Debug, Args)]
#[command(
    after_help = "A daemon (`cenote serve`) has to hold the pool. Readers never wait for the recording: what \
        is not written in time is counted as lost. Replay it with other policies and sizes: `cenote trace \
        replay`, `cenote trace curve`.\n\n\
        With a command, the recording begins before it and ends with it; the exit status is the \
        command's.\n\n\
        Examples:\n  cenote trace record --seconds 600 tank evening.csv.zst\n  \
        cenote trace record tank build.csv.zst -- make -C /tank/src"
)]
pub struct Record {
    /// How long [default: until it is interrupted]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// The pool
    pub pool: String,
    /// The file to write
    pub file: PathBuf,
    /// Record while this runs
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "seconds")]
    pub command: Vec<OsString>,
}

impl Record {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Some(pool) = session.pools().and_then(|pools| pools.get(&self.pool)) else {
            let why = "no daemon (`cenote serve`) holds it open";
            return Err(CliError::Refused(format!("cannot record '{}': {why}", self.pool)));
        };
        let shown = self.file.display().to_string();
        let failed = || CliError::io(shown.clone());
        let mut file = File::create_new(local(&self.file)).map_err(failed())?;
        let recording = pool.engine.cache().look_ups().record();
        let devices = pool.engine.pool().queue_settings().transfers().record();
        // Who waits for the recording sees by this that it has begun.
        file.write_all(&packed(COLUMNS)).map_err(failed())?;
        let (runtime, mut look_ups, mut transfers) = (session.runtime(), 0, 0);
        let mut datasets = BTreeSet::new();
        let end = self.seconds.map(|seconds| runtime.now() + Duration::from_secs(seconds));
        loop {
            let left = end.map_or(EVERY, |end| (end - runtime.now()).min(EVERY));
            let is_over = tokio::select! {
                () = interrupted() => true,
                () = runtime.sleep(left) => end.is_some_and(|end| runtime.now() >= end),
            };
            let (seen, sent) = (recording.take(), devices.take());
            (look_ups, transfers) = (look_ups + seen.len(), transfers + sent.len());
            for text in [lines(&seen), device_lines(&sent)].iter().filter(|text| !text.is_empty()) {
                file.write_all(&packed(text)).map_err(failed())?;
            }
            datasets.extend(seen.iter().map(|seen| seen.place.dataset));
            if is_over {
                break;
            }
        }
        let names = names(&pool.engine, datasets).await?;
        file.write_all(&packed(&names)).map_err(failed())?;
        let lost = recording.lost() + devices.lost();
        let counts = json!({"look_ups": look_ups, "transfers": transfers, "lost": lost, "file": shown});
        match session.json() {
            true => print_json(&counts)?,
            false => print(format!(
                "{look_ups} look-ups and {transfers} operations of devices in {shown}, {lost} lost\n"
            ))?,
        }
        Ok(Outcome::Done)
    }
}

/// Lines that name datasets. One that is gone has no name.
async fn names(engine: &Engine, datasets: BTreeSet<DatasetId>) -> Result<String, CliError> {
    let mos = engine.mos().await?;
    let mut text = String::new();
    for id in datasets {
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
