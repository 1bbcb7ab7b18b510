//! Report 002: a VM on iSCSI over 2.5 GbE. It blames the network, but its own numbers do not support that.

use super::*;

const LINK: f64 = 312.5e6;

/// Report's numbers: a link taken for 250 MB/s, disks 20 to 45 % busy, processors 18 to 30 %, 3 to 10 %
/// iowait.
fn observed(test: &str, iops: f64, bandwidth: f64, latency_ns: f64, depth: f64) -> Observed {
    let disk = |name: &str| DiskLoad {
        name: name.into(),
        busy: 0.45,
        in_flight: 0.6,
        iops: 150.0,
        bandwidth: 2e6,
        read_bandwidth: 0.0,
        others: None,
        rotates: Some(true),
    };
    Observed {
        test: test.into(),
        target: "vdb".into(),
        iops,
        bandwidth,
        latency_ns: Some(latency_ns),
        depth: Some(depth),
        disks: vec![disk("sda"), disk("sdb")],
        links: vec![LinkLoad { name: "enp1s0".into(), bandwidth, speed: LINK }],
        cpu: Some(Processors { busy: 0.30, own: Some(0.30), ..Processors::default() }),
        iowait: Some(0.10),
        ..Observed::default()
    }
}

/// 1 MiB at a time by `dd`: 111 MB/s, so 9.4 ms each.
fn sequential() -> Observed {
    observed("seqwrite", 111e6 / 1048576.0, 111e6, 1048576.0 / 111e6 * 1e9, 1.0)
}

#[test]
fn sequential_writes_are_not_limited_by_the_network() {
    let limits = Limits::of(sequential(), &[]);
    let part = |resource| limits.parts.iter().find(|p| p.resource == resource).unwrap();
    let network = part(Resource::Network);
    assert_eq!(network.role, Role::Free);
    assert!((network.used.unwrap() - 0.355).abs() < 0.001, "111 of 312.5 MB/s, not of 250");
    assert!(network.argument.contains("36 %"), "{}", network.argument);
    assert_eq!((part(Resource::Disk).role, part(Resource::Cpu).role), (Role::Free, Role::Free));
    assert_eq!(
        limits.limit().unwrap().resource,
        Resource::Concurrency,
        "one at a time, each waits for the one before"
    );
    let finding = &limits.findings()[0];
    assert_eq!(finding.id, "limit.concurrency");
    assert!(finding.sentence.contains("1.0 in flight (Little's law) of 1 allowed"), "{}", finding.sentence);
}

#[test]
fn random_io_fills_the_depth_that_psync_allows() {
    for (iops, latency_us) in [(9405.0, 423.91), (12_040.0, 330.8)] {
        let limits = Limits::of(observed("mixed", iops, iops * 4096.0, latency_us * 1e3, 4.0), &[]);
        let in_flight = limits.observed.in_flight().unwrap();
        assert!((in_flight - 3.985).abs() < 0.01, "{in_flight}");
        assert_eq!(limits.limit().unwrap().resource, Resource::Concurrency);
    }
}

#[test]
fn ten_gigabit_gains_little_with_one_operation_in_flight() {
    let projected = project(&sequential(), &DEVICES).unwrap();
    let with = |name: &str| projected.projections.iter().find(|p| p.with == name).unwrap();
    let ten = with("10 GbE");
    // Of 9.4 ms, 3.4 ms are spent on the wire and become 0.9: 6.9 to 6.95 ms each.
    assert!(ten.bandwidth.0 > 148e6 && ten.bandwidth.1 < 156e6, "{:?}", ten.bandwidth);
    assert_eq!(ten.next_limit, Resource::Concurrency);
    assert!(ten.gain < 1.5 && with("100 GbE").gain < 1.6, "not the tenfold that the report expects");
    assert!(with("1 GbE").bandwidth.1 < 125e6 * 0.95);
    assert!(projected.assumptions.iter().any(|a| a.contains("in flight")));
}

#[test]
fn a_saturated_link_is_the_limit_and_a_faster_one_moves_it() {
    let mut full = observed("seqread", 280.0, 280.0 * 1048576.0, 114e6, 32.0);
    full.links[0].bandwidth = 0.95 * LINK;
    full.read_bandwidth = full.bandwidth;
    let limits = Limits::of(full.clone(), &[]);
    assert_eq!(limits.limit().unwrap().resource, Resource::Network);
    let queue = limits.parts.iter().find(|p| p.resource == Resource::Concurrency).unwrap();
    assert!(queue.role == Role::Free && queue.argument.contains("as expected with a saturated resource"));
    let projected = project(&full, &DEVICES).unwrap();
    let ten = projected.projections.iter().find(|p| p.with == "10 GbE").unwrap();
    assert!(ten.bandwidth.0 < ten.bandwidth.1 && ten.gain > 1.5, "{ten:?}");
    assert_eq!(ten.next_limit, Resource::Disk, "disks 45 % busy can take little more than twice as much");
}
