//! A file with a part of a write that nobody committed.

use bytes::Bytes;
use cenote_runtime::{Runtime, SimConfig};
use cenote_world::look::look;
use cenote_world::machine::Machine;
use cenote_world::model::Action;
use cenote_world::oracle::crash::FoundContent;

use super::{DISK_BYTES, call, stage, user, verb};

fn path(name: &str) -> Vec<String> {
    vec!["c0".into(), name.into()]
}

/// The log has a record of the first write, since the file got another name after it. Its bytes are those at
/// the commit of another file, after the second write.
#[test]
fn the_log_brings_the_latest_bytes_of_what_it_has_to_bring() {
    let machine = &Machine::new(DISK_BYTES, &[512]).unwrap();
    let life = |runtime: Runtime| async move {
        let stage = stage(&runtime, machine, true).await;
        let dataset = verb(&stage, Action::Create { name: "tank/f".into(), volume_blocks: None }).await;
        let user = &mut user(&stage);
        call(&stage, user, Action::Make { dataset, path: vec!["c0".into()], link_to: None }).await;
        for (slot, name) in ["a", "b"].into_iter().enumerate() {
            let open = Action::Open { dataset, path: path(name), slot, creates: true, excludes: false };
            call(&stage, user, open).await;
        }
        // The log begins with a txg.
        call(&stage, user, Action::Fsync { dataset, slot: 1 }).await;
        let write = |offset: u64, byte: u8| {
            let data = Bytes::from(vec![byte; 2000]);
            Action::Write { dataset, slot: 0, offset, data }
        };
        call(&stage, user, write(0, b'1')).await;
        call(&stage, user, Action::Link { dataset, from: path("a"), to: path("c") }).await;
        call(&stage, user, write(1000, b'2')).await;
        call(&stage, user, Action::Fsync { dataset, slot: 1 }).await;
        stage.scene.judge(|oracle| {
            oracle.cut();
            Ok(())
        });
        machine.cut(&mut runtime.rng());
        stage.scene.clone()
    };
    let scene = &Runtime::simulate(SimConfig::seed(1), life).0;
    let next = |runtime: Runtime| async move {
        let stage = stage(&runtime, machine, false).await;
        let found = look(&stage.daemon).await.unwrap();
        let FoundContent::Files(files) = &found.datasets["tank/f"].content else { panic!("files") };
        let bytes = files[&path("a")].bytes.clone().unwrap();
        assert_eq!(*bytes, [[b'1'; 1000], [b'2'; 1000]].concat());
        scene.judge(|oracle| oracle.reopened(&found));
        assert_eq!(scene.violation(), None);
        machine.kill();
    };
    Runtime::simulate(SimConfig::seed(2), next);
}
