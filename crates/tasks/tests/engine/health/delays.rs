//! Slow operations: counted, reported unless silenced, and judged only by limits that were set.

use std::time::Duration;

use cenote_device::{Fault, Op};
use cenote_format::units::VdevId;
use cenote_pool::VdevState;
use cenote_runtime::Rng;
use cenote_tasks::{Symptom, VdevSetting, set_vdev};

use super::{Lab, simulate};
use crate::common::Model;

impl Lab {
    fn slow_ios(&self, index: usize) -> u64 {
        let leaf = self.leaf(index);
        let all = self.engine.pool().counters().slow_ios();
        all.into_iter().find(|(guid, _)| *guid == leaf).unwrap().1
    }

    /// Number of slow operations reported since the last call, of any leaf.
    fn delays(&self) -> u64 {
        let mut noticed = self.noticed.lock().unwrap();
        let counts = noticed.drain(..).map(|(_, symptom)| match symptom {
            Symptom::Delays(count) => count,
            _ => 0,
        });
        counts.sum()
    }

    async fn set(&self, name: &str, number: u64) {
        let top = self.engine.pool().tree().vdevs().top(VdevId(0)).unwrap().guid;
        set_vdev(&self.engine, top, VdevSetting::Number(name.into(), number)).await.unwrap();
    }
}

#[test]
fn slow_operations_are_counted_always_and_reported_unless_the_vdev_says_no() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(11));
        let slow = |times| {
            let delay = Fault::delay(Op::Write, Duration::from_secs(2), &lab.runtime);
            lab.disks[1].add(delay.within(8 << 20..80 << 20).times(times));
        };
        slow(3);
        lab.work(&mut model, &mut rng).await;
        lab.wait(3).await;
        assert_eq!((lab.slow_ios(1), lab.delays()), (0, 0), "two seconds are not 30");

        let settings = lab.engine.pool();
        settings.devices().queue_settings().set("zio_slow_io_ms", 1500).unwrap();
        slow(3);
        lab.work(&mut model, &mut rng).await;
        lab.wait(3).await;
        assert_eq!((lab.slow_ios(0), lab.slow_ios(1), lab.delays()), (0, 3, 3));

        lab.set("slow_io_events", 0).await;
        slow(2);
        lab.work(&mut model, &mut rng).await;
        lab.wait(3).await;
        assert_eq!((lab.slow_ios(1), lab.delays()), (5, 0), "counted in silence");
        let mut shown = Vec::new();
        lab.engine.pool().status().root.walk(&mut |vdev| shown.push(vdev.slow_ios));
        assert_eq!(shown, [None, None, Some(0), Some(5)], "the pool, the mirror, its disks");

        lab.set("slow_io_events", 1).await;
        slow(20);
        lab.work(&mut model, &mut rng).await;
        lab.wait(3).await;
        assert!(lab.delays() > 5);
        assert_eq!(lab.state(1).0, VdevState::Online, "no limit is set");
        lab.engine.pool().counters().clear(None);
        assert_eq!(lab.slow_ios(1), 0);
        lab.set("slow_io_n", 3).await;
        lab.set("slow_io_t", 60).await;
        lab.disks[1].heal();
        slow(4);
        lab.work(&mut model, &mut rng).await;
        lab.wait(3).await;
        assert_eq!(lab.state(1).0, VdevState::Degraded);
        lab.reads(&model).await;
    });
}
