//! Streams of golden pools: their content and length, and equality with the module's.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that can't go on must stop, and says what it compared"
)]

#[path = "../kept/mod.rs"]
mod kept;
mod lengths;
mod lists;
mod module;
mod reads;
mod rest;
mod words;

use cenote_dataset::{ImportOptions, KeySource, Mos, UserKey, import};
use cenote_format::bytes::Endian;
use cenote_pool::discover;
use cenote_runtime::Runtime;
use cenote_stream::StreamWriter;
use cenote_stream::send::{Plan, Progress, SendError};
use cenote_testkit::Golden;
use kept::Kept;

/// Opens a golden pool with all its keys.
async fn open(rt: &Runtime, golden: &Golden) -> Mos {
    let facts = golden.facts();
    let discovery = discover(rt, &[golden.images()]).await;
    let found = discovery.pools.into_iter().find(|pool| pool.guid().0 == facts.guid).unwrap();
    let keys = KeySource::new(move |info| Some(UserKey(facts.key_of(&info.root)?)));
    let options = ImportOptions { keys, ..ImportOptions::default() };
    import(rt, &found, &options).await.unwrap_or_else(|error| panic!("{}: {error}", golden.name()))
}

/// All bytes of a plan's streams.
async fn stream_of(plan: &Plan) -> Result<Vec<u8>, SendError> {
    let (kept, progress) = (Kept::default(), Progress::default());
    let mut writer = StreamWriter::new(Box::new(kept.clone()), Endian::NATIVE);
    let ready = plan.ready().await?;
    ready.send(&mut writer, &progress).await?;
    assert_eq!(progress.bytes() + ready.head_bytes(), writer.written_bytes());
    Ok(kept.take())
}

/// The estimated length of a plan's streams.
async fn estimate_of(plan: &Plan) -> Result<u64, SendError> {
    let ready = plan.ready().await?;
    let mut bytes = ready.head_bytes();
    for stream in ready.streams() {
        bytes += stream.estimate().await?;
    }
    Ok(bytes)
}
