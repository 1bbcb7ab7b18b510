//! `zfs receive -c`: lost blocks come back from streams.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output};

use crate::common::disks::{Disks, noise};
use cenote_testkit::places_of;

const FILE_BYTES: usize = 3_000_000;

fn receive(disks: &Disks, words: &str, stream: &[u8]) -> Output {
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(stream).unwrap();
    std::io::Seek::rewind(&mut input).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
    program.current_dir(disks.path()).arg("--disks").arg(disks.path()).args(["zfs", "receive", "-c"]);
    program.args(words.split(' ')).stdin(input).output().unwrap()
}

#[track_caller]
fn is_refused(disks: &Disks, words: &str, stream: &[u8], why: &str) {
    let output = receive(disks, words, stream);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(why), "{words}: {said}");
}

/// Damages the only copy of the block with these bytes.
fn lose(disks: &Disks, bytes: &[u8]) {
    let path = disks.path().join("a");
    let image = std::fs::read(&path).unwrap();
    let places = places_of(bytes, &image);
    assert_eq!(places.len(), 1);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; bytes.len()], places[0] as u64).unwrap();
}

#[test]
fn lost_blocks_come_back_from_a_stream_of_their_snapshot() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    disks.cenote("zfs create -o compression=off tank/fs", &[]);
    let content = noise(1, FILE_BYTES);
    let local = disks.path().join("file");
    std::fs::write(&local, &content).unwrap();
    disks.cenote(&format!("cp {} tank/fs:/", local.display()), &[]);
    std::fs::remove_file(local).unwrap();
    disks.cenote("zfs snapshot tank/fs@1", &[]);
    let stream = disks.run("zfs send tank/fs@1", &[]).stdout;
    disks.cenote("zfs snapshot tank/fs@2", &[]);

    for place in [200_000, 1_500_000, 1_700_000] {
        lose(&disks, &content[place..place + 64]);
    }
    assert!(!disks.run("cat tank/fs:/file", &[]).status.success());
    let images = disks.images();
    is_refused(&disks, "tank/fs@3", &stream, "corrective recv must specify an existing snapshot to heal");
    let another = "local snapshot doesn't match the snapshot in the provided stream";
    is_refused(&disks, "tank/fs@2", &stream, another);
    let flag = "corrective recv can not be used when combined with this flag";
    is_refused(&disks, "-F tank/fs@1", &stream, flag);
    assert!(disks.images() == images);

    let mended = receive(&disks, "tank/fs@1", &stream);
    assert!(mended.status.success(), "{}", String::from_utf8_lossy(&mended.stderr));
    assert!(disks.run("cat tank/fs:/file", &[]).stdout == content);
    disks.zdb_is_content();
}
