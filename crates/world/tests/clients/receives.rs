//! Snapshots sent and received in the same pool.

use std::time::Duration;

use bytes::Bytes;
use cenote_runtime::{Runtime, SimConfig};
use cenote_world::look::look;
use cenote_world::machine::Machine;
use cenote_world::model::{Action, Outcome};
use cenote_world::oracle::crash::FoundContent;

use super::{DISK_BYTES, call, on_a_stage, stage, user, verb};

/// Moments at which the power fails, and the time between two.
const CUTS: u32 = 40;
const STEP: Duration = Duration::from_micros(500);

#[test]
fn a_file_system_is_received_as_it_was_sent() {
    on_a_stage(1, async |stage| {
        let dataset = verb(stage, Action::Create { name: "tank/f".into(), volume_blocks: None }).await;
        let mut user = user(stage);
        let path = || vec!["common".to_owned()];
        call(stage, &mut user, Action::Make { dataset, path: path(), link_to: None }).await;
        verb(stage, Action::Snapshot { dataset, name: "s".into() }).await;
        call(stage, &mut user, Action::Unlink { dataset, path: path(), is_dir: true }).await;
        let (name, received) = ("tank/n".to_owned(), "r".to_owned());
        let new = verb(stage, Action::Receive { dataset, snapshot: "s".into(), name, received }).await;
        let list = call(stage, &mut user, Action::List { dataset: new, path: vec![] }).await;
        assert_eq!(list, Outcome::Names(path()));
        drop(user);
        let found = look(&stage.daemon).await.unwrap();
        assert_eq!(found.datasets["tank/n"].snapshots[0].name, "r");
        stage.scene.judge(|oracle| oracle.rests(&found));
        assert_eq!(stage.scene.violation(), None);
    });
}

/// The power fails while a stream is received, or a moment before or after.
#[test]
fn an_interrupted_receive_leaves_nothing() {
    let mut interrupted = 0;
    for step in 0..CUTS {
        let machine = &Machine::new(DISK_BYTES, &[512]).unwrap();
        let life = |runtime: Runtime| async move {
            let stage = stage(&runtime, machine, true).await;
            let dataset = verb(&stage, Action::Create { name: "tank/f".into(), volume_blocks: None }).await;
            verb(&stage, Action::Snapshot { dataset, name: "s".into() }).await;
            let (name, received) = ("tank/n".to_owned(), "r".to_owned());
            let receive = Action::Receive { dataset, snapshot: "s".into(), name, received };
            runtime.timeout(STEP * step, verb(&stage, receive)).await.ok();
            machine.cut(&mut runtime.rng());
        };
        Runtime::simulate(SimConfig::seed(step.into()), life);
        let next = |runtime: Runtime| async move {
            let stage = stage(&runtime, machine, false).await;
            // It must be mounted, if it is there.
            let found = look(&stage.daemon).await.unwrap();
            machine.kill();
            found.datasets.contains_key("tank/n")
        };
        interrupted += u32::from(!Runtime::simulate(SimConfig::seed(step.into()), next).0);
    }
    assert!((1..CUTS).contains(&interrupted), "{interrupted} of {CUTS} were interrupted");
}

#[test]
fn a_volume_is_received_as_it_was_sent() {
    on_a_stage(2, async |stage| {
        let dataset = verb(stage, Action::Create { name: "tank/v".into(), volume_blocks: Some(256) }).await;
        let mut user = user(stage);
        let data = Bytes::from(vec![7; 4096]);
        let write = Action::WriteBlocks { dataset, block: 9, data: data.clone(), is_durable: false };
        assert_eq!(call(stage, &mut user, write).await, Outcome::Done);
        verb(stage, Action::Snapshot { dataset, name: "s".into() }).await;
        let (name, received) = ("tank/n".to_owned(), "r".to_owned());
        verb(stage, Action::Receive { dataset, snapshot: "s".into(), name, received }).await;
        drop(user);
        let found = look(&stage.daemon).await.unwrap();
        let FoundContent::Blocks(blocks) = &found.datasets["tank/n"].content else { panic!("a volume") };
        assert_eq!(*blocks[9], data);
        stage.scene.judge(|oracle| oracle.rests(&found));
        assert_eq!(stage.scene.violation(), None);
    });
}
