//! Slow disks of a RAID-Z sit out reads, by themselves or by order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote_dataset::{ImportOptions, import};
use cenote_device::{Delayed, Device, Fault, Faulty, Latency, MemoryDevice, Op};
use cenote_engine::Engine;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_pool::create::{NewDevice, NewVdev};
use cenote_pool::{CannotSitOut, LeafIoTable, VdevClass, VdevKind, discover_devices};
use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_tasks::{Symptom, VdevSetting, set_vdev, start_scrub};

use super::Machine;
use crate::common::{Load, Model, POOL, create_of, work};

const DISKS: usize = 6;
const MS: Duration = Duration::from_millis(1);
const LOAD: Load = Load { steps: 30, max_offset: 1_000_000, max_len: 100_000 };

/// A RAID-Z2 of disks that take 5 ms, with uncached data.
struct Lab {
    runtime: Runtime,
    disks: Vec<Arc<Faulty>>,
    engine: Engine,
    model: Model,
    noticed: Arc<Mutex<Vec<(Guid, Symptom)>>>,
}

impl Lab {
    async fn new(rt: &Runtime) -> Lab {
        let latency = Latency { fixed: 5 * MS, ..Latency::default() };
        let disk = |index: usize| {
            let memory = Arc::new(MemoryDevice::new(&format!("disk{index}"), 96 << 20));
            Arc::new(Faulty::new(Arc::new(Delayed::new(memory, latency, rt)), index as u64))
        };
        let disks: Vec<Arc<Faulty>> = (0..DISKS).map(disk).collect();
        let device = |disk: &Arc<Faulty>| NewDevice {
            path: disk.describe().into(),
            device: disk.clone() as Arc<dyn Device>,
            is_file: false,
        };
        let devices = disks.iter().map(device).collect();
        let raidz2 =
            NewVdev { kind: VdevKind::Raidz, parity: 2, draid: None, class: VdevClass::Normal, devices };
        create_of(rt, raidz2).await.sync_all().await.unwrap();
        // Counters come with a pool opened for good.
        let devices = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
        let found = discover_devices(devices).await.pools.remove(0).tapped(Arc::new(LeafIoTable::new(rt)));
        let mos = import(rt, &found, &ImportOptions::default()).await.unwrap();
        let engine = Engine::start(&mos).await.unwrap();
        let noticed = Arc::<Mutex<Vec<(Guid, Symptom)>>>::default();
        let machine = Machine(disks.clone(), noticed.clone());
        rt.spawn(cenote_tasks::keep_healthy(engine.weak(), machine)).detach();
        rt.spawn(cenote_tasks::keep_scanning(engine.weak(), |error| panic!("{error}"))).detach();
        let mut model = Model::new();
        work(&engine, POOL, &mut model, &mut Rng::new(7), LOAD).await;
        engine.sync_all().await.unwrap();
        engine.cache().set_budget(0);
        Lab { runtime: rt.clone(), disks, engine, model, noticed }
    }

    fn leaf(&self, index: usize) -> Guid {
        let top = self.engine.pool().tree().vdevs().top(VdevId(0)).cloned().unwrap();
        top.leaves().nth(index).unwrap().guid
    }

    fn top(&self) -> Guid {
        self.engine.pool().tree().vdevs().top(VdevId(0)).unwrap().guid
    }

    fn slow(&self, disk: usize, by: Duration) {
        self.disks[disk].add(Fault::delay(Op::Read, by, &self.runtime));
    }

    /// Reads everything; returns how long that took.
    async fn read(&self) -> Duration {
        let begun = self.runtime.now();
        let mos = self.engine.mos().await.unwrap();
        let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
        for (id, content) in &self.model {
            let read = objset.object(*id).await.unwrap().read(0, content.len()).await.unwrap();
            assert!(read[..] == content[..], "object {id} differs");
        }
        self.runtime.now() - begun
    }

    fn reads_of(&self, disk: usize) -> u64 {
        self.engine.pool().counters().leaf_io().unwrap().of(self.leaf(disk)).counters.of(Op::Read).operations
    }

    fn sits(&self, disk: usize) -> bool {
        self.engine.pool().tree().sits_out(self.leaf(disk)).unwrap()
    }
}

fn simulate<F: Future<Output = ()>>(main: impl FnOnce(Runtime) -> F) {
    Runtime::simulate(SimConfig::default(), main);
}

#[test]
fn a_slow_disk_sits_out_by_itself_and_reads_are_as_fast_as_the_others() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt).await;
        let usual = lab.read().await;
        lab.slow(3, 2000 * MS);
        let slowed = lab.read().await;
        assert!(slowed > 20 * usual, "{slowed:?} {usual:?}");
        for _ in 0..10 {
            lab.read().await;
        }
        assert!(!lab.sits(3), "autosit is off");
        set_vdev(&lab.engine, lab.top(), VdevSetting::Number("autosit".into(), 1)).await.unwrap();
        let mut rounds = 0;
        while !lab.sits(3) {
            lab.read().await;
            rounds += 1;
            assert!(rounds < 100);
        }
        assert_eq!(*lab.noticed.lock().unwrap(), [(lab.leaf(3), Symptom::Slow)]);
        let sitting = lab.read().await;
        assert!(sitting < 3 * usual, "{sitting:?} {usual:?}");
        // It gets another chance after `vdev_read_sit_out_secs`.
        lab.disks[3].heal();
        rt.sleep(Duration::from_secs(601)).await;
        assert!(!lab.sits(3));
        let before = lab.reads_of(3);
        lab.read().await;
        assert!(lab.reads_of(3) > before);
        assert_eq!(lab.noticed.lock().unwrap().len(), 1);
    });
}

#[test]
fn as_many_disks_sit_out_as_there_is_parity_and_they_help_when_others_fail() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt).await;
        let (pool, forever) = (lab.engine.pool(), rt.now() + Duration::MAX);
        for disk in [0, 1] {
            pool.tree().sit_out(lab.leaf(disk), Some(forever)).unwrap();
        }
        assert_eq!(pool.tree().sit_out(lab.leaf(2), Some(forever)), Err(CannotSitOut::TooMany));
        assert_eq!(pool.tree().sit_out(Guid(1), Some(forever)), Err(CannotSitOut::NoParity));
        let before = [lab.reads_of(0), lab.reads_of(1)];
        lab.read().await;
        assert_eq!([lab.reads_of(0), lab.reads_of(1)], before, "nothing is read from them");
        // Two others fail: those that sit out are needed.
        for disk in [4, 5] {
            lab.disks[disk].add(Fault::error(Op::Read));
        }
        lab.read().await;
        assert!(lab.reads_of(0) > before[0]);
        [4, 5].iter().for_each(|disk| lab.disks[*disk].heal());
        // A scrub reads every disk.
        let before = lab.reads_of(1);
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        rt.sleep(Duration::from_secs(60)).await;
        assert!(lab.reads_of(1) > before);
        pool.tree().sit_out(lab.leaf(0), None).unwrap();
        assert!(!lab.sits(0) && lab.sits(1));
    });
}
