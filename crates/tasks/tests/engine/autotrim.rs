//! With `autotrim=on`, devices discard freed space and nothing else.

mod passes;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::dnode::ObjectType;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::ObjectId;
use cenote_object::NewObject;
use cenote_pool::create::NewDevice;
use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_tasks::{PoolSetting, set_pool};

use crate::common::{POOL, create_on, destroy};

const BYTES: usize = 4 << 20;

struct Lab {
    runtime: Runtime,
    disks: Vec<Arc<MemoryDevice>>,
    engine: Engine,
}

impl Lab {
    async fn new(rt: &Runtime) -> Lab {
        let disk = |name| Arc::new(MemoryDevice::new(name, 96 << 20));
        let disks: Vec<Arc<MemoryDevice>> = ["a", "b"].map(disk).into();
        let new = |disk: &Arc<MemoryDevice>| NewDevice {
            path: disk.describe().into(),
            device: disk.clone() as Arc<dyn Device>,
            is_file: false,
        };
        let engine = create_on(rt, disks.iter().map(new).collect()).await;
        rt.spawn(cenote_tasks::keep_autotrimming(engine.weak())).detach();
        Lab { runtime: rt.clone(), disks, engine }
    }

    async fn turn(&self, on: u64) {
        set_pool(&self.engine, PoolSetting::Number("autotrim".into(), on)).await.unwrap();
    }

    /// Writes a new object of noise; returns it with its blocks' offsets on the disks.
    async fn write(&self, rng: &mut Rng) -> (ObjectId, Vec<u64>) {
        let noise: Vec<u8> = (0..BYTES).map(|_| rng.below(255) as u8 + 1).collect();
        let dataset = self.engine.dataset(POOL).await.unwrap();
        let hold = self.engine.hold().await.unwrap();
        let edit = dataset.edit(&hold);
        let object =
            edit.create(&NewObject::of(ObjectType::UINT64_OTHER).block_bytes(128 << 10)).await.unwrap();
        edit.write(object, 0, Bytes::from(noise)).await.unwrap();
        drop((edit, hold));
        self.engine.sync_all().await.unwrap();
        let mos = self.engine.mos().await.unwrap();
        let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
        let held = objset.object(object).await.unwrap();
        let mut places = Vec::new();
        for block in 0..(BYTES >> 17) as u64 {
            let bp = held.blkptr(0, cenote_format::units::BlockId(block)).await.unwrap();
            places.extend(bp.dvas().map(|dva| dva.offset_bytes + VDEV_LABEL_START_SIZE));
        }
        (object, places)
    }

    async fn wait(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }

    /// How many of these places hold data, on each disk.
    async fn held(&self, places: &[u64]) -> Vec<usize> {
        let mut held = vec![0; self.disks.len()];
        for (disk, held) in self.disks.iter().zip(&mut held) {
            for at in places {
                let read = disk.read_at(*at, 4096).await.unwrap();
                *held += usize::from(read.iter().any(|byte| *byte != 0));
            }
        }
        held
    }
}

#[test]
fn what_is_freed_is_given_up_while_it_is_on() {
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let (lab, mut rng) = (Lab::new(&rt).await, Rng::new(3));
        let (stays, staying) = lab.write(&mut rng).await;
        let (goes, going) = lab.write(&mut rng).await;
        let all = vec![going.len(); 2];
        destroy(&lab.engine, goes).await;
        lab.wait(400).await;
        assert_eq!(lab.held(&going).await, all, "it is off");
        lab.turn(1).await;
        let (goes, going) = lab.write(&mut rng).await;
        destroy(&lab.engine, goes).await;
        lab.wait(6).await;
        assert_eq!(lab.held(&going).await, all, "it can still be rewound to, or its turn has not come");
        // The pool is idle meanwhile.
        lab.wait(400).await;
        assert_eq!(lab.held(&going).await, [0, 0]);
        assert_eq!(lab.held(&staying).await, all);
        let (goes, going) = lab.write(&mut rng).await;
        destroy(&lab.engine, goes).await;
        lab.turn(0).await;
        lab.wait(400).await;
        assert_eq!(lab.held(&going).await, all, "it is off again");
        lab.turn(1).await;
        lab.engine.background().settings().set("zfs_trim_extent_bytes_min", 96 << 20).unwrap();
        let (goes, going) = lab.write(&mut rng).await;
        destroy(&lab.engine, goes).await;
        lab.wait(400).await;
        assert_eq!(lab.held(&going).await, all, "no free range is so long");
        let objset = lab.engine.mos().await.unwrap().dataset(POOL).await.unwrap().objset().await.unwrap();
        assert_eq!(objset.object(stays).await.unwrap().read(0, BYTES).await.unwrap().len(), BYTES);
    });
}
