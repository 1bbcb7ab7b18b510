//! Receives streams whose records were changed, and their sums mended.
//!
//! Idea: random bytes are no stream, and a changed byte is a wrong sum. So the input is a list of changes to
//! the records of valid streams, which the writer sums anew. Whatever comes out, the pool must be sound
//! afterwards: no panic, no leak, no unreadable block; and a refused stream must leave no snapshot.
//!
//! Input: a byte that selects the stream and the order, then five bytes for each change.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use cenote_cache::CacheOptions;
use cenote_dataset::{Dataset, ImportOptions, Mos, import};
use cenote_engine::Engine;
use cenote_format::bytes::Endian;
use cenote_format::stream::{DRR_CHECKSUM_AT, Record};
use cenote_inspect::verify::{self, Finding, VerifyOptions};
use cenote_pool::discover_devices;
use cenote_runtime::{Runtime, SimConfig};
use cenote_stream::receive::{Alone, Order, receive as receive_stream};
use cenote_stream::send::{Extent, Plan, Progress, Resume, SendFlags, SendRequest, Since, redaction};
use cenote_stream::{Item, StreamReader, StreamWriter};
use tokio::io::AsyncWrite;

use crate::forged::{POOL, devices, forge};

/// Steps after which a run counts as endless.
const STEP_LIMIT: u64 = 20_000_000;
const CACHE_BYTES: usize = 4 << 20;
/// Bytes of a change, and most changes.
const CHANGE_BYTES: usize = 5;
const MOST_CHANGES: usize = 64;

/// A stream, and the one that it needs to be received before.
struct Sent {
    before: Option<usize>,
    items: Vec<Item>,
}

/// Receives a changed stream.
pub fn receive(data: &[u8]) {
    let Some((&how, changes)) = data.split_first() else { return };
    let streams = streams();
    let Some(sent) = streams.get(usize::from(how & 7) % streams.len()) else { return };
    let mut items = sent.items.clone();
    for raw in changes.chunks_exact(CHANGE_BYTES).take(MOST_CHANGES) {
        change(&mut items, raw);
    }
    let before = sent.before.and_then(|at| streams.get(at));
    simulate(|_, engine| async move {
        let leaked = leaks(&engine).await;
        let order = Order {
            destination: format!("{POOL}/in"),
            is_forced: how & 8 != 0,
            is_resumable: how & 16 != 0,
            is_corrective: how & 32 != 0,
            reshares: how & 64 != 0,
            ..Order::default()
        };
        if let Some(before) = before {
            let order = Order { is_corrective: false, ..order.clone() };
            let mut reader = reader(written(&before.items).await);
            let done = receive_stream(&engine, &mut reader, &order, &Alone).await;
            assert!(done.is_ok(), "an unchanged stream is refused: {done:?}");
        }
        let names = snapshots(&engine).await;
        let mut reader = reader(written(&items).await);
        let done = receive_stream(&engine, &mut reader, &order, &Alone).await;
        if done.is_err() {
            assert_eq!(snapshots(&engine).await, names, "a refused stream left a snapshot: {done:?}");
        }
        let found = leaks(&engine).await;
        let is_old = |new: &verify::Extent| leaked.iter().any(|old| is_within(new, old));
        assert!(found.iter().all(is_old), "leaked: {found:?}, before: {leaked:?}");
    });
}

/// Leaks of a pool that has no other defect. Forged pools have some: their trees are parts of larger pools.
async fn leaks(engine: &Engine) -> Vec<verify::Extent> {
    let done = async {
        engine.sync_all().await?;
        engine.frees().finish().await?;
        engine.mos().await
    };
    let mos = done.await.unwrap_or_else(|error| panic!("the pool can't be written: {error}"));
    let report = verify::verify(&mos, VerifyOptions::default(), |_| {}).await;
    let report = report.unwrap_or_else(|error| panic!("the pool can't be read: {error}"));
    let leak = |finding: &Finding| match finding {
        Finding::Leaked(extent) => Some(*extent),
        _ => None,
    };
    let leaks: Vec<verify::Extent> = report.findings.iter().filter_map(leak).collect();
    let is_sound = report.findings.len() == leaks.len() && report.complete;
    assert!(is_sound, "damage: {:?}", report.findings);
    leaks
}

async fn snapshots(engine: &Engine) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(mos) = engine.mos().await else { return names };
    for dataset in mos.all_datasets().await.unwrap_or_default() {
        let snapshots = dataset.snapshots().await.unwrap_or_default();
        names.extend(snapshots.iter().map(|snapshot| snapshot.name().to_owned()));
    }
    names
}

fn is_within(part: &verify::Extent, whole: &verify::Extent) -> bool {
    let end = |extent: &verify::Extent| extent.offset_bytes + extent.len_bytes;
    part.vdev == whole.vdev && part.offset_bytes >= whole.offset_bytes && end(part) <= end(whole)
}

/// Changes, drops, repeats, moves or cuts records.
fn change(items: &mut Vec<Item>, raw: &[u8]) {
    let [kind, at, high, byte, value] = *raw else { return };
    if items.is_empty() {
        return;
    }
    let at = (usize::from(high) << 8 | usize::from(at)) % items.len();
    match kind % 8 {
        0 if at > 0 => _ = items.remove(at),
        1 => items.insert(at, items[at].clone()),
        2 if at > 1 => items.swap(at, at - 1),
        3 => items.truncate(at.max(1)),
        4 if !items[at].payload.is_empty() => {
            let mut payload = items[at].payload.to_vec();
            let place = usize::from(byte) * payload.len() / 256;
            payload[place] ^= value;
            items[at].payload = payload.into();
        }
        _ => change_field(&mut items[at], usize::from(byte), value, kind),
    }
}

fn change_field(item: &mut Item, byte: usize, value: u8, kind: u8) {
    let Ok(mut raw) = item.record.encode(Endian::NATIVE) else { return };
    let place = 8 + byte % (DRR_CHECKSUM_AT / 3);
    raw[place] = match kind & 0x30 {
        0 => value,
        0x10 => raw[place] ^ value,
        0x20 => 0xff,
        _ => raw[place].wrapping_add(1),
    };
    let Ok(record) = Record::decode(&raw, Endian::NATIVE) else { return };
    let mut payload = item.payload.to_vec();
    payload.resize(record.payload_bytes() as usize, 0x5a);
    (item.record, item.payload) = (record, payload.into());
}

fn reader(bytes: Vec<u8>) -> StreamReader {
    StreamReader::new(Box::new(std::io::Cursor::new(bytes)))
}

async fn written(items: &[Item]) -> Vec<u8> {
    let kept = Kept::default();
    let mut writer = StreamWriter::new(Box::new(kept.clone()), Endian::NATIVE);
    for item in items {
        // The writer refuses a misplaced record: the stream ends early there.
        if writer.write(&item.record, &item.payload).await.is_err() {
            break;
        }
    }
    kept.take()
}

/// The streams to change: full, incremental, compressed and embedded, of a clone, and redacted.
fn streams() -> &'static [Sent] {
    static STREAMS: OnceLock<Vec<Sent>> = OnceLock::new();
    STREAMS.get_or_init(|| {
        let made = Arc::new(Mutex::new(Vec::new()));
        let kept = made.clone();
        simulate(|_, engine| async move {
            let streams = make(&engine).await.unwrap_or_else(|error| panic!("no stream: {error}"));
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = streams;
        });
        std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner))
    })
}

async fn make(engine: &Engine) -> Result<Vec<Sent>, Box<dyn std::error::Error>> {
    let name = |own: &str| format!("{POOL}/{own}");
    let mos = engine.mos().await?;
    let (one, two) = (mos.dataset(&name("home@b")).await?, mos.dataset(&name("home@c")).await?);
    let clone = mos.dataset(&name("clone@x")).await?;
    let list = redaction(&one, std::slice::from_ref(&clone)).await?;
    cenote_tasks::redact(engine, &name("home@b"), &name("home#redacted"), list).await?;
    let mos: Mos = engine.mos().await?;
    // A view of before lacks the list.
    let one = mos.dataset(&name("home@b")).await?;
    let marks = mos.dataset(&name("home")).await?.bookmarks().await?;
    let mark = marks.into_iter().find(|mark| mark.name.ends_with("#redacted"));
    let small = SendFlags { compressed: true, embedded: true, ..SendFlags::default() };
    let plain = SendFlags::default();
    let since = || Since::Snapshot(one.clone());
    Ok(vec![
        Sent { before: None, items: sent(&one, Since::Nothing, plain, None).await? },
        Sent { before: Some(0), items: sent(&two, since(), plain, None).await? },
        Sent { before: None, items: sent(&two, Since::Nothing, small, None).await? },
        Sent { before: Some(0), items: sent(&two, since(), small, None).await? },
        Sent { before: None, items: sent(&clone, since(), plain, None).await? },
        Sent { before: None, items: sent(&one, Since::Nothing, plain, mark).await? },
    ])
}

async fn sent(
    dataset: &Dataset,
    since: Since,
    flags: SendFlags,
    redact: Option<cenote_dataset::Bookmark>,
) -> Result<Vec<Item>, Box<dyn std::error::Error>> {
    let (extent, resume) = (Extent::One(since), Resume::default());
    let request = SendRequest {
        dataset: dataset.clone(),
        extent,
        flags,
        props: false,
        backup: false,
        holds: false,
        in_clear: false,
        resume,
        saved: false,
        redact,
    };
    let kept = Kept::default();
    let mut writer = StreamWriter::new(Box::new(kept.clone()), Endian::NATIVE);
    Plan::of(request).await?.ready().await?.send(&mut writer, &Progress::default()).await?;
    let (mut reader, mut items) = (reader(kept.take()), Vec::new());
    while let Some(item) = reader.next().await? {
        items.push(item);
    }
    Ok(items)
}

fn simulate<F: Future<Output = ()>>(work: impl FnOnce(Runtime, Engine) -> F) {
    let image = forge(&[]);
    let config = SimConfig { step_limit: STEP_LIMIT, ..SimConfig::seed(1) };
    let done = Runtime::simulate(config, |runtime| async move {
        let found = discover_devices(devices(image)).await.pools.pop()?;
        let found = found.open_for_writing(&runtime).await.ok()?;
        let cache = CacheOptions { data: true, ..CacheOptions::metadata(CACHE_BYTES) };
        let options = ImportOptions { cache, ..ImportOptions::default() };
        let mos = import(&runtime, &found, &options).await.ok()?;
        let engine = Engine::start(&mos).await.ok()?;
        drop(mos);
        work(runtime.clone(), engine).await;
        Some(())
    });
    assert!(done.0.is_some(), "the pool can't be opened");
}

/// A sink that keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsyncWrite for Kept {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
