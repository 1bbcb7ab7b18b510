//! Commands that change files beside a mount.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::sync::Arc;

use cenote_control::files::rm::Rm;
use cenote_control::{Outcome, zfs};
use cenote_runtime::{Runtime, SimConfig};
use cenote_world::layout::new_pool;
use cenote_world::machine::daemon::Daemon;
use cenote_world::machine::kernel::{How, Kernel, Mount};
use cenote_world::machine::{Machine, POOL};

const DISK_BYTES: u64 = 64 << 20;

/// Runs `work` on a new, mounted file system.
fn on_a_mount(seed: u64, work: impl AsyncFn(&Runtime, &Daemon, &Arc<Mount>)) {
    let machine = Machine::new(DISK_BYTES, &[512]).unwrap();
    let (work, machine) = (&work, &machine);
    let life = |runtime: Runtime| async move {
        let _bay = machine.power_on(&runtime);
        let kernel = Kernel::new(&runtime, false);
        let daemon = Daemon::start(&runtime, machine, 0, kernel, &[]).await.unwrap();
        let pool = new_pool("0", false, Vec::new()).unwrap();
        assert_eq!(daemon.run(pool).await.0.unwrap().outcome, Outcome::Done);
        let create = zfs::tree::create::Create {
            name: format!("{POOL}/f"),
            volume: None,
            settings: Vec::new(),
            parents: false,
            dry_run: false,
            no_mount: false,
        };
        assert_eq!(daemon.run(create).await.0.unwrap().outcome, Outcome::Done);
        let mount = daemon.kernel.mounted_on(&format!("/{POOL}/f")).unwrap();
        work(&runtime, &daemon, &mount).await;
        drop(mount);
        machine.kill();
    };
    Runtime::simulate(SimConfig::seed(seed), life);
}

/// `cenote rm`; its messages, if it fails.
async fn rm(daemon: &Daemon, path: &str) -> Result<(), String> {
    let targets = vec![format!("{POOL}/f:{path}").parse().unwrap()];
    let (done, said) = daemon.run(Rm { targets, recursive: false }).await;
    match done {
        Ok(answered) if answered.outcome == Outcome::Done => Ok(()),
        Ok(_) => Err(said),
        Err(error) => Err(format!("{error} {said}")),
    }
}

async fn make(mount: &Arc<Mount>, path: &[&str]) {
    drop(mount.open(path, How::New).await.unwrap());
}

#[test]
fn a_file_is_removed_by_its_first_name_after_its_last() {
    on_a_mount(1, async |_, daemon, mount| {
        for dir in ["one", "two"] {
            mount.mkdir(&[dir]).await.unwrap();
        }
        make(mount, &["one", "a"]).await;
        mount.link(&["one", "a"], &["two", "b"]).await.unwrap();
        rm(daemon, "/two/b").await.unwrap();
        rm(daemon, "/one/a").await.unwrap();
        assert_eq!(mount.list(&["one"]).await.unwrap(), Vec::<String>::new());
    });
}

/// A name that exists at all times is found at all times, whichever file or folder has it.
#[test]
fn a_name_that_is_given_to_another_file_meanwhile_is_removed() {
    for seed in 0..SEEDS {
        on_a_mount(seed, async |runtime, daemon, mount| {
            make(mount, &["a"]).await;
            make(mount, &["b"]).await;
            mount.mkdir(&["c"]).await.unwrap();
            let moves = async {
                runtime.sleep(std::time::Duration::from_nanos(runtime.random_u64() % LONGEST_NS)).await;
                mount.rename(&["b"], &["a"], false).await.ok();
                mount.rename(&["c"], &["a"], true).await.ok();
            };
            let (removed, ()) = futures::future::join(rm(daemon, "/a"), moves).await;
            assert_eq!(removed, Ok(()), "seed {seed}");
        });
    }
}

const SEEDS: u64 = 60;
/// About the time that the command takes.
const LONGEST_NS: u64 = 300_000;
