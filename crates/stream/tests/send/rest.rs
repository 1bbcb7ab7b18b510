//! The rest of a broken stream.

use cenote_format::stream::Record;
use cenote_format::units::ObjectId;
use cenote_runtime::Runtime;
use cenote_stream::send::{Plan, Resume, SendRequest};
use cenote_stream::{Item, StreamReader};
use cenote_testkit::golden;

use crate::words::request;
use crate::{estimate_of, open, stream_of};

async fn items(stream: Vec<u8>) -> Vec<Item> {
    let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(stream)));
    let mut items = Vec::new();
    while let Some(item) = reader.next().await.unwrap() {
        items.push(item);
    }
    items
}

/// The place of a record in its snapshot.
fn place(record: &Record) -> Option<(ObjectId, u64)> {
    match record {
        Record::Write(write) => Some((write.object, write.offset)),
        Record::WriteEmbedded(write) => Some((write.object, write.offset)),
        _ => None,
    }
}

/// Records of content: independent of where a stream begins.
fn content(items: &[Item]) -> Vec<(Record, bytes::Bytes)> {
    let is_content = |item: &&Item| {
        let is_block = place(&item.record).is_some();
        is_block || matches!(item.record, Record::Spill(_) | Record::Object(_))
    };
    items.iter().filter(is_content).map(|item| (item.record.clone(), item.payload.clone())).collect()
}

#[test]
fn the_rest_of_a_stream_is_all_that_follows() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let mos = open(&rt, &golden("snaps")).await;
        for words in ["gsnaps/a@s1", "-Lec\tgsnaps/a/vol@s1", "-i\t@s1\tgsnaps/a@s9"] {
            let whole = request(&mos, words).await.unwrap();
            let all = items(stream_of(&Plan::of(whole.clone()).await.unwrap()).await.unwrap()).await;
            let blocks: Vec<usize> = (0..all.len()).filter(|&at| place(&all[at].record).is_some()).collect();
            assert!(blocks.len() > 2, "{words}: {} blocks", blocks.len());
            for &at in blocks.iter().step_by(blocks.len().div_ceil(12)) {
                let (object, offset) = place(&all[at].record).unwrap();
                let resume = Resume { object, offset };
                let plan = Plan::of(SendRequest { resume, ..whole.clone() }).await.unwrap();
                let stream = stream_of(&plan).await.unwrap();
                assert_eq!(stream.len() as u64, estimate_of(&plan).await.unwrap());
                let rest = content(&items(stream).await);
                // Its object is repeated, then all blocks from that one on.
                assert!(matches!(&rest[0].0, Record::Object(first) if first.object == object), "{words}");
                assert_eq!(rest[1..], content(&all[at..]), "{words} from {object} at {offset}");
            }
        }
    });
}
