//! `zfs diff -FH` between snapshots: equals the kernel's output line for line.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use cenote_fs::Filesystem;
use cenote_fs::diff::{DiffStyle, diff};
use cenote_fs::error::FsError;
use cenote_runtime::Runtime;

#[test]
fn snapshots_differ_as_zfs_diff_says() {
    let golden = cenote_testkit::golden("snaps");
    let rt = Runtime::real(None);
    let expected = golden.text("zfs-diff.txt");
    let mut wanted = expected.lines().peekable();
    rt.block_on(async {
        let mos = common::open_golden(&rt, &golden).await;
        let mut compared = 0;
        while let Some(command) = wanted.next() {
            let Some(names) = command.strip_prefix("# zfs diff -FH ") else { continue };
            let (from_name, to_name) = names.split_once(' ').unwrap();
            let mut theirs = Vec::new();
            while let Some(line) = wanted.next_if(|line| !line.starts_with('#')) {
                theirs.push(line.to_owned());
            }
            // A clone was promoted after the diffs were recorded and took this snapshot with it.
            let from_now = if from_name == "gsnaps/a/d@r0" { "gsnaps/promoted@r0" } else { from_name };
            let from_dataset = mos.dataset(from_now).await.unwrap();
            let from = Filesystem::open(from_dataset.objset().await.unwrap()).await.unwrap();
            let to =
                Filesystem::open(mos.dataset(to_name).await.unwrap().objset().await.unwrap()).await.unwrap();
            let mount =
                format!("/p{}", &from_name[from_name.find('/').unwrap()..from_name.find('@').unwrap()]);
            let style = DiffStyle { scripted: true, classify: true, ..DiffStyle::default() };
            let mut ours = Vec::new();
            diff(&from, from_dataset.creation_txg(), &to, |line| {
                ours.push(String::from_utf8(line.format(mount.as_bytes(), style)).unwrap());
                Ok::<(), FsError>(())
            })
            .await
            .unwrap();
            assert_eq!(ours, theirs, "{names}");
            compared += 1;
        }
        assert_eq!(compared, 5);
    });
}
