//! Estimated lengths of streams, from metadata, and the reads of an increment.

use cenote_runtime::Runtime;
use cenote_stream::StreamReader;
use cenote_stream::send::Plan;
use cenote_testkit::golden;

use crate::words::request;
use crate::{estimate_of, open, stream_of};

/// Options for sending any snapshot.
const MANNERS: [&str; 7] = ["", "-L", "-e", "-c", "-Lec", "-w", "-p"];

#[test]
fn a_stream_is_as_long_as_foretold_and_reads_to_its_end() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        for name in ["snaps", "zvols", "tree"] {
            let mos = open(&rt, &golden(name)).await;
            for dataset in mos.all_datasets().await.unwrap() {
                let snapshots = dataset.snapshots().await.unwrap();
                let Some(last) = snapshots.last() else { continue };
                for manner in MANNERS {
                    let words = format!("{manner}\t{}", last.name());
                    let plan = Plan::of(request(&mos, &words).await.unwrap()).await.unwrap();
                    let stream = stream_of(&plan).await.unwrap_or_else(|error| panic!("{words}: {error}"));
                    assert_eq!(stream.len() as u64, estimate_of(&plan).await.unwrap(), "{words}");
                    let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(stream)));
                    while reader.next().await.unwrap_or_else(|error| panic!("{words}: {error}")).is_some() {}
                }
            }
        }
    });
}
