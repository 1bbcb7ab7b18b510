//! The choice of a mirror's side for a read.

use cenote_device::{Fault, Op};
use cenote_pool::{IoClass, ReadContext};
use cenote_runtime::Rng;
use std::time::Duration;

use crate::lab::{FIRST_TXG, Lab, Layout, noise, props, simulate};

fn begun(lab: &Lab) -> Vec<u64> {
    let loads = lab.pool.counters().loads();
    loads.iter().map(|(_, load)| load[IoClass::SyncRead as usize].begun).collect()
}

#[test]
fn readers_keep_away_from_the_side_that_is_slow_to_answer() {
    simulate(11, async |rt| {
        let lab = Lab::of(&rt, Layout::Mirror(2), 12).await;
        let mut written = Vec::new();
        for n in 0..200 {
            written.push(lab.write(&noise(&mut Rng::new(n), 16 << 10), &props(), FIRST_TXG).await.bp);
        }
        // One side does not answer for a while; readers sent there wait.
        let slow = lab.disks.values().next().unwrap();
        slow.faulty.add(Fault::hang(Op::Read));
        let before = begun(&lab);
        let readers: Vec<_> = written
            .iter()
            .map(|bp| {
                let (pool, bp, rt2) = (lab.pool.clone(), *bp, rt.clone());
                let delay = Duration::from_millis(rt.random_u64() % 1000);
                rt.spawn(async move {
                    rt2.sleep(delay).await;
                    pool.read(&bp, &ReadContext::default())
                        .await
                        .map(|_| ())
                        .map_err(|error| error.to_string())
                })
            })
            .collect();
        rt.sleep(Duration::from_secs(2)).await;
        let now: Vec<u64> = begun(&lab).iter().zip(before).map(|(now, before)| now - before).collect();
        assert!(now[0].min(now[1]) <= 4, "{now:?} reads of the two sides");
        assert!(now[0].max(now[1]) >= 196, "{now:?}");
        // In the end the other side serves all.
        for reader in readers {
            assert_eq!(reader.await.unwrap(), Ok(()));
        }
    });
}

#[test]
fn both_sides_of_an_idle_mirror_work() {
    simulate(12, async |rt| {
        let lab = Lab::of(&rt, Layout::Mirror(2), 12).await;
        let mut written = Vec::new();
        for n in 0..256 {
            written.push(lab.write(&noise(&mut Rng::new(n), 64 << 10), &props(), FIRST_TXG).await.bp);
        }
        let before = begun(&lab);
        // From the last to the first, so that no read is sequential.
        for bp in written.iter().rev() {
            lab.pool.read(bp, &ReadContext::default()).await.unwrap();
        }
        let now: Vec<u64> = begun(&lab).iter().zip(before).map(|(now, before)| now - before).collect();
        assert!(now.iter().all(|reads| *reads >= 32), "{now:?} reads of the two sides");
    });
}
