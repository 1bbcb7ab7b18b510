//! Redundancy: with every survivable set of disks missing, the files of every redundant golden pool are as
//! the kernel wrote them. Each set reads one dataset in turn: small ones, since there are many sets.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use std::collections::BTreeSet;

use cenote_dataset::{ImportOptions, import};
use cenote_format::label::{VdevConfig, VdevKind};
use cenote_format::units::{Guid, Txg};
use cenote_pool::{FoundPool, discover};
use cenote_runtime::Runtime;
use cenote_testkit::{Golden, golden, needs};

/// Reads `datasets` with every survivable set of disks missing; there must be `expected` sets.
fn check(name: &str, expected: usize, datasets: &[&str]) {
    let golden = golden(name);
    let rt = Runtime::real(None);
    rt.block_on(async {
        let discovery = discover(&rt, &[golden.images()]).await;
        let found = discovery.pools.into_iter().next().unwrap();
        let losses = survivable_losses(&found);
        assert_eq!(losses.len(), expected, "{name}: sets of disks that may be missing");
        for (lost, dataset) in losses.iter().zip(datasets.iter().cycle()) {
            let mut found = found.clone();
            found.devices.retain(|guid, _| !lost.contains(guid));
            if let Err(why) = compare(&rt, &golden, &found, dataset).await {
                let paths: Vec<&str> = lost.iter().filter_map(|guid| path_of(&found, *guid)).collect();
                panic!("{dataset} without {paths:?}:\n{why}");
            }
        }
    });
}

async fn compare(rt: &Runtime, golden: &Golden, found: &FoundPool, name: &str) -> Result<(), String> {
    let facts = golden.facts().datasets.into_iter().find(|facts| facts.name == name).unwrap();
    let options = ImportOptions { keys: common::keys(golden.facts()), ..ImportOptions::default() };
    let mos = import(rt, found, &options).await.map_err(|e| e.to_string())?;
    let dataset = mos.dataset(name).await.map_err(|e| e.to_string())?;
    common::compare_files(golden, &dataset, &facts.manifest.unwrap()).await
}

fn path_of(found: &FoundPool, guid: Guid) -> Option<&str> {
    let mut leaves = found.config.vdevs.iter().flat_map(|top| top.leaves());
    leaves.find(|leaf| leaf.guid == guid)?.path.as_deref()
}

/// Every set of one or more present devices whose loss leaves all data readable.
fn survivable_losses(found: &FoundPool) -> Vec<Vec<Guid>> {
    let present: Vec<Guid> = found.devices.keys().copied().collect();
    let subset = |mask: u32| -> Vec<Guid> {
        present.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, guid)| *guid).collect()
    };
    let survives = |lost: &Vec<Guid>| found.config.vdevs.iter().all(|top| holds_all(found, lost, top));
    (1..1 << present.len()).map(subset).filter(survives).collect()
}

/// Whether a vdev still has all its data: judged independently of the pool's status. A disk with damaged
/// labels (in `degraded`) has lost more than its labels.
fn holds_all(found: &FoundPool, lost: &[Guid], vdev: &VdevConfig) -> bool {
    let children = || vdev.children.iter().map(|child| holds_all(found, lost, child));
    match vdev.kind {
        VdevKind::Disk | VdevKind::File => {
            let whole = !(vdev.offline || vdev.faulted || vdev.removed) && vdev.resilver_txg == Txg(0);
            let device =
                found.devices.get(&vdev.guid).filter(|device| !device.stale && device.good_labels == 4);
            whole && device.is_some() && !lost.contains(&vdev.guid)
        }
        VdevKind::DistributedSpare | VdevKind::Hole | VdevKind::Indirect => true,
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => children().any(|holds| holds),
        VdevKind::Raidz | VdevKind::Draid => {
            // Children of one failure domain are never in one row.
            let groups = vdev.draid.map_or(1, |draid| draid.failure_groups as usize);
            let domains = vdev.children.len() / groups;
            let lost = children().enumerate().filter(|(_, holds)| !holds).map(|(index, _)| index % domains);
            lost.collect::<BTreeSet<_>>().len() <= vdev.parity
        }
        _ => false,
    }
}

macro_rules! redundant_pools {
    ($($test:ident $folder:literal $sets:literal $datasets:expr,)*) => {
        $(#[needs($folder)]
        #[test]
        fn $test() {
            check($folder, $sets, &$datasets);
        })*
    };
}

redundant_pools! {
    raidz1 "raidz1" 3 ["graidz1/odd", "graidz1/rs512", "graidz1/rs1M"],
    raidz2 "raidz2" 21 ["graidz2/odd", "graidz2/rs512", "graidz2/rs1M"],
    raidz3 "raidz3" 63 ["graidz3/odd", "graidz3/rs512", "graidz3/rs1M"],
    mirror "mirror" 2 ["gmirror/copies2", "gmirror/rs/4K"],
    special "special" 197 ["gspecial/small16", "gspecial/plain"],
    degraded "degraded" 1 ["gdegr/r4K", "gdegr/raw"],
    legacy_fuse23 "legacy-fuse23" 3 ["glegfuse23/sha256", "glegfuse23/clone"],
    unclean_slog "unclean-slog" 3 ["guncslog/a@before", "guncslog/quiet"],
    gang "gang" 11 ["ggang/c2", "ggang/enc", "ggang/sha", "ggang/r16K"],
    draidspare "draidspare" 5 ["gdrspare/raw", "gdrspare"],
    fdomains "24-fdomains" 12 ["p24fd", "p24fd/r4k", "p24fd/lz4", "p24fd@s"],
    expanding "expanding" 4 ["gexping/raw", "gexping"],
    spares "spares" 47 ["gspares/raw", "gspares"],
}
