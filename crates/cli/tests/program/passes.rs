//! `zpool initialize`, `zpool trim`: passes over free space.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common::disks::{Disks, noise};

const PATTERN: u64 = 0xdead_beef_dead_beee;

fn fill(disks: &Disks, seed: u64, len: usize) {
    fs::write(disks.path().join("content"), noise(seed, len)).unwrap();
    disks.cenote(&format!("cp content tank:/{seed}"), &[]);
    fs::remove_file(disks.path().join("content")).unwrap();
}

/// Bytes that a disk occupies on the host.
fn taken(disks: &Disks, name: &str) -> u64 {
    fs::metadata(disks.path().join(name)).unwrap().blocks() * 512
}

/// Bytes of a disk that hold the pattern.
fn initialized(disks: &Disks, name: &str) -> u64 {
    let image = fs::read(disks.path().join(name)).unwrap();
    let sectors = image.chunks_exact(512);
    let is_pattern = |sector: &&[u8]| sector.chunks_exact(8).all(|word| word == PATTERN.to_ne_bytes());
    sectors.filter(is_pattern).count() as u64 * 512
}

#[test]
fn free_space_is_initialized_and_given_up_and_nothing_else_is() {
    for layout in ["a", "mirror a b", "raidz a b c", "draid1:1d:3c a b c"] {
        let disks = Disks::new(&[128; 3]);
        disks.cenote(&format!("zpool create tank {layout}"), &[]);
        fill(&disks, 1, 5_000_000);
        fill(&disks, 2, 20_000_000);
        disks.cenote("rm tank:/2", &[]);
        disks.cenote("zpool initialize tank a", &[]);
        assert!(initialized(&disks, "a") > 72 << 20, "{layout}: {}", initialized(&disks, "a"));
        let status = disks.cenote("zpool status -i tank", &[]);
        assert!(status.contains("(100% initialized, completed at"), "{layout}: {status}");
        disks.zdb_is_content();
        disks.cenote("zpool initialize -u tank a", &[]);
        assert!(!disks.cenote("zpool status -i tank", &[]).contains("100%"));

        let before = taken(&disks, "a");
        disks.cenote("zpool trim tank", &[]);
        let after = taken(&disks, "a");
        assert!(after < before / 2, "{layout}: {before} -> {after}");
        let status = disks.cenote("zpool status -t tank", &[]);
        assert!(status.contains("(100% trimmed, completed at"), "{layout}: {status}");
        disks.zdb_is_content();
        fill(&disks, 3, 20_000_000);
        disks.cenote("verify tank", &[]);
        for (seed, len) in [(1, 5_000_000), (3, 20_000_000)] {
            assert!(disks.run(&format!("cat tank:/{seed}"), &[]).stdout == noise(seed, len), "{layout}");
        }
        disks.zdb_is_content();
    }
}

#[test]
fn free_space_is_filled_with_zeros_on_request() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    fill(&disks, 1, 5_000_000);
    disks.cenote("zpool initialize tank", &[]);
    assert!(initialized(&disks, "a") > 72 << 20);
    disks.fails("zpool initialize -z -c tank", "--cancel");
    disks.cenote("zpool initialize -z tank", &[]);
    assert!(initialized(&disks, "a") < 2 << 20, "{}", initialized(&disks, "a"));
    assert!(disks.cenote("zpool status -i tank", &[]).contains("(100% initialized, completed at"));
    assert!(disks.run("cat tank:/1", &[]).stdout == noise(1, 5_000_000));
    disks.zdb_is_content();
}

#[test]
fn what_can_not_be_is_refused() {
    let disks = Disks::new(&[128; 3]);
    disks.cenote("zpool create tank draid1:1d:3c a b c", &[]);
    disks.cenote("zpool offline tank a", &[]);
    disks.fails("zpool trim tank a", "cannot trim 'a': it is not in use");
    // The others are trimmed.
    disks.fails("zpool trim tank", "a': it is not in use");
    let status = disks.cenote("zpool status -t tank", &[]);
    assert_eq!(status.matches("(100% trimmed, completed at").count(), 2, "{status}");
    disks.cenote("zpool online tank a", &[]);
    disks.fails("zpool initialize -c tank a", "cannot initialize 'a': there is no active initialization");
    disks.fails("zpool trim -s tank a", "cannot trim 'a': there is no active trim");
    disks.fails("zpool trim tank nosuch", "cannot trim 'nosuch': no such device in pool");
}
