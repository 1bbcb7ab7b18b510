//! The pool's disks, one of which leaves and comes back every second: it is taken out of use, or just fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cenote_device::{Device, Fault, Faulty, Op};
use cenote_format::units::Guid;
use cenote_pool::discover_devices;
use cenote_runtime::Runtime;
use cenote_tasks::{Away, Back, bring_back, take_out};

use super::Stage;
use crate::pools::Disks;

#[derive(Clone)]
pub struct Devices {
    faulty: Vec<Arc<Faulty>>,
    victim: usize,
}

impl Devices {
    pub fn new(rt: &Runtime, disks: &Disks, victim: usize) -> Devices {
        let faulty = |device| Arc::new(Faulty::new(device, rt.random_u64()));
        Devices { faulty: disks.devices().into_iter().map(faulty).collect(), victim }
    }

    pub fn all(&self) -> Vec<Arc<dyn Device>> {
        self.faulty.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect()
    }

    /// Takes the disk out and back until the run is over; then it is back.
    pub async fn come_and_go(self, stage: Arc<Stage>) {
        let mut rng = stage.rt.rng();
        let (engine, disk) = (&stage.engine, &self.faulty[self.victim]);
        let guid = self.guid(&stage.rt).await;
        while !stage.is_over() {
            stage.rt.sleep(Duration::from_secs(1)).await;
            let how = rng.below(3);
            if how != 0 {
                // Refused, for example, while the vdev lacks data and must not lose more.
                let away = if rng.below(2) == 0 { Away::Offline } else { Away::Faulted };
                drop(stage.ask(&mut rng, "to take a device out", take_out(engine, guid, away)).await);
            }
            if how != 1 {
                for op in [Op::Read, Op::Write, Op::Flush] {
                    disk.add(Fault::error(op));
                }
            }
            stage.rt.sleep(Duration::from_micros(rng.below(700_000))).await;
            disk.heal();
            for back in [Back::Online, Back::Cleared] {
                let is_gone = engine.pool().tree().device(guid).is_none();
                let mut devices = BTreeMap::new();
                if is_gone {
                    let found = discover_devices(self.all()).await.pools.remove(0);
                    let mut opened = found.open_for_writing(&stage.rt).await.unwrap().devices;
                    devices.extend(opened.remove(&guid).map(|device| (guid, device)));
                }
                bring_back(engine, Some(guid), back, devices).await.unwrap();
            }
        }
    }

    /// The leaf that leaves.
    async fn guid(&self, rt: &Runtime) -> Guid {
        let found = discover_devices(self.all()).await.pools.remove(0);
        let devices = found.open_for_writing(rt).await.unwrap().devices;
        let path = self.faulty[self.victim].describe().to_owned();
        devices.into_iter().find(|(_, device)| device.path == path).unwrap().0
    }
}
