//! Every kind of witness keeps its promise. Without etcd installed, its test says that it is skipped.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_bucket::{Behaviour, SimStore};
use cenote_ha::{BucketWitness, FolderWitness, Tag, Witness, Written, open};
use cenote_runtime::{Runtime, SimConfig};

struct Etcd {
    server: Child,
    _folder: tempfile::TempDir,
    address: String,
}

impl Etcd {
    fn start() -> Option<Etcd> {
        let folder = tempfile::tempdir().expect("it works here");
        let port = || {
            TcpListener::bind("127.0.0.1:0")
                .expect("it works here")
                .local_addr()
                .expect("it works here")
                .port()
        };
        let (clients, peers) =
            (format!("http://127.0.0.1:{}", port()), format!("http://127.0.0.1:{}", port()));
        let server = Command::new("etcd")
            .args([
                "--data-dir",
                folder.path().to_str().expect("it works here"),
                "--listen-client-urls",
                &clients,
            ])
            .args(["--advertise-client-urls", &clients, "--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers, "--initial-cluster"])
            .arg(format!("default={peers}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match server {
            Ok(server) => {
                // A member that is down is passed over.
                let address = format!("etcd://127.0.0.1:9,{}/test", clients.trim_start_matches("http://"));
                Some(Etcd { server, _folder: folder, address })
            }
            Err(_) => None,
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.server.kill().ok();
        self.server.wait().ok();
    }
}

/// Of racing swaps of a register, one succeeds, and its content and tag are there.
async fn one_of_many_swaps_succeeds(witness: &Arc<dyn Witness>, runtime: &Runtime) {
    assert_eq!(witness.read("tank").await.expect("the witness answers"), None);
    let mut before: Option<Tag> = None;
    for round in 0..20u8 {
        let racing = (0..8u8).map(|racer| {
            let (witness, before) = (witness.clone(), before.clone());
            let bytes = vec![round, racer].into();
            runtime.spawn(async move { witness.write("tank", before.as_ref(), bytes).await })
        });
        let mut won = Vec::new();
        for (racer, done) in racing.collect::<Vec<_>>().into_iter().enumerate() {
            if let Written::Done(tag) = done.await.expect("the witness answers").expect("the witness answers")
            {
                won.push((racer as u8, tag));
            }
        }
        let [(racer, tag)] = &won[..] else { panic!("{won:?}") };
        let seen = witness.read("tank").await.expect("the witness answers").expect("the witness answers");
        assert_eq!((&seen.bytes[..], &seen.tag), (&[round, *racer][..], tag));
        before = Some(tag.clone());
    }
}

#[test]
fn registers_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::real(Some(4));
    let witness: Arc<dyn Witness> = Arc::new(FolderWitness::new(folder.path(), &runtime));
    runtime.block_on(async {
        witness.check().await.unwrap();
        one_of_many_swaps_succeeds(&witness, &runtime).await;
    });
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(runtime.block_on(witness.check()).is_err());
}

#[test]
fn registers_of_a_bucket() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let client = SimStore::default().client(Behaviour::good(), &runtime);
        let witness: Arc<dyn Witness> = Arc::new(BucketWitness::new(Arc::new(client), &runtime));
        witness.check().await.unwrap();
        one_of_many_swaps_succeeds(&witness, &runtime).await;
    });
}

#[test]
fn registers_of_etcd() {
    let Some(mut etcd) = Etcd::start() else {
        println!("skipped: etcd is not installed");
        return;
    };
    let runtime = Runtime::real(Some(2));
    runtime.block_on(async {
        let witness = open(&etcd.address, Duration::from_secs(8), &runtime).await.unwrap();
        let begun = Instant::now();
        while witness.check().await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "etcd does not come up");
            runtime.sleep(Duration::from_millis(100)).await;
        }
        one_of_many_swaps_succeeds(&witness, &runtime).await;
        etcd.server.kill().unwrap();
        etcd.server.wait().unwrap();
        let gone = witness.read("tank").await.unwrap_err().to_string();
        assert!(gone.contains("witness"), "{gone}");
    });
}

#[test]
fn an_address_is_checked() {
    let runtime = Runtime::real(Some(1));
    for bad in ["etcd://", "etcd:///x", "etcd://a b/x", "etcd://a,,b/x", "http://a", "folder", "nbd://a/b"] {
        let opened = runtime.block_on(open(bad, Duration::from_secs(1), &runtime));
        assert!(opened.is_err(), "{bad}");
    }
}
