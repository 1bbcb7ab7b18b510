//! Streams of OpenZFS: read to their end with valid sums, and written again as the same bytes.

#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod kept;

use std::path::Path;

use cenote_format::bytes::Endian;
use cenote_format::stream::Record;
use cenote_runtime::Runtime;
use cenote_stream::dump::{Detail, Dump};
use cenote_stream::{Item, StreamError, StreamReader, StreamWriter};
use cenote_testkit::{decompress, needs, shared_path, unpack_bzip2, workspace};
use kept::Kept;
use sha2::{Digest, Sha256};

/// The items of a stream, its byte order, and the result of reading it.
fn read(stream: Vec<u8>) -> (Vec<Item>, Endian, Result<(), StreamError>) {
    let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(stream)));
    let mut items = Vec::new();
    let ended = Runtime::real(Some(1)).block_on(async {
        while let Some(item) = reader.next().await? {
            items.push(item);
        }
        Ok(())
    });
    (items, reader.endian(), ended)
}

fn write(items: &[Item], endian: Endian) -> Vec<u8> {
    let kept = Kept::default();
    let mut writer = StreamWriter::new(Box::new(kept.clone()), endian);
    Runtime::real(Some(1)).block_on(async {
        for item in items {
            writer.write(&item.record, &item.payload).await.unwrap();
        }
    });
    let written = kept.take();
    assert_eq!(writer.written_bytes(), written.len() as u64);
    written
}

fn unpacked(path: &Path) -> Vec<u8> {
    decompress(&std::fs::read(path).unwrap())
}

fn fixture(name: &str) -> Vec<u8> {
    let image = workspace().join("target/fixtures/zstream").join(name);
    if !image.exists() {
        unpack_bzip2(&shared_path(&format!("fixtures/{name}.bz2")), &image);
    }
    std::fs::read(image).unwrap()
}

#[needs("streams/streams.json")]
#[test]
fn streams_read_to_their_end_and_are_written_as_the_same_bytes() {
    let facts = std::fs::read(shared_path("streams/streams.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&facts).unwrap();
    let mut whole = 0;
    for stream in facts["streams"].as_array().unwrap() {
        let name = stream["name"].as_str().unwrap();
        let bytes = unpacked(&shared_path(&format!("streams/{name}.zs.zst")));
        let len = bytes.len() as u64;
        let (items, endian, ended) = read(bytes);
        match name {
            "truncated-inc-I" | "resume-first-part" => {
                assert!(matches!(ended, Err(StreamError::Incomplete)), "{name}: {ended:?}");
                continue;
            }
            "corrupt-full" => {
                assert!(matches!(ended, Err(StreamError::Checksum)), "{name}: {ended:?}");
                continue;
            }
            _ => ended.unwrap_or_else(|error| panic!("{name}: {error}")),
        }
        assert!(matches!(items.last().unwrap().record, Record::End(_)), "{name}");
        assert_eq!(items.last().unwrap().end_bytes, len, "{name}");
        let again = write(&items, endian);
        let hash: String = Sha256::digest(&again).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, stream["sha256"].as_str().unwrap(), "{name}");
        whole += 1;
    }
    assert!(whole > 30, "{whole} streams");
}

#[needs("fixtures/zstream")]
#[test]
fn streams_of_both_byte_orders_read_alike() {
    for content in ["base-NATIVE", "base-XDR", "incr-NATIVE", "incr-XDR"] {
        let kinds = ["little", "big"].map(|order| {
            let bytes = fixture(&format!("zstream/{order}-endian-all-drr-types-{content}.zsend"));
            let (items, endian, ended) = read(bytes.clone());
            ended.unwrap_or_else(|error| panic!("{order} {content}: {error}"));
            assert_eq!(endian, if order == "big" { Endian::Big } else { Endian::Little });
            assert!(write(&items, endian) == bytes, "{order} {content} is written otherwise");
            items.iter().map(|item| item.record.number()).collect::<std::collections::BTreeSet<_>>()
        });
        assert!(kinds[0].len() >= 8, "{content}: {kinds:?}");
        assert_eq!(kinds[0], kinds[1], "{content}");
    }
}

#[needs("fixtures/zstream", "fixtures/rsend")]
#[test]
fn old_and_unusual_streams_read() {
    let names = [
        "zstream/little-endian-long-payloads.zsend",
        "zstream/big-endian-long-payloads.zsend",
        "zstream/decompress.zsend",
        "zstream/decompress-crypt.zsend",
        "zstream/undersized-write-lsize.zsend",
        "rsend/dedup.zsend",
        "rsend/dedup_encrypted_zvol.zsend",
    ];
    for name in names {
        let bytes = fixture(name);
        let len = bytes.len() as u64;
        let (items, _, ended) = read(bytes);
        ended.unwrap_or_else(|error| panic!("{name}: {error} after {} of {len} bytes", items.len()));
        assert_eq!(items.last().unwrap().end_bytes, len, "{name}");
    }
}

fn dumped(stream: &[u8], detail: Detail) -> (String, Option<StreamError>) {
    let mut text = String::new();
    let give = |part: String| -> Result<(), StreamError> {
        text += &part;
        Ok(())
    };
    let mut source = stream;
    let defect = Runtime::real(Some(1)).block_on(Dump::new(detail, true).read(&mut source, give)).unwrap();
    (text, defect)
}

#[needs("streams/streams.json")]
#[test]
fn streams_are_shown_as_zstream_shows_them() {
    let facts = std::fs::read(shared_path("streams/streams.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&facts).unwrap();
    let mut shown = 0;
    for stream in facts["streams"].as_array().unwrap() {
        let Some(wanted) = stream["zstream_dump"].as_str() else { continue };
        let name = stream["name"].as_str().unwrap();
        let wanted = String::from_utf8(unpacked(&shared_path(&format!("streams/{wanted}")))).unwrap();
        let (text, defect) =
            dumped(&unpacked(&shared_path(&format!("streams/{name}.zs.zst"))), Detail::Records);
        assert!(defect.is_none(), "{name}: {defect:?}");
        let differing = text.lines().zip(wanted.lines()).find(|(ours, theirs)| ours != theirs);
        assert!(differing.is_none(), "{name}: {differing:?}");
        assert_eq!(text.len(), wanted.len(), "{name}");
        shown += 1;
    }
    assert!(shown > 30, "{shown} streams");
}

#[needs("streams/streams.json")]
#[test]
fn a_change_of_any_byte_is_noticed() {
    let stream = unpacked(&shared_path("streams/clone-origin.zs.zst"));
    for at in 0..stream.len() {
        let mut changed = stream.clone();
        changed[at] ^= 0x10;
        assert!(read(changed).2.is_err(), "byte {at}");
    }
    for len in (0..stream.len()).step_by(8) {
        let (_, _, ended) = read(stream[..len].to_vec());
        assert!(matches!(ended, Err(StreamError::Incomplete | StreamError::Read(_))), "{len} bytes");
    }
}
