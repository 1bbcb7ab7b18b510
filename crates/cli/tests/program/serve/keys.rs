//! Keys stay loaded in the daemon until unloaded.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::serve::bench::{Bench, can_mount};

const ENCRYPTED: &str = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";

#[test]
fn keys_are_loaded_and_unloaded() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank a"));
    let made = bench.run_with(&format!("zfs create {ENCRYPTED} tank/a"), b"password\n");
    assert!(made.status.success(), "{made:?}");
    bench.done("zfs create tank/a/b");
    fs::write(bench.path("mnt/a/b/x"), "secret").unwrap();
    assert_eq!(bench.get("keystatus", "tank/a/b"), "available");

    // Loaded keys stay while in use.
    let busy = bench.fails("zfs unload-key tank/a");
    assert!(busy.contains("busy") && busy.contains(&mnt), "{busy}");
    assert!(bench.fails("zfs unload-key tank/a/b").contains("encryption root"));
    assert!(bench.fails("zfs unload-key tank").contains("not encrypted"));
    bench.done("zfs unmount tank/a");
    bench.done("zfs unload-key tank/a");
    assert!(bench.fails("zfs unload-key tank/a").contains("already unloaded"));
    assert_eq!(bench.get("keystatus", "tank/a/b"), "unavailable");
    assert!(bench.fails("zfs mount tank/a/b").contains("encryption key not loaded"));
    bench.done("zfs mount -a");
    assert_eq!(bench.done("zfs mount").lines().count(), 1);

    // Only the right key loads, from a pipe, a file or the command line.
    let wrong = bench.run_with("zfs load-key tank/a", b"wrong-password\n");
    let wrong = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.contains("Incorrect key provided for 'tank/a'"), "{wrong}");
    bench.done("zfs load-key -n --key tank/a=pass:password tank/a");
    assert_eq!(bench.get("keystatus", "tank/a"), "unavailable");
    assert!(bench.run_with("zfs load-key tank/a", b"password\n").status.success());
    assert!(bench.fails("zfs load-key --key tank/a=pass:password tank/a").contains("already loaded"));
    bench.done("zfs mount -a");
    assert_eq!(fs::read_to_string(bench.path("mnt/a/b/x")).unwrap(), "secret");
    bench.done("zfs unmount -u tank/a");
    assert_eq!(bench.get("keystatus", "tank/a"), "unavailable");
    bench.done("zfs mount -l --key tank/a=pass:password tank/a");
    bench.done("zfs mount tank/a/b");

    // A new key replaces the old one; no key outlives the pool's export.
    let changed = bench.run_with("zfs change-key tank/a", b"passwort\n");
    assert!(changed.status.success(), "{changed:?}");
    fs::write(bench.path("key"), "passwort\n").unwrap();
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    assert_eq!(bench.get("keystatus", "tank/a"), "unavailable");
    assert_eq!(bench.done("zfs mount").lines().count(), 1);
    let usage = bench.fails(&format!("zfs load-key -a -L file://{}", bench.text("key")));
    assert!(usage.contains("alternate keylocation may only be 'prompt' with -r or -a"), "{usage}");
    let all = bench.done("zfs load-key -a --key tank/a=pass:passwort");
    assert!(all.contains("1 / 1 key(s) successfully loaded"), "{all}");
    bench.done(&format!("zfs set keylocation=file://{} tank/a", bench.text("key")));
    bench.done("zpool export tank");
    bench.done("zpool import -l tank");
    assert_eq!(fs::read_to_string(bench.path("mnt/a/b/x")).unwrap(), "secret");

    // Committed data is there after a crash, even before the key is loaded again.
    let file = fs::File::create(bench.path("mnt/a/b/y")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"committed", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    bench.signal(rustix::process::Signal::KILL);
    bench.start(&[]);
    assert_eq!(bench.get("keystatus", "tank/a"), "unavailable");
    bench.done("zfs load-key -r tank/a");
    bench.done("zfs mount -a");
    assert_eq!(fs::read_to_string(bench.path("mnt/a/b/y")).unwrap(), "committed");
    bench.signal(rustix::process::Signal::TERM);
}

/// Others may choose the key's place in a pool that they can write, but not that of a new dataset.
#[test]
fn a_new_dataset_has_its_key_from_its_place_even_in_a_pool_that_others_can_write() {
    let bench = Bench::new(&["a"]);
    fs::write(bench.path("key"), "password\n").unwrap();
    bench.done("zpool create -m none tank a");
    bench.done("zpool export tank");
    fs::set_permissions(bench.path("d/a"), fs::Permissions::from_mode(0o666)).unwrap();
    bench.done("zpool import tank");
    bench.done(&format!("zfs create {ENCRYPTED} -o keylocation=file://{} tank/a", bench.text("key")));
    bench.done("zfs unload-key tank/a");
    assert!(bench.fails("zfs load-key tank/a").contains("others can write devices of the pool"));
    bench.done(&format!("zfs load-key -L file://{} tank/a", bench.text("key")));
}

#[test]
fn a_pool_that_is_encrypted_itself_is_mounted_as_it_is_made() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    let line = format!("zpool create -m {mnt} {} tank a", ENCRYPTED.replace("-o", "-O"));
    let made = bench.run_with(&line, b"password\n");
    assert!(made.status.success(), "{made:?}");
    fs::write(bench.path("mnt/x"), "x").unwrap();
    bench.done("zfs create tank/b");
    assert_eq!(bench.done("zfs mount").lines().count(), 2);
    assert_eq!(bench.get("keystatus", "tank/b"), "available");
}
