//! A recording (`cenote_control::running::record`) is a trace that can be replayed.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_control::running::record::Recording;
use cenote_device::{Device, MemoryDevice};
use cenote_fs::write::NewKind;
use cenote_policy::trace::Trace;
use cenote_pool::VdevClass;
use cenote_runtime::{Runtime, SimConfig};

use crate::bench::{Bench, open};
use crate::error::StudyError;

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
        let mut recording = Recording::begin(&bench.engine, file).unwrap();
        for _ in 0..2 {
            bench.fs.view().open_file(id).await?.read(0, 1 << 20).await?;
            recording.write().unwrap();
        }
        Ok::<_, StudyError>(recording.end("t").await.unwrap())
    });
    let recorded = recorded.0.unwrap();
    let trace = Trace::read(&path).unwrap();
    assert_eq!((recorded.look_ups, recorded.lost), (trace.requests.len() as u64, 0));
    assert!(trace.devices[0].operations > 0 && trace.devices[0].operations <= recorded.transfers);
    let parts = trace.parts.list();
    let data = parts.iter().find(|part| part.dataset == "lab" && part.class.name() == "data").unwrap();
    // Eight blocks of 128 KiB: read from the disk once, then found.
    assert_eq!((data.sum.requests, data.sum.missed), (16, 8));
}
