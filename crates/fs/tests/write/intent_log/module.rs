//! The OpenZFS module replays logs written by Cenote, with the same result as Cenote's replay.
//!
//! Runs only if `CENOTE_VM` names the program that boots the module (`proof/oracle/vm`): it takes
//! minutes.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::path::Path;
use std::process::Command;

use cenote_dataset::Value;
use cenote_engine::Engine;
use cenote_format::objset::ObjsetType;
use cenote_fs::manifest::{ManifestOptions, hash_range, manifest_text};
use cenote_fs::write::{NewFile, NewKind, XattrStore};
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter, Volume};
use cenote_pool::{VdevClass, VdevKind};
use cenote_runtime::Runtime;
use cenote_testkit::{needs, shared_path};

use super::volumes::{create_volume, work as work_on_volume};
use super::{DISK, NOW, create, empty_filesystem, reopen, work};
use crate::against_model::seed;
use crate::common::differences;
use crate::on_disk::{POOL, assert_zdb_is_content};
use crate::random::Random;
use crate::scratch::at;

const NOW_TEXT: &str = "4000000000.000000000";
/// Columns with times that a replay sets: mtime and ctime.
const TIMES: [usize; 2] = [7, 13];

const TYPE: usize = 1;
const XATTRS: usize = 11;

/// In the guest: imports, which replays mounted datasets; writes manifests; scrubs.
const GUEST: &str = r#"#!/bin/bash
. /share/guestlib.sh
zpool import -N -f "${DEVS[@]}" made || { tail -60 /proc/spl/kstat/zfs/dbgmsg; dmesg | tail -20; exit 3; }
zfs set mountpoint=legacy made
zfs list -Hp -r -t filesystem,volume -o name,type made > $O/list.tsv
collect_data made
must zpool scrub -w made
zpool status -v made
zpool status made | grep -q 'scrub repaired 0B .* with 0 errors' || exit 4
must zpool export made
"#;

/// Datasets of every kind, each with changes that only its log has.
async fn fill(engine: &Engine, seed: u64) {
    let filesystems = [("sa", XattrStore::Sa, 0), ("dir", XattrStore::Dir, 0), ("big", XattrStore::Sa, 1)];
    let volumes = [(8192, false), (64 << 10, true)];
    for (name, _, throughput) in filesystems {
        let name = format!("{POOL}/{name}");
        let settings = vec![("logbias".to_owned(), Value::Number(throughput))];
        cenote_tasks::create_filesystem(engine, &name, settings, empty_filesystem()).await.unwrap();
        begin_log(engine, &name).await;
    }
    for (block_bytes, throughput) in volumes {
        create_volume(engine, &format!("{POOL}/vol{block_bytes}"), block_bytes, throughput).await;
    }
    for (index, (name, xattr, _)) in filesystems.into_iter().enumerate() {
        let options = FsOptions { xattr, ..FsOptions::default() };
        work(engine, &format!("{POOL}/{name}"), options, seed + index as u64).await;
    }
    let mut random = Random(seed);
    for (block_bytes, _) in volumes {
        work_on_volume(engine, &format!("{POOL}/vol{block_bytes}"), &mut random).await;
    }
}

/// The first commit starts a log, with a txg that covers all other changes so far.
async fn begin_log(engine: &Engine, name: &str) {
    let dataset = engine.dataset(name).await.unwrap();
    let fs = FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap();
    let hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    let new = NewFile { kind: NewKind::Regular, mode: 0o600, umask: 0, uid: 0, gid: 0 };
    fs.create(Change { edit: &edit, now: at(3) }, fs.root(), b"first", &new).await.unwrap();
    drop(hold);
    fs.commit(None).await.unwrap();
}

/// The content of each dataset through its log: a manifest, or the hash of a volume.
async fn expected(rt: &Runtime, folder: &Path) -> Vec<(String, String)> {
    let mos = reopen(rt, folder).await;
    let mut all = Vec::new();
    for dataset in mos.all_datasets().await.unwrap() {
        let objset = dataset.objset().await.unwrap();
        let log = objset.intent_log().await;
        println!("{}: {} records", dataset.name(), log.records.len());
        let shown = if objset.phys().objset_type == ObjsetType::Zvol {
            let (volume, _) = Volume::open(objset).await.unwrap().replay(&log.records);
            let hash = hash_range(&volume, 0..volume.size_bytes()).await;
            hash.sha256.iter().map(|b| format!("{b:02x}")).collect()
        } else {
            let (fs, _) = Filesystem::open(objset).await.unwrap().replay(&log.records, NOW).await;
            manifest_text(&fs, ManifestOptions::default()).await.unwrap()
        };
        all.push((dataset.name().to_owned(), shown));
    }
    all
}

/// Rows are equal except for times that the module takes from its clock, and user attributes of links and
/// devices, which Linux does not return.
fn same_row(ours: &str, theirs: &str) -> bool {
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.split('\t').collect(), theirs.split('\t').collect());
    ours.len() == theirs.len()
        && ours.iter().zip(&theirs).enumerate().all(|(column, (a, b))| {
            let is_hidden = column == XATTRS && !["f", "d"].contains(&ours[TYPE]) && b.contains("ERR61");
            a == b || is_hidden || (TIMES.contains(&column) && *a == NOW_TEXT)
        })
}

#[needs("pools/generators")]
#[test]
fn the_module_replays_our_logs() {
    let Some(vm) = std::env::var_os("CENOTE_VM") else {
        return println!("CENOTE_VM is not set: not compared with the module");
    };
    let generators = shared_path("pools/generators");
    let rt = Runtime::real(Some(2));
    let seed = seed();
    let log = |kind, count| (VdevClass::Log, kind, 0, count);
    for layout in [&[DISK, log(VdevKind::Mirror, 2)][..], &[DISK][..]] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        rt.block_on(async {
            let engine = create(&rt, folder, layout, 512 << 20).await;
            fill(&engine, seed).await;
        });
        assert_zdb_is_content(folder);
        let expected = rt.block_on(expected(&rt, folder));

        let share = tempfile::tempdir().unwrap();
        let share = share.path();
        std::fs::copy(generators.join("guestlib.sh"), share.join("guestlib.sh")).unwrap();
        std::fs::write(share.join("run.sh"), GUEST).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-static", "-o"]).arg(share.join("gp")).arg(generators.join("gp.c"));
        assert!(gcc.status().unwrap().success());
        assert!(Command::new("chmod").arg("+x").arg(share.join("run.sh")).status().unwrap().success());
        let mut machine = Command::new(&vm);
        machine.args(["-t", "1500"]);
        let mut disks: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        disks.sort();
        disks.iter().for_each(|disk| _ = machine.arg("-d").arg(disk));
        let output = machine.arg(share.join("run.sh")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
        compare(&expected, share, &said);
        assert_zdb_is_content(folder);
    }
}

fn compare(expected: &[(String, String)], share: &Path, said: &str) {
    let shown = std::fs::read_to_string(share.join("out/man.tsv")).unwrap();
    let mut failures = Vec::new();
    for (name, ours) in expected {
        let of_name = |line: &&str| line.split('\t').next() == Some(name.as_str());
        let line = shown.lines().find(of_name).unwrap_or_else(|| panic!("{name}: {said}"));
        match line.split('\t').collect::<Vec<_>>()[..] {
            [_, "fs", file] => {
                let theirs = std::fs::read_to_string(share.join("out/m").join(file)).unwrap();
                failures
                    .extend(differences(ours, &theirs, same_row).into_iter().map(|d| format!("{name}: {d}")));
            }
            [_, "vol", _, hash] => {
                if !hash.starts_with(ours.as_str()) {
                    failures.push(format!("{name}: {hash} where {ours} was expected"));
                }
            }
            _ => failures.push(format!("{name}: {line}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
