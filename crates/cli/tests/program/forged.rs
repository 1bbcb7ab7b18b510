//! Pools with impossible structures under valid checksums: every command terminates and reports its findings.

use std::path::Path;

use cenote_dataset::{ImportOptions, import};
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_format::znode::Dirent;
use cenote_fs::{FileKind, Filesystem, LastLink};
use cenote_object::ZapEdit;
use cenote_pool::discover;
use cenote_runtime::Runtime;

use crate::common::disks::Disks;

/// Adds an entry to a table of a dataset, or removes one, bypassing all checks.
fn forge(disks: &Disks, dataset: &str, table: &str, name: &str, entry: Option<&str>) {
    let runtime = Runtime::real(Some(1));
    runtime.block_on(async {
        let found = discover(&runtime, &[disks.path().into()]).await.pools.remove(0);
        let found = found.open_for_writing(&runtime).await.unwrap();
        let mos = import(&runtime, &found, &ImportOptions::default()).await.unwrap();
        let engine = Engine::start(&mos).await.unwrap();
        let opened = engine.dataset(dataset).await.unwrap();
        let filesystem = Filesystem::open(opened.live().view()).await.unwrap();
        let object = async |path: &str| filesystem.resolve(path.as_bytes(), LastLink::Keep).await.unwrap();
        let table = if table == "master node" { ObjectId(1) } else { object(table).await };
        let hold = engine.hold().await.unwrap();
        let edit = opened.edit(&hold);
        match entry {
            None => ZapEdit::new(&edit, table).remove(name).await.unwrap(),
            Some(path) => {
                let word = Dirent { object: object(path).await, kind: Some(FileKind::Directory) }.to_word();
                ZapEdit::new(&edit, table).add(name, word).await.unwrap();
            }
        }
        drop(hold);
        engine.sync_all().await.unwrap();
    });
}

fn said(disks: &Disks, command: &str, more: &[&Path]) -> (Option<i32>, String, String) {
    let output = disks.run(command, more);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_folder_that_is_its_own_parent_is_listed_once() {
    let disks = Disks::new(&[256]);
    disks.cenote("zpool create tank", &[&disks.path().join("a")]);
    disks.cenote("mkdir -p tank:/top/loop/below", &[]);
    disks.cenote("mkdir tank:/top/beside", &[]);
    forge(&disks, "tank", "/top/loop", "self", Some("/top/loop"));
    forge(&disks, "tank", "/top/loop", "up", Some("/top"));

    for command in ["ls -R", "ls -lR", "ls -R --json", "find", "du"] {
        let (status, out, errors) = said(&disks, &format!("{command} tank:/top"), &[]);
        assert_eq!(status, Some(1), "{command}: {errors}");
        assert_eq!(errors.matches("more than one name").count(), 2, "{command}: {errors}");
        assert!(
            out.contains("below") && out.contains("beside") && !out.contains("self/self"),
            "{command}: {out}"
        );
    }
    let (status, _, errors) = said(&disks, "scan -r tank", &[]);
    assert!(status == Some(1) && errors.contains("more than one name"), "{errors}");
    let copy = disks.path().join("copy");
    let (status, _, errors) = said(&disks, "cp -r tank:/top", &[&copy]);
    assert_eq!((status, errors.matches("has several names").count()), (Some(1), 2), "{errors}");
    assert!(copy.join("loop/below").is_dir() && copy.join("beside").is_dir());

    // All that can be removed is removed; the folder with several names stays.
    let (status, _, errors) = said(&disks, "rm -r tank:/top/loop", &[]);
    assert!(status == Some(3) && errors.contains("several names"), "{status:?} {errors}");
    disks.cenote("rm -r tank:/top/beside", &[]);
    assert!(disks.run("verify tank", &[]).status.success());
}

#[test]
fn a_dataset_that_does_not_open_does_not_keep_the_others_from_a_scan() {
    let disks = Disks::new(&[256]);
    disks.cenote("zpool create tank", &[&disks.path().join("a")]);
    for dataset in ["one", "two", "three"] {
        disks.cenote(&format!("zfs create tank/{dataset}"), &[]);
        disks.cenote(&format!("mkdir tank/{dataset}:/in-{dataset}"), &[]);
    }
    forge(&disks, "tank/two", "master node", "ROOT", None);
    for command in ["scan -r --format tsv tank", "scan -r --format manifest tank", "scan -r tank"] {
        let (status, out, errors) = said(&disks, command, &[]);
        assert_eq!(status, Some(3), "{command}: {errors}");
        assert!(errors.contains("tank/two"), "{command}: {errors}");
        assert!(command == "scan -r tank" || (out.contains("in-one") && out.contains("in-three")), "{out}");
    }
    // Named directly, it is an error.
    assert_eq!(said(&disks, "scan tank/two", &[]).0, Some(3));
}
