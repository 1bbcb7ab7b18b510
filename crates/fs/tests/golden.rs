//! The acceptance test: every dataset, snapshot and volume of every golden pool equals the kernel's view,
//! including each file's attributes, extended attributes and content.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that can't go on must stop")]

mod common;

use cenote_fs::Volume;
use cenote_fs::manifest::hash_range;
use cenote_runtime::Runtime;
use cenote_testkit::{DatasetFacts, golden, golden_names, needs};

/// Compares every dataset of a pool that `wanted` selects.
fn check(name: &str, wanted: impl Fn(&DatasetFacts) -> bool) {
    let golden = golden(name);
    let rt = Runtime::real(None);
    let failures = rt.block_on(async {
        let mos = common::open_golden(&rt, &golden).await;
        let mut failures = Vec::new();
        let mut compared = 0;
        let told = |facts: &&DatasetFacts| facts.manifest.is_some() || facts.sha256.is_some();
        for facts in golden.facts().datasets.iter().filter(told).filter(|facts| wanted(facts)) {
            let dataset = mos.dataset(&facts.name).await.unwrap_or_else(|e| panic!("{}: {e}", facts.name));
            let result = match (&facts.manifest, &facts.sha256) {
                (Some(manifest), _) => common::compare_files(&golden, &dataset, manifest).await,
                (None, Some(sha256)) => compare_volume(&dataset, facts.size, sha256).await,
                (None, None) => continue,
            };
            compared += 1;
            if let Err(why) = result {
                failures.push(format!("{}:\n{why}", facts.name));
            }
        }
        assert!(compared > 0, "{name} has nothing to compare");
        println!("{name}: {compared} datasets compared");
        failures
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

async fn compare_volume(
    dataset: &cenote_dataset::Dataset,
    size: Option<u64>,
    sha256: &str,
) -> Result<(), String> {
    let objset = dataset.objset().await.map_err(|e| e.to_string())?;
    let volume = Volume::open(objset).await.map_err(|e| e.to_string())?;
    if Some(volume.size_bytes()) != size {
        return Err(format!("size {} where {size:?} was expected", volume.size_bytes()));
    }
    let hash = hash_range(&volume, 0..volume.size_bytes()).await;
    let hex: String = hash.sha256.iter().map(|b| format!("{b:02x}")).collect();
    if hex == sha256 && hash.unreadable.is_empty() {
        return Ok(());
    }
    Err(format!("hash {hex} (unreadable: {:?}) where {sha256} was expected", hash.unreadable))
}

macro_rules! golden_pools {
    ($($test:ident $folder:literal,)*) => {
        $(#[needs($folder)]
        #[test]
        fn $test() {
            check($folder, |_| true);
        })*

        #[test]
        fn no_golden_pool_is_left_out() {
            // The pools with logs to replay are in `replay.rs`.
            let known = [$($folder,)* "unclean-zil", "unclean-slog", "24-unclean-special"];
            for name in golden_names() {
                assert!(known.contains(&name.as_str()), "{name} is not compared");
            }
        }
    };
}

golden_pools! {
    ashifts "ashifts",
    checkpoint "checkpoint",
    damaged "damaged",
    dedup "dedup",
    draidspare "draidspare",
    duplog "duplog",
    errlog "errlog",
    expanding "expanding",
    fastdedup "fastdedup",
    freeing "freeing",
    gang "gang",
    names "names",
    removed "removed",
    removing "removing",
    spares "spares",
    checksums "checksums",
    degraded "degraded",
    encrypted "encrypted",
    legacy_fuse10 "legacy-fuse10",
    legacy_fuse23 "legacy-fuse23",
    legacy_v28 "legacy-v28",
    mirror "mirror",
    raidz1 "raidz1",
    raidz2 "raidz2",
    raidz3 "raidz3",
    single "single",
    snaps "snaps",
    special "special",
    tree "tree",
    unclean_unlinked "unclean-unlinked",
    zvols "zvols",
    of_2_4_brt "24-brt",
    of_2_4_brt_upgraded "24-brt-upgraded",
    of_2_4_dgang_raidz1 "24-dgang-raidz1",
    of_2_4_dgang_stripe "24-dgang-stripe",
    of_2_4_enc_rewrite "24-enc-rewrite",
    of_later_fdomains "24-fdomains",
    of_2_4_killed "24-killed",
    of_2_4_quotas "24-quotas",
    of_2_4_rewrite "24-rewrite",
    of_2_4_scrub "24-scrub",
    of_2_4_special "24-special",
    of_2_4_special_lower "24-special-lower",
}
