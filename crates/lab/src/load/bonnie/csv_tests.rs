//! Output of bonnie++ 2.00 recorded on a development machine: tests/recorded/bonnie.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use super::*;

fn recorded(name: &str) -> String {
    let path = format!("{}/tests/recorded/bonnie/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

fn stream<'t>(told: &'t Told, name: &str) -> &'t Stream {
    told.streams.iter().find(|stream| stream.operation == name).unwrap()
}

fn figure(told: &Told, name: &str) -> f64 {
    told.others.iter().find(|figure| figure.name == name).unwrap().value
}

/// Within a millionth: rates are converted to a runtime in nanoseconds.
fn about(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 1e-6
}

#[test]
fn rates_processor_use_and_latencies_match_its_table() {
    let told = parse(&recorded("disk"), 8192).unwrap();
    assert_eq!(told.version, "2.00a");
    assert!(about(stream(&told, "write").bandwidth(), 88148.0 * 1024.0));
    assert!(about(stream(&told, "rewrite").bandwidth(), 149177.0 * 1024.0));
    assert!(about(stream(&told, "read").bandwidth(), 402418.0 * 1024.0));
    assert!(about(stream(&told, "sequential-create").iops(), 10146.0));
    assert!(about(stream(&told, "random-delete").iops(), 19030.0));
    assert_eq!(stream(&told, "write").bytes, 6 << 30);
    assert_eq!(stream(&told, "random-create").operations, 32 * 1024);
    assert_eq!(figure(&told, "write.cpu"), 19.0);
    assert_eq!(figure(&told, "write.max"), 682e6);
    assert_eq!(figure(&told, "seek.max"), 62_678e3);
    assert_eq!(figure(&told, "random-delete.max"), 24_097e3);
}

#[test]
fn seeks_are_counted_and_blocks_have_the_requested_size() {
    let told = parse(&recorded("sized-files"), 64 << 10).unwrap();
    let seeks = stream(&told, "seek");
    assert!(about(seeks.iops(), 6956.0));
    assert_eq!((seeks.operations, seeks.bytes), (8192, 8192 * 64 * 1024));
    assert!(about(stream(&told, "write").bandwidth(), 282_098.0 * 1024.0));
    assert_eq!(figure(&told, "rewrite.max"), 23_400e3);
}

#[test]
fn phases_too_fast_to_measure_are_noted_not_invented() {
    let told = parse(&recorded("too-fast"), 8192).unwrap();
    assert!(told.streams.is_empty());
    assert_eq!(told.notes.len(), 10);
    assert!(told.notes.iter().any(|note| note.starts_with("sequential-stat: ")), "{:?}", told.notes);
    assert_eq!(figure(&told, "random-create.max"), 84_187e3);
}

#[test]
fn other_lines_are_refused_and_quoted() {
    for text in [
        recorded("disk").replacen(",6G,", ",", 1),
        recorded("disk").replacen("1.98", "1.96", 1),
        String::new(),
    ] {
        let said = parse(&text, 8192).unwrap_err().to_string();
        assert!(said.contains("expected 50 fields"), "{said}");
    }
    let broken = recorded("disk").replace(",88148,", ",fast,");
    assert!(parse(&broken, 8192).unwrap_err().to_string().contains("\"fast\""));
}

#[test]
fn a_skipped_test_gives_no_stream() {
    let told = parse(&recorded("no-seeks"), 64 << 10).unwrap();
    assert!(told.streams.iter().all(|stream| stream.operation != "seek"));
    assert!(about(stream(&told, "write").bandwidth(), 496_546.0 * 1024.0));
}
