//! The reads of a send.

use cenote_dataset::Mos;
use cenote_runtime::Runtime;
use cenote_stream::send::Plan;
use cenote_testkit::golden;

use crate::words::request;
use crate::{estimate_of, open, stream_of};

/// Bytes read from devices by a plan's streams and by their estimate, and bytes of the streams.
async fn read_by(mos: &Mos, words: &str) -> (u64, u64, u64) {
    let plan = Plan::of(request(mos, words).await.unwrap()).await.unwrap();
    let before = mos.pool().counters().moved()[0];
    let foretold = estimate_of(&plan).await.unwrap();
    let by_estimate = mos.pool().counters().moved()[0].since(&before).bytes;
    let before = mos.pool().counters().moved()[0];
    assert_eq!(stream_of(&plan).await.unwrap().len() as u64, foretold);
    (mos.pool().counters().moved()[0].since(&before).bytes, by_estimate, foretold)
}

#[test]
fn an_increment_reads_what_changed_and_an_estimate_metadata() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let mos = open(&rt, &golden("snaps")).await;
        let (whole, whole_estimate, bytes) = read_by(&mos, "gsnaps/a@s9").await;
        println!("whole: {bytes} bytes, read {whole}, estimate read {whole_estimate}");
        let (change, change_estimate, changed_bytes) = read_by(&mos, "-i\t@r8\tgsnaps/a@s9").await;
        println!("change: {changed_bytes} bytes, read {change}, estimate read {change_estimate}");
        assert!(changed_bytes < bytes / 4, "the change is small");
        assert!(change < whole / 4, "{change} of {whole} bytes");
        assert!(whole_estimate < whole / 4, "{whole_estimate} of {whole} bytes");
        assert!(change_estimate <= change, "{change_estimate} of {change} bytes");
    });
}
