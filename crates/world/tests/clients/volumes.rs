//! Volumes by each protocol.

use bytes::Bytes;
use cenote_runtime::{Runtime, SimConfig};
use cenote_world::machine::Machine;
use cenote_world::machine::volume::{Connection, Protocol};
use cenote_world::model::Action;

use super::{DISK_BYTES, on_a_stage, stage, verb};

const VOLUME: &str = "tank/v";
const BLOCKS: u64 = 256;
/// The whole volume.
const BYTES: u64 = BLOCKS * 4096;

fn create() -> Action {
    Action::Create { name: VOLUME.into(), volume_blocks: Some(BLOCKS) }
}

fn pattern(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at / 512 + seed) as u8 | 1).collect()
}

/// Each write and zeroing by one protocol is seen by the others. Rounds go through the forms of commands.
#[test]
fn all_protocols_show_the_same_volume() {
    on_a_stage(1, async |stage| {
        verb(stage, create()).await;
        let mut all = Vec::new();
        for by in Protocol::ALL {
            all.push(Connection::open(&stage.daemon, by, VOLUME).await.expect("it is served"));
        }
        let mut content = vec![0; BYTES as usize];
        for round in 0..48 {
            let by = round as usize % all.len();
            let (at, len) = (round % 16 * 16384, [4096, 16384, 32768][round as usize % 3]);
            let range = at as usize..(at + len) as usize;
            let done = if round % 4 == 3 {
                content[range].fill(0);
                all[by].zero(at, len).await
            } else {
                content[range.clone()].copy_from_slice(&pattern(round, len));
                all[by].write(at, &content[range], round % 5 == 0).await
            };
            done.unwrap().unwrap();
            for connection in &mut all {
                let from = at.saturating_sub(8192);
                let read = connection.read(from, 65536).await.unwrap().unwrap();
                let from = from as usize;
                assert!(read == content[from..from + 65536], "round {round}");
            }
        }
    });
}

/// The power fails right after the answer.
#[test]
fn durable_writes_and_flushes_survive_a_power_cut() {
    for (by, seed) in Protocol::ALL.into_iter().zip(1..) {
        let machine = &Machine::new(DISK_BYTES, &[512]).unwrap();
        let life = |runtime: Runtime| async move {
            let stage = stage(&runtime, machine, true).await;
            verb(&stage, create()).await;
            let mut connection = Connection::open(&stage.daemon, by, VOLUME).await.unwrap();
            connection.write(0, &pattern(1, 8192), false).await.unwrap().unwrap();
            connection.flush().await.unwrap().unwrap();
            connection.write(65536, &pattern(2, 4096), true).await.unwrap().unwrap();
            machine.cut(&mut runtime.rng());
        };
        Runtime::simulate(SimConfig::seed(seed), life);
        let next = |runtime: Runtime| async move {
            let stage = stage(&runtime, machine, false).await;
            let mut connection = Connection::open(&stage.daemon, by, VOLUME).await.unwrap();
            let mut read = async |at: u64, len: u64| connection.read(at, len).await.unwrap().unwrap();
            assert_eq!(read(0, 8192).await, Bytes::from(pattern(1, 8192)), "{by:?}");
            assert_eq!(read(65536, 4096).await, Bytes::from(pattern(2, 4096)), "{by:?}");
            machine.kill();
        };
        Runtime::simulate(SimConfig::seed(seed), next);
    }
}

#[test]
fn a_volume_that_does_not_exist_is_refused() {
    on_a_stage(2, async |stage| {
        for by in Protocol::ALL {
            assert!(Connection::open(&stage.daemon, by, "tank/none").await.is_none());
        }
    });
}
