//! The witness in a real etcd; without one installed, the test says that it is skipped.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cenote_ha::{Tag, Written, open};
use cenote_runtime::Runtime;

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

#[test]
fn one_of_many_swaps_succeeds() {
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
        assert_eq!(witness.read("tank").await.unwrap(), None);
        let mut before: Option<Tag> = None;
        for round in 0..10u8 {
            let racing = (0..8u8).map(|racer| {
                let (witness, before) = (witness.clone(), before.clone());
                runtime.spawn(async move {
                    witness.write("tank", before.as_ref(), vec![round, racer].into()).await
                })
            });
            let mut won = Vec::new();
            for (racer, done) in racing.collect::<Vec<_>>().into_iter().enumerate() {
                if let Written::Done(tag) = done.await.unwrap().unwrap() {
                    won.push((racer as u8, tag));
                }
            }
            let [(racer, tag)] = &won[..] else { panic!("{won:?}") };
            let seen = witness.read("tank").await.unwrap().unwrap();
            assert_eq!((&seen.bytes[..], &seen.tag), (&[round, *racer][..], tag));
            before = Some(tag.clone());
        }
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
