//! Pool contents beside datasets: history, space maps, dedup and clone tables, deadlists, intent logs.

use std::collections::BTreeMap;

use cenote_dataset::usage::{ClassUsage, PoolUsage};
use cenote_format::dsl::names::pool as names;
use cenote_format::history::key;
use cenote_format::units::{Psize, Txg, VdevId};
use cenote_object::deadlist::Deadlist;
use cenote_pool::VdevClass;
use cenote_pool::alloc::{AllocClass, AllocRequest};
use cenote_runtime::Runtime;
use cenote_testkit::{golden, golden_pools, needs};

use crate::open;

/// Commands and internal events by txg, as in `zpool history -il`. Times are in the reader's zone, and
/// versions format event details differently.
#[test]
fn history_has_every_record_of_zpool_history() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        let name = pool.name();
        let Some(wanted) = pool.folder().join("history.txt").exists().then(|| pool.text("history.txt"))
        else {
            continue;
        };
        // Ioctl arguments follow on indented lines.
        let is_record = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
        let wanted: Vec<&str> = wanted.lines().filter(is_record).collect();
        let records = rt.block_on(async { open(&rt, &pool).await.history().await.unwrap() });
        assert!(!records.is_empty(), "{name}");
        for (line, record) in wanted.iter().zip(&records) {
            if let Some(command) = record.get_str(key::CMD) {
                assert!(line.contains(command), "{name}: {line}: {record:?}");
            }
            if let (Some(event), Some(txg)) = (record.get_str(key::INT_NAME), record.get_u64(key::TXG)) {
                assert!(line.contains(&format!("[txg:{txg}] {event}")), "{name}: {line}: {record:?}");
            }
        }
        assert!(
            records.len() <= wanted.len(),
            "{name}: {} records, zpool has {}",
            records.len(),
            wanted.len()
        );
    }
}

/// OpenZFS turned the dates of its scrub into these txgs (`history.txt`), by the log of an earlier time.
#[needs("24-scrub")]
#[test]
fn times_of_txgs_lead_to_the_txgs_that_openzfs_scrubs() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let mos = open(&rt, &golden("24-scrub")).await;
        let log = mos.txg_log().await.unwrap();
        assert!(
            [&log.minutes, &log.days, &log.months].iter().all(|ring| ring.times().count() > 1),
            "{log:?}"
        );
        assert_eq!((log.floor(1_767_657_600), log.ceiling(1_772_409_600)), (Some(Txg(15)), Some(Txg(42))));
        let scan = mos.scan_status().await.unwrap().unwrap();
        assert_eq!((scan.min_txg, scan.max_txg), (Txg(15), Txg(42)));
        // Each ring is encoded as it was found.
        for (name, ring) in [
            (names::TXG_LOG_TIME_MINUTES, &log.minutes),
            (names::TXG_LOG_TIME_DAYS, &log.days),
            (names::TXG_LOG_TIME_MONTHS, &log.months),
        ] {
            let value = mos.directory().unwrap().lookup(name.as_bytes()).await.unwrap().unwrap();
            assert_eq!(value.words().collect::<Vec<_>>(), ring.to_words(), "{name}");
        }
    });
}

/// `zdb -b` prints the space map total as `bp allocated` when nothing is leaked.
#[test]
fn space_maps_replay_without_contradiction_to_what_zdb_counts() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        let name = pool.name();
        let (mut total, mut normal) = (0, 0);
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let log = mos.log_spacemaps().await.unwrap();
            for vdev in mos.pool().tree().vdevs().tops() {
                for metaslab in mos.metaslabs(vdev, &log).await.unwrap() {
                    assert_eq!(
                        metaslab.overlaps,
                        [],
                        "{name}: vdev {} metaslab {}",
                        vdev.id,
                        metaslab.place.index
                    );
                    total += metaslab.allocated_bytes();
                    if vdev.class == cenote_pool::VdevClass::Normal {
                        // zdb sums the maps as last condensed, without the logs.
                        normal += metaslab.own_map_bytes;
                    }
                }
            }
        });
        let zdb = pool.text("zdb-b.txt");
        let number = |line: &str| line.split_whitespace().find_map(|w| w.parse::<u64>().ok());
        let wanted = |key: &str| zdb.lines().find(|l| l.trim().starts_with(key)).and_then(number);
        if let (Some(wanted), true) = (wanted("Normal class:"), zdb.contains("No leaks")) {
            assert_eq!(normal, wanted, "{name}: normal class of {total} bytes in all");
        }
    }
}

/// The allocator's totals equal the space maps', and allocations avoid allocated ranges.
#[test]
fn the_allocator_takes_up_where_the_kernel_module_stopped() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        let name = pool.name();
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let log = mos.log_spacemaps().await.unwrap();
            let allocator = mos.allocator(&log).await.unwrap();
            for usage in mos.usage().await.unwrap() {
                let space = allocator.vdev_space(usage.vdev).unwrap();
                let figures = (space.size_bytes, space.allocated_bytes);
                assert_eq!(figures, (usage.size_bytes, usage.allocated_bytes), "{name}: vdev {}", usage.vdev);
                // The kernel module counted ranges waiting to be free separately from their neighbours (2.4
                // even more of them); a vdev being removed counts its copied parts separately.
                let most = if pool.is_of_2_4() { 8 } else { 3 };
                let (ours, theirs) = (space.fragmentation_percent, usage.fragmentation_percent);
                let removing = mos.pool().tree().vdevs().top(usage.vdev).unwrap().removing;
                let near = theirs.is_none_or(|theirs| ours <= theirs && (ours + most >= theirs || removing));
                assert!(near, "{name}: vdev {} fragmented {ours} / {theirs:?} percent", usage.vdev);
            }
            let mut in_use = BTreeMap::new();
            for vdev in mos.pool().tree().vdevs().tops() {
                in_use.insert(VdevId(vdev.id), mos.metaslabs(vdev, &log).await.unwrap());
            }
            // The last size exceeds every free range of some pools.
            for (psize, copies) in [(4096, 3), (128 << 10, 1), (512, 2), (1 << 20, 1)] {
                let request = AllocRequest::new(AllocClass::Normal, Psize(psize), copies, Txg(1 << 40));
                let blocks: Vec<_> = (0..20).flat_map(|_| allocator.allocate(&request)).flatten().collect();
                assert!(psize > 128 << 10 || blocks.len() == 20 * copies, "{name}");
                for dva in blocks {
                    let (at, len) = (dva.offset_bytes, dva.asize.0);
                    let free = in_use[&dva.vdev].iter().all(|metaslab| metaslab.allocated.is_clear(at, len));
                    assert!(free, "{name}: {dva:?} is in use");
                }
            }
        });
    }
}

/// The figures of all classes but logs sum up to those of `zpool list`; only parity separates raw from net.
#[test]
fn classes_share_the_space_of_the_pool() {
    let rt = Runtime::real(Some(2));
    let mut with_parity = 0;
    for pool in golden_pools() {
        let name = pool.name();
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let vdevs = mos.usage().await.unwrap();
            let (classes, sum) = (mos.class_usage(&vdevs).await.unwrap(), PoolUsage::sum(&vdevs));
            let net = ClassUsage::of_pool(&classes);
            assert_eq!(
                (net.size_bytes, net.allocated_bytes),
                (sum.size_bytes, sum.allocated_bytes),
                "{name}"
            );
            let logs: u64 = vdevs.iter().filter(|v| v.class == VdevClass::Log).map(|v| v.size_bytes).sum();
            assert_eq!(classes[&AllocClass::Log].size_bytes, logs, "{name}");
            let has_parity = mos.pool_config().vdevs.iter().any(|top| top.parity > 0);
            assert_eq!(net.usable_bytes < net.size_bytes, has_parity, "{name}: {net:?}");
            assert!(0 < net.used_bytes && net.used_bytes < net.usable_bytes, "{name}: {net:?}");
            assert_eq!(net.used_bytes + net.available_bytes(), net.usable_bytes, "{name}");
            let (normal, fragmentation) = (classes[&AllocClass::Normal], sum.fragmentation_percent);
            assert_eq!(normal.fragmentation_percent, fragmentation, "{name}");
            with_parity += u32::from(has_parity);
        });
    }
    assert!(with_parity > 1);
}

/// A 128 KiB block on three disks with one parity column takes 384 sectors of 512 bytes, so OpenZFS counts
/// 341 usable bytes per sector of 512.
#[needs("raidz1")]
#[test]
fn usable_space_excludes_parity_as_openzfs_counts_it() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let mos = open(&rt, &golden("raidz1")).await;
        let classes = mos.class_usage(&mos.usage().await.unwrap()).await.unwrap();
        let normal = classes[&AllocClass::Normal];
        assert_eq!((normal.size_bytes, normal.usable_bytes), (448 << 20, (448 << 11) * 341));
        assert_eq!(normal.used_bytes, normal.allocated_bytes / 512 * 341);
    });
}

#[test]
fn dedup_tables_count_what_their_statistics_say() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        let name = pool.name();
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let mut blocks = 0;
            for table in mos.dedup_tables().await.unwrap() {
                let mut entries = table.entries().await.unwrap();
                while let Some(batch) = entries.next_batch().await {
                    blocks += batch.unwrap().iter().map(|item| item.value.phys().count() as u64).sum::<u64>();
                }
            }
            let summary = mos.dedup_summary().await.unwrap();
            assert!(blocks >= summary.blocks, "{name}: {blocks} in tables and logs, {}", summary.blocks);
            let ratio = format!("{}.{:02}", summary.ratio_percent() / 100, summary.ratio_percent() % 100);
            let rows: BTreeMap<_, _> = pool
                .properties()
                .into_iter()
                .filter(|r| r.name == pool.facts().pool)
                .map(|r| (r.property, r.value))
                .collect();
            assert_eq!(rows["dedupratio"], ratio, "{name}");
            let cloned = mos.cloned_summary().await.unwrap();
            if !pool.facts().state.starts_with("unclean") {
                assert_eq!(rows["bcloneused"], cloned.used_bytes.to_string(), "{name}");
                assert_eq!(rows["bclonesaved"], cloned.saved_bytes.to_string(), "{name}");
            }
        });
    }
}

#[test]
fn deadlists_sum_up_their_blocks() {
    assert_deadlists_sum_up(&["snaps"]);
}

#[needs("legacy-fuse10", "legacy-v28")]
#[test]
fn old_deadlists_sum_up_their_blocks() {
    assert_deadlists_sum_up(&["legacy-fuse10", "legacy-v28"]);
}

fn assert_deadlists_sum_up(pools: &[&str]) {
    let rt = Runtime::real(Some(2));
    for name in pools {
        let pool = golden(name);
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let mut blocks = 0;
            for head in mos.all_datasets().await.unwrap() {
                for dataset in head.snapshots().await.unwrap().into_iter().chain([head]) {
                    let deadlist = Deadlist::open(mos.objset(), dataset.phys().deadlist).await.unwrap();
                    let (mut bytes, mut stored) = (0, 0);
                    for list in deadlist.lists().await.unwrap() {
                        let mut entries = list.entries();
                        while let Some(batch) = entries.next_batch().await {
                            for entry in batch.unwrap() {
                                bytes += entry.bp.asize().0;
                                stored += entry.bp.psize().0;
                                blocks += 1;
                            }
                        }
                    }
                    assert_eq!(bytes, deadlist.bytes(), "{dataset:?}: {stored} stored");
                }
            }
            assert!(blocks > 0, "{name}: no dead blocks at all");
        });
    }
}

#[test]
fn intent_logs_have_the_records_that_zdb_lists() {
    assert_logs_have_the_records_of_zdb("unclean-zil");
}

#[needs("unclean-slog")]
#[test]
fn intent_logs_on_a_log_device_have_the_records_that_zdb_lists() {
    assert_logs_have_the_records_of_zdb("unclean-slog");
}

fn assert_logs_have_the_records_of_zdb(name: &str) {
    let rt = Runtime::real(Some(2));
    let pool = golden(name);
    let zdb = String::from_utf8_lossy(&pool.bytes("zil.txt")).into_owned();
    rt.block_on(async {
        let mos = open(&rt, &pool).await;
        let wanted = zdb_records(&zdb, mos.uberblock().txg.0);
        let mut found = BTreeMap::new();
        for dataset in mos.all_datasets().await.unwrap() {
            let log = dataset.objset().await.unwrap().intent_log().await;
            assert!(log.damaged.is_none(), "{name}: {:?}", log.damaged);
            for record in log.records {
                let records: &mut Vec<_> = found.entry(dataset.name().to_owned()).or_default();
                records.push((record.seq, record.operation.type_name().to_owned()));
            }
        }
        assert!(!wanted.is_empty(), "{name}");
        assert_eq!(found, wanted, "{name}");
    });
}

/// Records by dataset after the pool's txg, from `zdb -ivv`.
fn zdb_records(text: &str, synced_txg: u64) -> BTreeMap<String, Vec<(u64, String)>> {
    let mut records: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let mut dataset = "";
    let number = |line: &str, key: &str| -> Option<u64> {
        line.split(key).nth(1)?.split([',', ' ']).next()?.trim().parse().ok()
    };
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("Dataset ") {
            dataset = name.split(" [").next().unwrap_or_default();
        }
        // Dumped data may precede the record on its line.
        let Some(kind) = line.find("TX_").map(|at| &line[at..]) else { continue };
        let (Some(txg), Some(seq)) = (number(kind, "txg "), number(kind, "seq ")) else { continue };
        if txg > synced_txg {
            let kind = kind.split_whitespace().next().unwrap_or_default();
            records.entry(dataset.to_owned()).or_default().push((seq, kind.to_owned()));
        }
    }
    records
}

#[test]
fn features_are_those_of_zpool_get() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        let name = pool.name();
        let found: BTreeMap<String, String> = rt.block_on(async {
            let states = open(&rt, &pool).await.features().await.unwrap();
            states.into_iter().map(|(f, state)| (format!("feature@{}", f.name), state.to_string())).collect()
        });
        let rows = pool.properties().into_iter().filter(|r| r.property.starts_with("feature@"));
        let wanted: BTreeMap<String, String> = rows.map(|r| (r.property, r.value)).collect();
        let (found, unknown): (BTreeMap<_, _>, BTreeMap<_, _>) =
            found.into_iter().partition(|(name, _)| wanted.contains_key(name) || pool.is_of_2_4());
        assert!(unknown.values().all(|state| state == "disabled"), "{name}: {unknown:?}");
        // An import by the kernel, even of a copy with replayed logs, may have activated more.
        if !pool.facts().state.starts_with("unclean") {
            assert_eq!(found, wanted, "{name}");
        }
    }
}
