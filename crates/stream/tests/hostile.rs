//! Streams of a hostile sender: random changes to records, with valid sums.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that can't go on must stop")]

mod kept;
mod pool;

use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_engine::Engine;
use cenote_format::bytes::Endian;
use cenote_format::stream::{DRR_CHECKSUM_AT, Record};
use cenote_runtime::{Rng, Runtime};
use cenote_stream::receive::{Alone, Order, receive};
use cenote_stream::{Item, StreamReader, StreamWriter};
use cenote_testkit::{decompress, needs, shared_path, zdb_finds_nothing};

use kept::Kept;
use pool::{POOL, Scratch};

/// Streams to change, each with its required predecessor.
const STREAMS: [(&str, &str); 6] =
    [("", "xa"), ("xa", "xa-i"), ("", "emb-e"), ("emb-e", "emb-e-i"), ("", "raw1-w"), ("", "vol-c")];

fn stream(name: &str) -> Vec<u8> {
    decompress(&std::fs::read(shared_path(&format!("streams/{name}.zs.zst"))).unwrap())
}

async fn items(bytes: Vec<u8>) -> Vec<Item> {
    let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(bytes)));
    let mut items = Vec::new();
    while let Some(item) = reader.next().await.unwrap() {
        items.push(item);
    }
    items
}

/// Changes, drops, repeats or moves some records.
fn mutate(items: &mut Vec<Item>, rng: &mut Rng) {
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(items.len() as u64) as usize;
        match rng.below(6) {
            0 if at > 0 => _ = items.remove(at),
            1 => items.insert(at, items[at].clone()),
            2 if at > 1 => items.swap(at, at - 1),
            3 if !items[at].payload.is_empty() => {
                let mut payload = items[at].payload.to_vec();
                let byte = rng.below(payload.len() as u64) as usize;
                payload[byte] ^= 1 << rng.below(8);
                items[at].payload = payload.into();
            }
            _ => change_field(&mut items[at], rng),
        }
    }
}

fn change_field(item: &mut Item, rng: &mut Rng) {
    let mut raw = item.record.encode(Endian::NATIVE).unwrap();
    let byte = 8 + rng.below(DRR_CHECKSUM_AT as u64 / 3) as usize;
    raw[byte] = match rng.below(3) {
        0 => raw[byte] ^ (1 << rng.below(8)),
        1 => 0xff,
        _ => rng.below(256) as u8,
    };
    let Ok(record) = Record::decode(&raw, Endian::NATIVE) else { return };
    let mut payload = item.payload.to_vec();
    payload.resize(record.payload_bytes() as usize, 0x5a);
    (item.record, item.payload) = (record, payload.into());
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

async fn names(engine: &Engine) -> Vec<String> {
    let mut names = Vec::new();
    for dataset in engine.mos().await.unwrap().all_datasets().await.unwrap() {
        names.push(dataset.name().to_owned());
        names.extend(dataset.snapshots().await.unwrap().iter().map(|taken| taken.name().to_owned()));
    }
    names
}

#[needs("streams/streams.json")]
#[test]
fn whatever_is_sent_is_received_or_refused() {
    let (rt, scratch) = (Runtime::real(None), Scratch::new());
    let given = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed: u64 = given("CENOTE_SEED").unwrap_or_else(|| rt.random_u64());
    let rounds: u64 = given("CENOTE_ROUNDS").unwrap_or(150);
    println!("CENOTE_SEED={seed} CENOTE_ROUNDS={rounds}");
    let mut rng = Rng::new(seed);
    rt.block_on(async {
        let engine = scratch.create(&rt).await;
        let (mut taken, mut refused) = (0, 0);
        for round in 0..rounds {
            let (base, name) = STREAMS[rng.below(STREAMS.len() as u64) as usize];
            let (destination, reshares) = (format!("{POOL}/d{round}"), rng.below(2) == 0);
            let order = Order { destination, reshares, ..Order::default() };
            if !base.is_empty() {
                let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(stream(base))));
                receive(&engine, &mut reader, &order, &Alone).await.unwrap();
            }
            let before = names(&engine).await;
            let mut items = items(stream(name)).await;
            mutate(&mut items, &mut rng);
            let bytes = written(&items).await;
            let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(bytes)));
            match receive(&engine, &mut reader, &order, &Alone).await {
                Ok(_) => taken += 1,
                Err(error) => {
                    refused += 1;
                    assert_eq!(names(&engine).await, before, "round {round}, {name}: {error}");
                }
            }
        }
        println!("{taken} taken, {refused} refused");
        assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
        scratch.close(engine).await;
    });
    zdb_finds_nothing(scratch.path(), POOL);
}

/// OpenZFS's own objects may have `on`; its streams carry the number as it is.
#[needs("streams/streams.json")]
#[test]
fn objects_have_any_checksum_and_compression_that_datasets_can_have() {
    let (rt, scratch) = (Runtime::real(None), Scratch::new());
    rt.block_on(async {
        let engine = scratch.create(&rt).await;
        let sent = items(stream("xa")).await;
        for id in 0..32 {
            for is_checksum in [true, false] {
                let mut items = sent.clone();
                for item in &mut items {
                    if let Record::Object(object) = &mut item.record {
                        let own =
                            if is_checksum { &mut object.checksum_id } else { &mut object.compression_id };
                        *own = id;
                    }
                }
                let destination = format!("{POOL}/d{id}-{is_checksum}");
                let order = Order { destination, ..Order::default() };
                let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(written(&items).await)));
                let done = receive(&engine, &mut reader, &order, &Alone).await;
                let is_known = match Checksum::try_from(id) {
                    Ok(own) if is_checksum => own.is_of_pointer() || id < 2,
                    Ok(_) | Err(_) => !is_checksum && Compression::try_from(id).is_ok(),
                };
                assert_eq!(done.is_ok(), is_known, "{id} {is_checksum}: {done:?}");
            }
        }
        scratch.close(engine).await;
    });
    zdb_finds_nothing(scratch.path(), POOL);
}
