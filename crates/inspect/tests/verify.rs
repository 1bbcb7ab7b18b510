//! Verification of golden pools compared with OpenZFS's results, and of deliberately damaged pools.
#![allow(clippy::unwrap_used, reason = "a test that can't prepare itself must stop")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cenote_dataset::{Dataset, ImportOptions, Mos, import};
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, ObjectId};
use cenote_fs::Filesystem;
use cenote_inspect::verify::{FaultKind, Finding, Part, Severity, Stop, VerifyOptions, VerifyReport, verify};
use cenote_object::Object;
use cenote_pool::{VdevKind, discover};
use cenote_runtime::Runtime;
use cenote_testkit::{copy_image, golden, golden_pools, needs};

/// Labels 0 and 1 and the boot area precede a vdev's first allocatable byte.
const LABEL_START_BYTES: u64 = 4 << 20;

async fn open(runtime: &Runtime, folder: &Path) -> Mos {
    let found = discover(runtime, &[folder.to_owned()]).await;
    import(runtime, &found.pools[0], &ImportOptions::default()).await.unwrap()
}

async fn verified(mos: &Mos) -> VerifyReport {
    verify(mos, VerifyOptions::default(), |_| {}).await.unwrap()
}

/// The figures of `zdb -bcc`: the numbers of each line, keyed by the words before the first.
fn zdb_figures(text: &str) -> BTreeMap<String, Vec<u64>> {
    let mut figures = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(first) = words.iter().position(|word| word.parse::<u64>().is_ok()) else { continue };
        let name = words[..first].join(" ").trim_end_matches(':').to_owned();
        figures.insert(name, words[first..].iter().filter_map(|word| word.parse().ok()).collect());
    }
    figures
}

/// How full each class is, in the percentages that `zdb -bcc` prints.
fn zdb_shares(text: &str) -> BTreeMap<String, String> {
    let share = |line: &str| {
        let (class, rest) = line.trim().split_once(" class")?;
        let (_, share) = rest.split_once("used:")?;
        Some((class.to_lowercase(), share.trim().trim_end_matches('%').to_owned()))
    };
    text.lines().filter_map(share).collect()
}

/// Figures in which the report differs from `zdb`, as `figure: ours / zdb's`.
fn differences(mos: &Mos, report: &VerifyReport, zdb: &str) -> Vec<String> {
    let figures = zdb_figures(zdb);
    let counts = &report.counts;
    let class =
        |class: &str| report.space.classes.iter().find(|c| c.class == class).map_or(0, |c| c.allocated_bytes);
    let ours = [
        ("bp count", 0, counts.total.count),
        ("ganged count", 0, counts.total.ganged),
        ("bp logical", 0, counts.total.logical_bytes),
        ("bp physical", 0, counts.total.physical_bytes),
        ("bp allocated", 0, counts.total.allocated_bytes),
        ("bp deduped", 0, counts.deduped.allocated_bytes),
        ("bp deduped", 1, counts.deduped.count),
        ("bp cloned", 0, counts.cloned.allocated_bytes),
        ("bp cloned", 1, counts.cloned.count),
        ("Normal class", 0, class("normal")),
        ("Special class", 0, class("special")),
        ("Dedup class", 0, class("dedup")),
        ("Embedded log class", 0, class("embedded log")),
        ("Dittoed blocks on same vdev", 0, counts.total.ditto_same_vdev),
        ("Dittoed blocks in same metaslab", 0, counts.total.ditto_same_metaslab),
    ];
    let embedded = zdb.lines().find_map(|line| line.split_once("bps of type 0:"));
    let embedded = embedded.map_or(0, |(_, count)| count.trim().parse().unwrap());
    let ours = ours.into_iter().map(|(figure, index, value)| {
        (figure, value, figures.get(figure).map_or(0, |numbers| numbers[index]))
    });
    // `zdb` invents metaslabs for each removed vdev and counts them as space.
    let removed = mos.pool().tree().vdevs().tops().any(|top| top.kind == VdevKind::Indirect);
    let shares = zdb_shares(zdb).into_iter().filter(|_| !removed).filter_map(|(class, zdb)| {
        let space = report.space.classes.iter().find(|c| c.class == class);
        let (used, total) = space.map_or((0, 0), |space| (space.allocated_bytes, space.total_bytes));
        let ours = match total {
            0 => "-nan".to_owned(),
            _ => format!("{:.2}", 100.0 * used as f64 / total as f64),
        };
        (ours != zdb).then(|| format!("{class} class: {ours} / {zdb} percent"))
    });
    let by_type: u64 = counts.by_type.iter().map(|t| t.sums.count).sum();
    let own = [
        ("embedded", counts.embedded.get(&0).copied().unwrap_or(0), embedded),
        ("sum over types", by_type, counts.total.count),
    ];
    let differ = ours.chain(own).filter(|(_, ours, zdb)| ours != zdb);
    differ.map(|(figure, ours, zdb)| format!("{figure}: {ours} / {zdb}")).chain(shares).collect()
}

#[test]
fn every_golden_pool_counts_as_zdb_counts_and_nothing_leaks() {
    let runtime = Runtime::real(None);
    let mut wrong = Vec::new();
    let counted: Vec<_> = golden_pools().filter(|pool| pool.folder().join("zdb-b.txt").exists()).collect();
    assert!(!counted.is_empty());
    for pool in counted {
        let name = pool.name();
        let zdb = pool.text("zdb-b.txt");
        let (mos, report) = runtime.block_on(async {
            let mos = open(&runtime, &pool.images()).await;
            let report = verified(&mos).await;
            (mos, report)
        });
        wrong.extend(differences(&mos, &report, &zdb).into_iter().map(|figure| format!("{name}: {figure}")));
        let damaged_on_purpose = ["damaged", "degraded", "errlog"].contains(&name);
        let weak = pool.text("status.txt").contains("state: DEGRADED");
        let expected = |finding: &&Finding| match finding {
            Finding::Block(_) => damaged_on_purpose,
            Finding::Redundancy(_) => weak,
            _ => false,
        };
        let findings: Vec<&Finding> = report.findings.iter().filter(|finding| !expected(finding)).collect();
        wrong.extend(findings.iter().take(5).map(|finding| format!("{name}: {finding}")));
        if !report.complete
            || !report.space.checked
            || (report.lost_blocks > 0) != ["damaged", "errlog"].contains(&name)
        {
            wrong
                .push(format!("{name}: {} lost, space checked {}", report.lost_blocks, report.space.checked));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_scrub_of_the_kernel_repairs_is_found_on_the_same_disk() {
    let pool = golden("degraded");
    let runtime = Runtime::real(None);
    let report = runtime.block_on(async { verified(&open(&runtime, &pool.images()).await).await });
    assert_eq!(report.lost_blocks, 0);
    assert!(report.repairable_blocks > 0);
    assert_eq!(report.devices.len(), 1, "{:?}", report.devices);
    assert!(report.devices[0].device.ends_with("disk1.img"));
    // "scrub repaired 4.78M", to three digits.
    let scrub = (4.78 * f64::from(1 << 20)) as u64;
    assert!(report.devices[0].bytes.abs_diff(scrub) < 6 << 10, "{:?} against {scrub}", report.devices);
}

/// Files and ranges that the kernel could not read, from the manifests of a pool's live file systems.
fn unreadable(pool: &cenote_testkit::Golden) -> BTreeSet<(String, String, u64)> {
    let mut found = BTreeSet::new();
    for dataset in pool.facts().datasets.iter().filter(|dataset| dataset.kind == "filesystem") {
        let Some(manifest) = &dataset.manifest else { continue };
        for row in pool.text(manifest).lines() {
            let Some((ranges, _)) = row.split("EIO:").nth(1).and_then(|rest| rest.split_once('|')) else {
                continue;
            };
            let path = row.split('\t').next().unwrap();
            for range in ranges.split(';') {
                let (offset, len) = range.split_once('+').unwrap();
                let (offset, len): (u64, u64) = (offset.parse().unwrap(), len.parse().unwrap());
                // The manifest joins adjacent blocks; the pool's records have 128 KiB.
                let blocks =
                    (offset / RECORD_BYTES..(offset + len).div_ceil(RECORD_BYTES)).map(|b| b * RECORD_BYTES);
                found.extend(blocks.map(|at| (dataset.name.clone(), path.to_owned(), at)));
            }
        }
    }
    found
}

/// Default record size.
const RECORD_BYTES: u64 = 128 << 10;

#[test]
fn what_the_kernel_could_not_read_is_lost_and_nothing_else() {
    let pool = golden("damaged");
    let runtime = Runtime::real(None);
    let report = runtime.block_on(async { verified(&open(&runtime, &pool.images()).await).await });
    let mut lost = BTreeSet::new();
    for finding in &report.findings {
        let Finding::Block(block) = finding else { panic!("{finding}") };
        if !block.lost {
            continue;
        }
        let Part::Data { offset_bytes, .. } = block.owner.part else { panic!("{finding}") };
        let path = block.owner.path.clone().unwrap();
        for name in block.owner.dataset.iter().chain(&block.owner.also_in).filter(|name| !name.contains('@'))
        {
            lost.insert((name.clone(), path.clone(), offset_bytes));
        }
    }
    assert_eq!(lost, unreadable(&pool));
}

/// A copy of a golden pool that may be damaged.
struct Copy {
    folder: tempfile::TempDir,
    runtime: Runtime,
}

impl Copy {
    fn of(name: &str) -> Copy {
        let pool = golden(name);
        let folder = tempfile::tempdir().unwrap();
        for image in pool.images().read_dir().unwrap().map(|entry| entry.unwrap().path()) {
            copy_image(&image, &folder.path().join(image.file_name().unwrap()));
        }
        Copy { folder, runtime: Runtime::real(None) }
    }

    fn disk(&self, index: usize) -> (PathBuf, File) {
        let path = self.folder.path().join(format!("disk{index}.img"));
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        (path, file)
    }

    /// Flips bits in every sector of a copy on a single disk.
    fn damage(&self, dva: &Dva, psize: u64) {
        let (_, disk) = self.disk(0);
        let at = LABEL_START_BYTES + dva.offset_bytes;
        for sector in (at..at + psize).step_by(512) {
            let mut byte = [0];
            disk.read_exact_at(&mut byte, sector).unwrap();
            disk.write_all_at(&[byte[0] ^ 0x55], sector).unwrap();
        }
    }

    fn verify(&self) -> VerifyReport {
        self.runtime.block_on(async { verified(&open(&self.runtime, self.folder.path()).await).await })
    }
}

/// A file with more than `blocks` blocks: its dataset, path and object.
async fn some_file(mos: &Mos, blocks: u64) -> (Dataset, String, Object) {
    for dataset in mos.all_datasets().await.unwrap() {
        let set = dataset.objset().await.unwrap();
        let Ok(fs) = Filesystem::open(set.clone()).await else { continue };
        let mut dnodes = set.dnodes(ObjectId(0), set.last_object());
        while let Some(batch) = dnodes.next_batch().await {
            for (id, dnode) in batch.unwrap().dnodes {
                if dnode.object_type == ObjectType::PLAIN_FILE_CONTENTS && dnode.max_block_id.0 >= blocks {
                    let Ok(path) = fs.path_of(id).await else { continue };
                    let object = set.object(id).await.unwrap();
                    let bp = object.blkptr(0, BlockId(1)).await.unwrap();
                    if !bp.is_hole() && !bp.is_embedded() {
                        return (dataset, String::from_utf8(path).unwrap(), object);
                    }
                }
            }
        }
    }
    panic!("no such file");
}

#[test]
fn a_lost_block_is_named_by_file_and_range_and_nothing_else_is() {
    let copy = Copy::of("single");
    let (name, path, size, bp) = copy.runtime.block_on(async {
        let mos = open(&copy.runtime, copy.folder.path()).await;
        let (dataset, path, object) = some_file(&mos, 3).await;
        let bp: Blkptr = object.blkptr(0, BlockId(1)).await.unwrap();
        (dataset.name().to_owned(), path, object.block_bytes(), bp)
    });
    copy.damage(&bp.dvas().next().unwrap(), bp.psize().0);
    let report = copy.verify();
    assert_eq!((report.lost_blocks, report.repairable_blocks), (1, 0), "{:?}", report.findings);
    let [Finding::Block(block)] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert!(block.lost);
    let owner = &block.owner;
    let owners: Vec<&str> = owner.dataset.iter().chain(&owner.also_in).map(String::as_str).collect();
    assert!(owners.contains(&&*name), "{owners:?} {name}");
    assert_eq!(owner.path.as_deref(), Some(&*path));
    assert_eq!(owner.part, Part::Data { offset_bytes: size, len_bytes: size });
    assert_eq!(report.findings[0].severity(), Severity::Lost);
    assert!(report.findings[0].to_string().contains(&path));
}

#[test]
fn a_damaged_copy_of_metadata_is_repairable() {
    let copy = Copy::of("single");
    let (object, bp) = copy.runtime.block_on(async {
        let mos = open(&copy.runtime, copy.folder.path()).await;
        let (_, _, object) = some_file(&mos, 3).await;
        (object.id(), object.blkptr(1, BlockId(0)).await.unwrap())
    });
    let copies: Vec<Dva> = bp.dvas().collect();
    assert!(copies.len() > 1);
    copy.damage(&copies[1], bp.psize().0);
    let report = copy.verify();
    assert_eq!((report.lost_blocks, report.repairable_blocks), (0, 1), "{:?}", report.findings);
    let Finding::Block(block) = &report.findings[0] else { panic!("{:?}", report.findings) };
    assert_eq!(block.owner.object, object.0);
    assert!(matches!(block.owner.part, Part::Indirect { level: 1, offset_bytes: Some(0), .. }));
    assert_eq!(block.pieces.len(), 1);
    assert_eq!(block.pieces[0].fault, FaultKind::Lost);
    assert!(report.space.checked && report.space.leaked_bytes == 0);
}

#[test]
fn a_lost_block_of_dnodes_says_which_objects_are_gone() {
    let copy = Copy::of("single");
    let (object, bp) = copy.runtime.block_on(async {
        let mos = open(&copy.runtime, copy.folder.path()).await;
        let (dataset, _, object) = some_file(&mos, 3).await;
        let meta = dataset.objset().await.unwrap().meta().unwrap();
        (object.id(), meta.blkptr(0, BlockId(object.id().0 / 32)).await.unwrap())
    });
    for dva in bp.dvas() {
        copy.damage(&dva, bp.psize().0);
    }
    let report = copy.verify();
    assert_eq!(report.lost_blocks, 1, "{:?}", report.findings);
    let Finding::Block(block) = &report.findings[0] else { panic!("{:?}", report.findings) };
    assert_eq!(block.owner.part, Part::Dnodes { first: object.0 / 32 * 32, count: Some(32) });
    // Blocks below it were not found, so their space seems to be leaked.
    assert!(report.space.leaked_bytes > 0);
}

#[needs("raidz2")]
#[test]
fn damage_all_over_one_disk_of_a_raidz_is_found_there_and_only_there() {
    let copy = Copy::of("raidz2");
    let clean = copy.verify();
    let (path, disk) = copy.disk(2);
    let len = disk.metadata().unwrap().len();
    let noise: Vec<u8> = (0..1 << 20).map(|i: u32| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for at in (LABEL_START_BYTES..len - LABEL_START_BYTES).step_by(noise.len()) {
        disk.write_all_at(&noise[..noise.len().min((len - LABEL_START_BYTES - at) as usize)], at).unwrap();
    }
    let report = copy.verify();
    assert_eq!(report.counts, clean.counts);
    assert_eq!(report.lost_blocks, 0);
    assert!(report.repairable_blocks > 1000, "{}", report.repairable_blocks);
    let devices: Vec<&str> = report.devices.iter().map(|device| &*device.device).collect();
    assert_eq!(devices, [path.to_str().unwrap()]);
}

#[needs("raidz1")]
#[test]
fn a_stopped_verification_keeps_what_it_has() {
    let pool = golden("raidz1");
    let runtime = Runtime::real(None);
    let stop = Stop::default();
    let options = VerifyOptions { stop: stop.clone(), window_bytes: 1 << 16, ..VerifyOptions::default() };
    let report = runtime.block_on(async {
        let mos = open(&runtime, &pool.images()).await;
        verify(&mos, options, |_| stop.stop()).await.unwrap()
    });
    assert!(!report.complete && !report.space.checked);
    assert!(report.verified_blocks > 0 && report.counts.total.count > 0);
}
