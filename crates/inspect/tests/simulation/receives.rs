//! Power cuts during receives.
//!
//! ```text
//!   record   a pool with a full stream received; then, journaled: a part of an increment (-s), which breaks
//!            off; its rest; a full stream into a new file system
//!   cut      at many moments of the journal -> disks
//!   open     each snapshot is whole or absent; it is there if its receive had returned
//!   go on    what is absent is received again, resumed where state was kept; then all of it is there
//! ```
//!
//! `CENOTE_RECEIVE_CUTS=1000` is the full number.

use cenote_engine::Engine;
use cenote_format::bytes::Endian;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::stream::{Begin, DRR_BYTES, Record, StreamFeatures};
use cenote_format::units::ObjectId;
use cenote_fs::manifest::{ManifestOptions, manifest};
use cenote_fs::write::{NewFile, NewKind};
use cenote_fs::{Filesystem, FsError};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::{Mirror, Raidz};
use cenote_runtime::{Rng, Runtime};
use cenote_stream::receive::{Alone, Order, ReceiveError, receive};
use cenote_stream::send::{Extent, Plan, Progress, Resume, SendFlags, SendRequest, Since};
use cenote_stream::{Item, StreamReader, StreamWriter};
use cenote_tasks::{ResumeState, snapshot, unfinished_receive};
use cenote_testkit::image::Image;

use crate::check::check_sound;
use crate::cuts::{moments, number, simulate};
use crate::journal::{Journal, Moment};
use crate::pools::{Disks, Layout, POOL, change, create, opened};
use crate::power_cut::Cutter;
use crate::run::recover;

/// Cuts of each layout; `CENOTE_RECEIVE_CUTS` sets the number of both.
const CUTS: usize = 16;
const FILES: u64 = 24;
const RECORD_BYTES: u32 = 8 << 10;

/// Streams, and the manifests of what they give.
struct Streams {
    full: Vec<u8>,
    increment: Vec<u8>,
    first: Vec<String>,
    second: Vec<String>,
}

/// A recorded run.
struct Recorded {
    streams: Streams,
    before: Vec<Image>,
    journal: Journal,
    /// The moments at which the increment and the new file system were complete.
    increment_done: Moment,
    new_done: Moment,
}

fn layouts() -> [Layout; 2] {
    let layout = |vdev| Layout { vdevs: vec![vdev], sector_bytes: 512, spares: 0 };
    [layout((Mirror, 0, 2, Normal)), layout((Raidz, 1, 3, Normal))]
}

/// Makes the streams in their own pool.
async fn streams(rt: &Runtime, layout: &Layout, rng: &mut Rng) -> Streams {
    let disks = Disks::new(rt, layout.shape(), layout.blank());
    let engine = create(rt, layout, &disks.devices()).await;
    write_files(&engine, rng, 0).await;
    snapshot(&engine, &[format!("{POOL}@1")]).await.unwrap();
    write_files(&engine, rng, 1).await;
    snapshot(&engine, &[format!("{POOL}@2")]).await.unwrap();
    let mos = engine.mos().await.unwrap();
    let one = mos.dataset(&format!("{POOL}@1")).await.unwrap();
    let two = mos.dataset(&format!("{POOL}@2")).await.unwrap();
    Streams {
        full: sent(&one, Since::Nothing).await,
        increment: sent(&two, Since::Snapshot(one.clone())).await,
        first: rows(&engine, &format!("{POOL}@1")).await.unwrap(),
        second: rows(&engine, &format!("{POOL}@2")).await.unwrap(),
    }
}

/// Makes and overwrites files, and removes some in later rounds.
async fn write_files(engine: &Engine, rng: &mut Rng, round: u64) {
    let fs = opened(engine, POOL, RECORD_BYTES).await;
    for number in 0..FILES {
        let name = format!("file{}", number + round * FILES / 2);
        let mut content = vec![0; rng.below(120_000) as usize + 1];
        rng.fill(&mut content);
        change(engine, &fs, async |change| {
            let known = fs.lookup(fs.root(), name.as_bytes()).await.ok().flatten();
            let id = match known {
                Some(entry) => entry.object,
                None => {
                    let new = NewFile { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
                    fs.create(change, fs.root(), name.as_bytes(), &new).await.unwrap()
                }
            };
            fs.write(change, id, rng.below(50_000), content.into()).await.unwrap();
        })
        .await;
    }
    engine.sync_all().await.unwrap();
}

async fn sent(dataset: &cenote_dataset::Dataset, since: Since) -> Vec<u8> {
    let request = SendRequest {
        dataset: dataset.clone(),
        extent: Extent::One(since),
        flags: SendFlags { compressed: true, ..SendFlags::default() },
        props: false,
        backup: false,
        holds: false,
        in_clear: false,
        resume: Resume::default(),
        saved: false,
        redact: None,
    };
    let kept = Kept::default();
    let mut writer = StreamWriter::new(Box::new(kept.clone()), Endian::NATIVE);
    let ready = Plan::of(request).await.unwrap().ready().await.unwrap();
    ready.send(&mut writer, &Progress::default()).await.unwrap();
    kept.take()
}

/// A snapshot's manifest, without the space used: that depends on the pool too.
async fn rows(engine: &Engine, name: &str) -> Result<Vec<String>, String> {
    let said = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let mos = engine.mos().await.map_err(|error| said(&error))?;
    let dataset = mos.dataset(name).await.map_err(|error| said(&error))?;
    let objset = dataset.objset().await.map_err(|error| said(&error))?;
    let fs = Filesystem::open(objset).await.map_err(|error| said(&error))?;
    let mut rows = Vec::new();
    let sink = |mut row: cenote_fs::manifest::ManifestRow| -> Result<(), FsError> {
        row.attr.used_bytes = 0;
        rows.push(format!("{row:?}"));
        Ok(())
    };
    manifest(&fs, ManifestOptions::default(), sink).await.map_err(|error| said(&error))?;
    Ok(rows)
}

async fn take(engine: &Engine, stream: &[u8], to: &str) -> Result<(), ReceiveError> {
    let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(stream.to_vec())));
    let order = Order { destination: to.to_owned(), is_resumable: true, is_forced: true, ..Order::default() };
    receive(engine, &mut reader, &order, &Alone).await.map(drop)
}

/// The rest of a stream, as a sender resumes it.
async fn rest(stream: &[u8], state: &ResumeState) -> Vec<u8> {
    let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(stream.to_vec())));
    let kept = Kept::default();
    let mut writer = StreamWriter::new(Box::new(kept.clone()), Endian::NATIVE);
    let at = (state.progress.object, state.progress.offset);
    while let Some(Item { record, payload, .. }) = reader.next().await.unwrap() {
        let is_before = match &record {
            Record::Object(record) => record.object < at.0,
            Record::Write(record) => (record.object, record.offset) < at,
            Record::WriteEmbedded(record) => (record.object, record.offset) < at,
            Record::Spill(record) => record.object < at.0,
            Record::Free(range) => range.object < at.0,
            Record::FreeObjects(range) => ObjectId(range.first.0 + range.count) <= at.0,
            _ => false,
        };
        if is_before {
            continue;
        }
        let (record, payload) = match record {
            Record::Begin(begin) => {
                let mut list = Nvlist::new();
                list.insert("resume_object", NvValue::Uint64(at.0.0));
                list.insert("resume_offset", NvValue::Uint64(at.1));
                let list = list.encode();
                let features = begin.features | StreamFeatures::RESUMING;
                let payload_bytes = list.len() as u32;
                (Record::Begin(Begin { features, payload_bytes, ..begin }), list.into())
            }
            record => (record, payload),
        };
        writer.write(&record, &payload).await.unwrap();
    }
    kept.take()
}

fn record(seed: u64, layout: &Layout) -> Recorded {
    simulate(seed, |rt| async move {
        let mut rng = Rng::stream(seed, 7);
        let streams = streams(&rt, layout, &mut rng).await;
        let disks = Disks::new(&rt, layout.shape(), layout.blank());
        let engine = create(&rt, layout, &disks.devices()).await;
        let (old, new) = (format!("{POOL}/old"), format!("{POOL}/new"));
        take(&engine, &streams.full, &old).await.unwrap();
        engine.sync_all().await.unwrap();
        let _ = disks.take_journal();
        let before = disks.images();
        // A whole number of records would be no break.
        let cut = (streams.increment.len() / 2).next_multiple_of(DRR_BYTES) + 100;
        let broken = take(&engine, &streams.increment[..cut], &old).await;
        assert!(matches!(broken, Err(ReceiveError::Saved { .. })), "{broken:?}");
        let head = engine.mos().await.unwrap().dataset(&old).await.unwrap();
        let state = unfinished_receive(&head).await.unwrap().unwrap();
        assert!(state.progress.object > ObjectId(1), "{state:?}");
        take(&engine, &rest(&streams.increment, &state).await, &old).await.unwrap();
        let increment_done = disks.journal.lock().now;
        take(&engine, &streams.full, &new).await.unwrap();
        let new_done = disks.journal.lock().now;
        engine.sync_all().await.unwrap();
        let journal = disks.take_journal();
        Recorded { streams, before, journal, increment_done, new_done }
    })
}

/// Checks one dataset after a cut, and completes its receive.
async fn complete(
    engine: &Engine,
    (dataset, own): (&str, &str),
    stream: &[u8],
    wanted: &[String],
    must_be_there: bool,
) -> Result<(), String> {
    let snapshot = format!("{dataset}@{own}");
    let said = |error: &dyn std::fmt::Display| format!("{snapshot}: {error}");
    let mos = engine.mos().await.map_err(|error| said(&error))?;
    let head = mos.dataset(dataset).await.ok();
    let is_there = match &head {
        Some(head) => head.snapshot(own).await.map_err(|error| said(&error))?.is_some(),
        None => false,
    };
    let state = match &head {
        Some(head) => unfinished_receive(head).await.map_err(|error| said(&error))?,
        None => None,
    };
    drop((mos, head));
    match (is_there, state) {
        (true, Some(state)) => return Err(format!("{snapshot} is there, and {state:?} is left")),
        (true, None) => {}
        (false, _) if must_be_there => return Err(format!("{snapshot} was received, and is gone")),
        (false, Some(state)) => {
            let rest = rest(stream, &state).await;
            take(engine, &rest, dataset).await.map_err(|error| format!("resumed: {error}"))?;
        }
        (false, None) => take(engine, stream, dataset).await.map_err(|error| format!("again: {error}"))?,
    }
    has_rows(engine, &snapshot, wanted).await
}

async fn has_rows(engine: &Engine, snapshot: &str, wanted: &[String]) -> Result<(), String> {
    let found = rows(engine, snapshot).await?;
    let differs = |(found, wanted): &(&String, &String)| found != wanted;
    match found.iter().zip(wanted).find(differs) {
        None if found.len() == wanted.len() => Ok(()),
        None => Err(format!("{snapshot} has {} rows instead of {}", found.len(), wanted.len())),
        Some((found, wanted)) => Err(format!("{snapshot} has {found} instead of {wanted}")),
    }
}

fn survive(seed: u64, layout: &Layout, images: Vec<Image>, run: &Recorded, at: Moment) -> Result<(), String> {
    simulate(seed, |rt| async move {
        let disks = Disks::new(&rt, layout.shape(), images);
        let pool = recover(&rt, disks.devices()).await?;
        let engine = pool.engine;
        let Streams { full, increment, first, second } = &run.streams;
        let (old, new) = (format!("{POOL}/old"), format!("{POOL}/new"));
        has_rows(&engine, &format!("{old}@1"), first).await?;
        complete(&engine, (&old, "2"), increment, second, at >= run.increment_done).await?;
        complete(&engine, (&new, "1"), full, first, at >= run.new_done).await?;
        engine.sync_all().await.map_err(|error| error.to_string())?;
        engine.frees().finish().await.map_err(|error| error.to_string())?;
        check_sound(&engine.mos().await.map_err(|error| error.to_string())?).await
    })
}

#[test]
fn a_receive_that_loses_power_is_whole_absent_or_resumable() {
    let cuts = number("CENOTE_RECEIVE_CUTS").map_or(CUTS, |cuts| (cuts as usize).div_ceil(2));
    let seed = number("CENOTE_SEED").unwrap_or_else(|| Runtime::real(Some(1)).random_u64());
    for layout in &layouts() {
        let run = record(seed, layout);
        let mut rng = Rng::stream(seed, 1);
        let mut cutter = Cutter::new(&run.journal, run.before.clone());
        for moment in moments(&run.journal, cuts, &mut rng) {
            let images = cutter.cut(moment, layout.sector_bytes, &mut rng);
            let survived = survive(rng.next_u64(), layout, images, &run, moment);
            let now = run.journal.now;
            survived.unwrap_or_else(|why| panic!("CENOTE_SEED={seed}, cut at {moment} of {now}: {why}"));
        }
    }
}

/// A sink that keeps what is written.
#[derive(Clone, Default)]
struct Kept(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

impl Kept {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl tokio::io::AsyncWrite for Kept {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.0.lock().extend_from_slice(bytes);
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}
