//! The rules, run on recorded output of OpenZFS 2.3: each is raised where it should be, and nowhere else.
//!
//! The pools were in virtual machines, each with its own faults: see tests/recorded/zfs/README.md and `guest`
//! there. Faults that these could not have (an old scrub, a failing disk) are added to their output.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use cenote_lab::advice::facts::Health;
use cenote_lab::advice::rules::RULES;
use cenote_lab::advice::text::{Layout, text};
use cenote_lab::advice::{Advice, Facts, Review, Severity, review};
use cenote_lab::machine::zpool::{Class, Latencies, Vdev};
use cenote_lab::sample::smart::{Smart, Trend};

fn recorded(pool: &str) -> Facts {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/zfs").join(pool);
    Facts::recorded(&folder).unwrap()
}

fn advised(review: &Review) -> BTreeSet<(&str, &str)> {
    review.advice.iter().map(|advice| (&*advice.rule, advice.subject.as_str())).collect()
}

fn advice<'a>(review: &'a Review, rule: &str) -> Vec<&'a Advice> {
    review.advice.iter().filter(|advice| advice.rule == rule).collect()
}

fn is_fine(review: &Review, rule: &str, subject: &str) -> bool {
    review.fine.iter().any(|fine| fine.rule == rule && fine.subject == subject)
}

fn vdev<'a>(facts: &'a mut Facts, name: &str) -> &'a mut Vdev {
    facts.pools[0].vdevs.iter_mut().find(|vdev| vdev.name == name).unwrap()
}

/// The number that a piece of advice rests on.
fn value(advice: &Advice) -> f64 {
    advice.gauge.unwrap().value
}

#[test]
fn a_healthy_pool_gets_no_advice_on_health_space_or_layout() {
    let review = review(&recorded("healthy"));
    for rule in [
        "degraded",
        "unscrubbed",
        "fill-80",
        "fill-90",
        "fragmentation",
        "special-full",
        "mixed-vdevs",
        "slog-unused",
    ] {
        assert!(is_fine(&review, rule, "healthy"), "{rule}");
    }
    for (rule, subject) in [
        ("special-less-redundant", "healthy/mirror-1"),
        ("slog-unmirrored", "healthy/mirror-2"),
        ("ashift", "healthy/mirror-0"),
    ] {
        assert!(is_fine(&review, rule, subject), "{rule} {subject}");
    }
    assert!(review.advice.iter().all(|advice| advice.severity == Severity::Notice), "{:?}", advised(&review));
}

#[test]
fn a_single_special_disk_in_a_mirrored_pool_is_critical() {
    let review = review(&recorded("thin"));
    let [one] = advice(&review, "special-less-redundant")[..] else { panic!("{:?}", advised(&review)) };
    assert_eq!((one.severity, one.subject.as_str()), (Severity::Critical, "thin/loop2"));
    assert_eq!(one.remedy.commands, ["zpool attach thin /dev/loop2 NEWSSD"]);
    assert_eq!(review.advice[0].rule, "special-less-redundant", "the most urgent first");
}

#[test]
fn small_blocks_leave_the_special_class_from_75_percent_on() {
    let mut facts = recorded("thin");
    let special = vdev(&mut facts, "loop2");
    let size = special.size_bytes.unwrap();
    for (percent, full) in [(74, false), (76, true)] {
        vdev(&mut facts, "loop2").allocated_bytes = Some(size / 100 * percent);
        assert_eq!(!advice(&review(&facts), "special-full").is_empty(), full, "{percent} %");
    }
    // Without small blocks on them, the reserve does not matter.
    facts.pools[0].datasets.iter_mut().for_each(|dataset| dataset.special_small_bytes = 0);
    assert!(advice(&review(&facts), "special-full").is_empty());
}

#[test]
fn an_8k_volume_on_a_wide_raidz2_takes_the_computed_space() {
    let facts = recorded("wide");
    let review = review(&facts);
    let [one] = advice(&review, "raidz-width-padding")[..] else { panic!("{:?}", advised(&review)) };
    assert_eq!((one.subject.as_str(), one.severity), ("wide/vol", Severity::Warning));
    assert!((value(one) - 55.6).abs() < 0.1, "2 of 6 sectors, nominally 6 of 8: {}", value(one));
    assert!(is_fine(&review, "raidz-width-padding", "wide/fs"));
    // OpenZFS computes `used` as if all blocks were 128 KiB (45 sectors for 32): its figure for the volume
    // must follow from the same arithmetic.
    let volume = facts.pools[0].datasets.iter().find(|dataset| dataset.name == "wide/vol").unwrap();
    let said = volume.used_by_itself_bytes as f64 / volume.logical_used_bytes as f64;
    assert!((said - 6.0 / 2.0 * 32.0 / 45.0).abs() < 0.01, "{said}");
}

#[test]
fn synchronous_writes_get_advice_only_if_a_log_device_is_missing() {
    let wide = review(&recorded("wide"));
    let [one] = advice(&wide, "sync-without-slog")[..] else { panic!("{:?}", advised(&wide)) };
    assert!(value(one) > 20.0, "7,688 commits in 266 s");
    assert!(is_fine(&review(&recorded("thin")), "sync-without-slog", "thin"), "no commits");
    assert!(advice(&review(&recorded("healthy")), "sync-without-slog").is_empty(), "it has a log");
}

#[test]
fn an_unused_log_device_is_reported_after_an_hour() {
    let mut facts = recorded("healthy");
    let zero = |facts: &mut Facts, name: &str| {
        for counters in facts.pools[0].datasets.iter_mut().filter_map(|dataset| dataset.counters.as_mut()) {
            counters.0.insert(name.into(), 0);
        }
    };
    zero(&mut facts, "zil_itx_metaslab_slog_count");
    assert!(review(&facts).unknown.iter().any(|unknown| unknown.rule == "slog-unused"), "too early");
    facts.counted_s = Some(7200.0);
    let unused = review(&facts);
    assert_eq!(advice(&unused, "slog-unused")[0].remedy.commands, ["zpool remove healthy mirror-2"]);
}

#[test]
fn the_l2arc_is_judged_by_its_own_hits_and_headers() {
    let mut facts = recorded("wide");
    assert!(is_fine(&review(&facts), "l2arc-hit-rate", "l2arc"), "3,782 of 3,813");
    assert!(is_fine(&review(&facts), "l2arc-headers", "l2arc"), "1.2 %");
    let arc = facts.arc.as_mut().unwrap();
    arc.0.insert("l2_misses".into(), 2000);
    arc.0.insert("l2_hdr_size".into(), 20 << 20);
    let worse = review(&facts);
    assert!((value(advice(&worse, "l2arc-hit-rate")[0]) - 65.4).abs() < 0.1);
    assert!((value(advice(&worse, "l2arc-headers")[0]) - 15.6).abs() < 0.1);
    facts.pools[0].vdevs.retain(|vdev| vdev.class != Class::Cache);
    assert!(review(&facts).fine.iter().all(|fine| fine.subject != "l2arc"), "silent without a cache device");
}

#[test]
fn an_arc_is_fine_only_if_it_holds_its_metadata() {
    let mut facts = recorded("wide");
    assert!(is_fine(&review(&facts), "arc-small-for-metadata", "arc"));
    facts.arc.as_mut().unwrap().0.insert("demand_metadata_misses".into(), 2000);
    assert!((value(advice(&review(&facts), "arc-small-for-metadata")[0]) - 10.3).abs() < 0.1);
    facts.arc.as_mut().unwrap().0.insert("size".into(), 1 << 20);
    assert!(
        advice(&review(&facts), "arc-small-for-metadata").is_empty(),
        "it is not full: these are first reads"
    );
}

#[test]
fn a_degraded_pool_names_the_disks_the_weakest_vdev_and_the_missing_scrub() {
    let review = review(&recorded("degraded"));
    let told = advised(&review);
    for expected in [
        ("degraded", "degraded/loop1"),
        ("unscrubbed", "degraded"),
        ("mixed-vdevs", "degraded"),
        ("degraded", "degraded/loop2"),
    ] {
        assert!(told.contains(&expected), "{expected:?} {told:?}");
    }
    let offline =
        advice(&review, "degraded").into_iter().find(|advice| advice.subject == "degraded/loop1").unwrap();
    assert_eq!(offline.severity, Severity::Critical, "the mirror has no other disk left");
    assert_eq!(offline.remedy.commands, ["zpool online degraded loop1"]);
    assert!(is_fine(&review, "degraded", "degraded/loop0"));
}

#[test]
fn a_scrub_is_missed_after_35_days() {
    let mut facts = recorded("healthy");
    let scrubbed = facts.pools[0].scan.as_ref().unwrap().end_unix_s;
    for (days, missed) in [(34, false), (36, true)] {
        facts.unix_s = Some(scrubbed + days * 86_400);
        assert_eq!(!advice(&review(&facts), "unscrubbed").is_empty(), missed, "{days} days");
    }
}

#[test]
fn fill_and_fragmentation_have_their_levels() {
    let full = review(&recorded("degraded"));
    assert_eq!(
        (advice(&full, "fill-90").len(), advice(&full, "fill-80").len()),
        (1, 0),
        "the higher level covers both"
    );
    let mut facts = recorded("healthy");
    let size = vdev(&mut facts, "mirror-0").size_bytes.unwrap();
    for (percent, expected) in [
        (79, None),
        (81, Some(("fill-80", Severity::Notice))),
        (91, Some(("fill-90", Severity::Warning))),
        (97, Some(("fill-90", Severity::Critical))),
    ] {
        vdev(&mut facts, "mirror-0").allocated_bytes = Some(size / 100 * percent + size % 100);
        let review = review(&facts);
        let fill = review
            .advice
            .iter()
            .find(|advice| advice.rule.starts_with("fill"))
            .map(|advice| (&*advice.rule, advice.severity));
        assert_eq!(fill, expected, "{percent} %: of the data vdevs, though the special vdev is nearly empty");
    }
    facts.pools[0].fragmentation_percent = Some(64);
    assert_eq!(advice(&review(&facts), "fragmentation")[0].evidence[1].shown(), "128 KiB");
    facts.pools[0].fragmentation_percent = None;
    assert!(review(&facts).unknown.iter().any(|unknown| unknown.rule == "fragmentation"));
}

#[test]
fn a_full_fragmented_pool_with_a_single_log_and_small_sectors_gets_advice() {
    let review = review(&recorded("fragmented"));
    let told = advised(&review);
    println!("{}", text(&review, Layout { colour: false, verbose: true, width: 130 }));
    for expected in [
        ("fill-80", "fragmented"),
        ("ashift", "fragmented/raidz1-0"),
        ("slog-unmirrored", "fragmented/loop4"),
    ] {
        assert!(told.contains(&expected), "{expected:?} {told:?}");
    }
    assert!(is_fine(&review, "unscrubbed", "fragmented") && is_fine(&review, "slog-unused", "fragmented"));
}

#[test]
fn sectors_larger_than_the_ashift_are_reported() {
    let mut facts = recorded("healthy");
    vdev(&mut facts, "mirror-0").children[0].physical_ashift = Some(13);
    assert_eq!(advice(&review(&facts), "ashift")[0].severity, Severity::Warning);
    vdev(&mut facts, "mirror-0").children[0].physical_ashift = Some(16);
    assert!(
        advice(&review(&facts), "ashift").is_empty(),
        "64 KiB is a preference that OpenZFS does not follow"
    );
    vdev(&mut facts, "mirror-0").ashift = Some(9);
    vdev(&mut facts, "mirror-0").children[0].physical_ashift = None;
    let old = review(&facts);
    assert_eq!(advice(&old, "ashift")[0].severity, Severity::Notice);
    assert_eq!(advised(&old).iter().filter(|told| told.0 == "ashift").count(), 1);
}

#[test]
fn a_single_log_disk_is_reported() {
    let mut facts = recorded("healthy");
    let alone = vdev(&mut facts, "mirror-2").children.remove(0);
    facts.pools[0].vdevs.retain(|vdev| vdev.class != Class::Log);
    facts.pools[0].vdevs.push(alone);
    assert_eq!(
        advice(&review(&facts), "slog-unmirrored")[0].remedy.commands,
        ["zpool attach healthy /dev/loop4 NEWDISK"]
    );
}

#[test]
fn a_disk_slower_than_its_siblings_is_found_and_equal_ones_are_not() {
    let mut facts = recorded("wide");
    assert!(advice(&review(&facts), "slow-disk").is_empty(), "7.3 ms against 6 ms does not matter");
    let slow = &mut vdev(&mut facts, "raidz2-0").children[3];
    let latencies = slow.latencies.unwrap();
    slow.latencies =
        Some(Latencies { disk_write_ns: latencies.disk_write_ns.map(|ns| ns * 5.0), ..latencies });
    let found = review(&facts);
    assert_eq!(
        advised(&found).iter().filter(|told| told.0 == "slow-disk").map(|told| told.1).collect::<Vec<_>>(),
        ["wide/loop3"]
    );
    vdev(&mut facts, "raidz2-0").children.iter_mut().for_each(|disk| disk.latencies = None);
    assert!(review(&facts).unknown.iter().any(|unknown| unknown.rule == "slow-disk"));
}

#[test]
fn block_sizes_are_compared_with_observed_operations() {
    let mut facts = recorded("healthy");
    let counters = facts.pools[0]
        .datasets
        .iter_mut()
        .find(|d| d.name == "healthy/media")
        .unwrap()
        .counters
        .as_mut()
        .unwrap();
    for (name, count) in [("reads", 10_000), ("nread", 10_000 * 16_384), ("writes", 0), ("nwritten", 0)] {
        counters.0.insert(name.into(), count);
    }
    let told = review(&facts);
    let media = told
        .advice
        .iter()
        .find(|advice| advice.rule == "recordsize-io-size" && advice.subject == "healthy/media")
        .unwrap();
    assert_eq!(
        media.remedy.commands,
        ["zfs set recordsize=16384 healthy/media"],
        "blocks of 1 MiB, reads of 16 KiB"
    );
    assert!(is_fine(&told, "recordsize-io-size", "healthy/db"), "16 KiB on 16 KiB");
}

#[test]
fn reads_that_queue_longer_than_they_take_are_too_many() {
    let mut facts = recorded("wide");
    let busy = |factor: f64| Latencies {
        reads: 100.0,
        read_ns: Some(factor * 8e6),
        disk_read_ns: Some(8e6),
        ..Latencies::default()
    };
    for (factor, too_many) in [(1.2, false), (3.0, true)] {
        vdev(&mut facts, "raidz2-0").children.iter_mut().for_each(|disk| disk.latencies = Some(busy(factor)));
        assert_eq!(!advice(&review(&facts), "parallel-workers").is_empty(), too_many, "{factor}");
    }
}

#[test]
fn smart_records_are_judged_by_health_and_growth() {
    let mut facts = recorded("healthy");
    let health = |passed, meaning: Option<&str>| Health {
        disk: "sda".into(),
        now: Smart { model: "ST2000DM008".into(), passed: Some(passed), ..Smart::default() },
        trends: vec![Trend {
            name: "reallocated",
            first: 0.0,
            last: 8.0,
            days: 20,
            per_day: 0.4,
            meaning: meaning.map(str::to_owned),
        }],
    };
    let severity = |review: &Review| advice(review, "smart-trend").first().map(|advice| advice.severity);
    assert_eq!(severity(&review(&facts)), None, "not checked");
    for (one, expected) in [
        (health(true, None), None),
        (health(true, Some("8 more sectors reallocated in 20 days")), Some(Severity::Warning)),
        (health(false, None), Some(Severity::Critical)),
    ] {
        facts.health = vec![one];
        assert_eq!(severity(&review(&facts)), expected);
    }
}

#[test]
fn counters_since_earlier_facts_cover_the_time_between() {
    let (mut then, mut now) = (recorded("wide"), recorded("wide"));
    (then.counted_s, now.counted_s) = (Some(100.0), Some(160.0));
    now.arc.as_mut().unwrap().0.insert("l2_misses".into(), 531);
    let between = now.since(&then);
    assert_eq!(between.counted_s, Some(60.0));
    assert_eq!(between.arc.as_ref().unwrap().get("l2_misses"), Some(500));
    assert_eq!(between.arc.as_ref().unwrap().get("c_max"), Some(134_217_728), "a state, not a count");
    assert!(advice(&review(&between), "sync-without-slog").is_empty(), "no commits in that minute");
}

#[test]
fn every_rule_has_a_reason_a_source_and_advice_a_command_with_its_risk() {
    let ids: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), RULES.len(), "ids are unique");
    for rule in RULES {
        assert!(!rule.sources.is_empty() && rule.reason.len() > 80, "{}", rule.id);
    }
    for pool in ["healthy", "thin", "wide", "fragmented", "degraded"] {
        for advice in review(&recorded(pool)).advice {
            assert!(!advice.remedy.caution.is_empty() && !advice.evidence.is_empty(), "{}", advice.rule);
        }
    }
}

#[test]
fn text_and_json_say_the_same() {
    let review = review(&recorded("degraded"));
    let plain = text(&review, Layout { colour: false, verbose: false, width: 100 });
    println!("{plain}");
    for advice in &review.advice {
        assert!(plain.contains(&format!("({})", advice.rule)) && plain.contains(&advice.remedy.commands[0]));
    }
    assert!(
        !plain.contains('\x1b')
            && text(&review, Layout { colour: true, verbose: false, width: 100 }).contains('\x1b')
    );
    let json = serde_json::to_value(&review).unwrap();
    assert_eq!(json["advice"][0]["severity"], "critical");
    assert_eq!(json["advice"].as_array().unwrap().len(), review.advice.len());
}
