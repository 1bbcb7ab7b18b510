//! Devices that fail, hang, disappear and return, under a watch.

mod delays;
mod sitting;
mod thorough;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote_device::{Device, Fault, Faulty, MemoryDevice, Op};
use cenote_engine::Engine;
use cenote_format::label::{
    PoolConfig, VDEV_LABEL_START_SIZE, VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE, label_offset,
};
use cenote_format::nvlist::Nvlist;
use cenote_format::units::{BlockId, Guid, Txg, VdevId};
use cenote_object::DatasetError;
use cenote_pool::create::NewDevice;
use cenote_pool::label::read_labels;
use cenote_pool::{FailMode, FoundDevice, Probe, Trouble, VdevConfig, VdevState};
use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_tasks::{
    Away, Back, Surroundings, Symptom, add_spares, bring_back, cancel_scrub, detach, pause_scrub, snapshot,
    start_error_scrub, start_scrub, take_out,
};
use futures::future::BoxFuture;

use crate::common::{Load, Model, POOL, create_on, destroy, work};

const DISK_BYTES: usize = 96 << 20;
const LOAD: Load = Load { steps: 30, max_offset: 1_000_000, max_len: 100_000 };

/// A mirror of faulty devices, and the watch's reports.
#[derive(Clone)]
struct Lab {
    runtime: Runtime,
    disks: Vec<Arc<Faulty>>,
    engine: Engine,
    noticed: Arc<Mutex<Vec<(Guid, Symptom)>>>,
}

/// The host of the disks.
struct Machine(Vec<Arc<Faulty>>, Arc<Mutex<Vec<(Guid, Symptom)>>>);

impl Surroundings for Machine {
    fn returning(&self, engine: Engine, leaves: Vec<Guid>) -> BoxFuture<'_, BTreeMap<Guid, FoundDevice>> {
        let all =
            engine.pool().tree().vdevs().top(VdevId(0)).map(|top| top.leaves().cloned().collect::<Vec<_>>());
        let index = |leaf: &Guid| all.iter().flatten().position(|one| one.guid == *leaf);
        let disk = |leaf: Guid| Some((leaf, self.0[index(&leaf)?].clone()));
        let disks: Vec<_> = leaves.into_iter().filter_map(disk).collect();
        Box::pin(async move {
            let mut found = BTreeMap::new();
            for (leaf, disk) in disks {
                // Devices are known by their labels.
                let labels = read_labels(&*disk).await;
                let is_it =
                    |config: &Nvlist| PoolConfig::decode(config).is_ok_and(|it| it.guid == Some(leaf));
                let is_known = labels.iter().any(|label| label.config.as_ref().is_some_and(is_it));
                if disk.is_there().await.unwrap() && is_known {
                    found.insert(leaf, FoundDevice::new(disk as _));
                }
            }
            found
        })
    }

    fn spare(&self, engine: Engine, spare: VdevConfig) -> BoxFuture<'_, Option<FoundDevice>> {
        let device = engine.pool().tree().found().device(spare.guid).cloned();
        Box::pin(async move { device })
    }

    fn noticed(&self, _engine: &Engine, leaf: Guid, symptom: Symptom) {
        self.1.lock().unwrap().push((leaf, symptom));
    }

    fn set_aside(&self, _engine: &Engine, _what: String) {}
}

impl Lab {
    async fn new(rt: &Runtime, disks: usize) -> Lab {
        let disk = |index| Arc::new(Faulty::new(Arc::new(MemoryDevice::new(index, DISK_BYTES)), 7));
        let disks: Vec<Arc<Faulty>> = ["a", "b", "c"].into_iter().take(disks).map(disk).collect();
        let new = |disk: &Arc<Faulty>| NewDevice {
            path: disk.describe().into(),
            device: disk.clone() as Arc<dyn Device>,
            is_file: false,
        };
        let engine = create_on(rt, disks.iter().map(new).collect()).await;
        let noticed = Arc::<Mutex<Vec<(Guid, Symptom)>>>::default();
        rt.spawn(cenote_tasks::keep_healthy(engine.weak(), Machine(disks.clone(), noticed.clone()))).detach();
        rt.spawn(cenote_tasks::keep_scanning(engine.weak(), |error| panic!("{error}"))).detach();
        Lab { runtime: rt.clone(), disks, engine, noticed }
    }

    fn leaf(&self, index: usize) -> Guid {
        let top = self.engine.pool().tree().vdevs().top(VdevId(0)).cloned().unwrap();
        top.leaves().nth(index).unwrap().guid
    }

    fn state(&self, index: usize) -> (VdevState, String) {
        let (leaf, mut state) = (self.leaf(index), None);
        self.engine.pool().status().root.walk(&mut |vdev| {
            if vdev.guid == leaf {
                let trouble = vdev.trouble.as_ref().map_or_else(String::new, ToString::to_string);
                state = Some((vdev.state, trouble));
            }
        });
        state.unwrap()
    }

    async fn wait(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }

    /// Writes and syncs, so that `disk` has everything.
    async fn work(&self, model: &mut Model, rng: &mut Rng) {
        work(&self.engine, POOL, model, rng, LOAD).await;
        self.engine.sync_all().await.unwrap();
    }

    /// The device lacks nothing: everything is readable from it alone.
    async fn has_everything(&self, disk: usize, model: &Model) {
        self.wait(30).await;
        assert!(self.engine.pool().lacking().all().is_empty(), "{:?}", self.engine.pool().lacking().all());
        self.holds_everything(disk, model).await;
    }

    /// The same, even if the others lack data.
    async fn holds_everything(&self, disk: usize, model: &Model) {
        let top = self.engine.pool().tree().vdevs().top(VdevId(0)).cloned().unwrap();
        for other in top.leaves().enumerate().filter(|(other, _)| *other != disk) {
            take_out(&self.engine, other.1.guid, Away::OfflineForNow).await.unwrap();
        }
        self.reads(model).await;
    }

    /// Everything is readable, from any disk.
    async fn reads(&self, model: &Model) {
        let mos = self.engine.mos().await.unwrap();
        let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
        for (id, content) in model {
            let read = objset.object(*id).await.unwrap().read(0, content.len()).await.unwrap();
            assert!(read[..] == content[..], "object {id} differs");
        }
    }

    /// Adds a hot spare.
    async fn add_spare(&self) {
        let device = Arc::new(MemoryDevice::new("spare", DISK_BYTES)) as Arc<dyn Device>;
        add_spares(&self.engine, vec![NewDevice { path: "spare".into(), device, is_file: false }])
            .await
            .unwrap();
    }

    /// Whether the spare is available, or in use.
    fn spare_is(&self, wanted: Option<Trouble>) -> bool {
        let spares = self.engine.pool().status().spares;
        spares.len() == 1 && spares[0].trouble == wanted && spares[0].state == VdevState::Online
    }

    fn has_noticed(&self, index: usize, symptom: Symptom) -> bool {
        self.noticed.lock().unwrap().contains(&(self.leaf(index), symptom))
    }
}

fn simulate<F: Future<Output = ()>>(main: impl FnOnce(Runtime) -> F) {
    Runtime::simulate(SimConfig::default(), main);
}

#[test]
fn a_device_that_fails_is_faulted_and_comes_back_when_it_is_cleared() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(7));
        lab.work(&mut model, &mut rng).await;
        lab.disks[1].add(Fault::error(Op::Write));
        lab.disks[1].add(Fault::error(Op::Read));
        lab.work(&mut model, &mut rng).await;
        lab.wait(3).await;
        assert_eq!(lab.state(1), (VdevState::Faulted, "too many errors".into()));
        assert!(lab.has_noticed(1, Symptom::ProbeFailed), "{:?}", lab.noticed.lock().unwrap());
        assert_eq!(lab.engine.pool().status().state(), VdevState::Degraded);
        lab.work(&mut model, &mut rng).await;

        lab.disks[1].heal();
        let device = FoundDevice::new(lab.disks[1].clone() as _);
        let devices = BTreeMap::from([(lab.leaf(1), device)]);
        bring_back(&lab.engine, Some(lab.leaf(1)), Back::Cleared, devices).await.unwrap();
        lab.has_everything(1, &model).await;
        assert_eq!(lab.state(1), (VdevState::Online, String::new()));
    });
}

#[test]
fn a_device_of_which_some_sectors_cannot_be_read_works() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let pool = lab.engine.pool();
        for _ in 0..200 {
            // Different sectors each time.
            lab.disks[1].add(Fault::error(Op::Read).sectors(0.05));
            assert_eq!(pool.devices().probe(lab.leaf(1)).await, Some(Probe::Works));
            lab.disks[1].heal();
        }
        lab.disks[1].add(Fault::error(Op::Read).sectors(1.0));
        assert_eq!(pool.devices().probe(lab.leaf(1)).await, Some(Probe::Fails));
    });
}

#[test]
fn a_device_that_is_pulled_out_is_removed_and_comes_back_by_itself() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(8));
        lab.work(&mut model, &mut rng).await;
        for _ in 0..3 {
            lab.disks[0].unplug(true);
            lab.work(&mut model, &mut rng).await;
            lab.wait(3).await;
            assert_eq!(lab.state(0).0, VdevState::Removed);
            lab.work(&mut model, &mut rng).await;
            lab.disks[0].unplug(false);
            lab.wait(30).await;
            assert_eq!(lab.state(0), (VdevState::Online, String::new()));
        }
        lab.has_everything(0, &model).await;
    });
}

#[test]
fn a_device_that_is_pulled_out_is_removed_even_if_its_errors_are_cleared_at_once() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(8));
        lab.work(&mut model, &mut rng).await;
        lab.disks[0].unplug(true);
        // All of this happens between two looks of the watch.
        lab.work(&mut model, &mut rng).await;
        assert_eq!(lab.state(0).0, VdevState::Online);
        lab.engine.pool().counters().clear(None);
        lab.wait(3).await;
        assert_eq!(lab.state(0).0, VdevState::Removed);
    });
}

#[test]
fn a_device_that_goes_away_while_it_is_resilvered_has_everything_in_the_end() {
    // Every third moment; `CENOTE_STRIDE=1`: all.
    let stride = std::env::var("CENOTE_STRIDE").ok().and_then(|stride| stride.parse().ok()).unwrap_or(3);
    let first = crate::common::seed(&Runtime::real(Some(1)), "goes away") % stride as u64;
    // Milliseconds from the resilver's start until the device goes, and from then until it returns.
    let moments = (first..30).step_by(stride);
    for (goes, returns) in moments.flat_map(|goes| [(goes, 0), (goes, 3), (goes, 20)]) {
        simulate(|rt| async move {
            let lab = Lab::new(&rt, 2).await;
            lab.engine.background().settings().set("zfs_resilver_min_time_ms", 1).unwrap();
            let (mut model, mut rng) = (Model::new(), Rng::new(12));
            take_out(&lab.engine, lab.leaf(1), Away::Offline).await.unwrap();
            lab.work(&mut model, &mut rng).await;
            let device = |lab: &Lab| {
                let device = FoundDevice::new(lab.disks[1].clone() as _);
                BTreeMap::from([(lab.leaf(1), device)])
            };
            bring_back(&lab.engine, Some(lab.leaf(1)), Back::Online, device(&lab)).await.unwrap();
            rt.sleep(Duration::from_millis(goes)).await;
            take_out(&lab.engine, lab.leaf(1), Away::Offline).await.unwrap();
            rt.sleep(Duration::from_millis(returns)).await;
            bring_back(&lab.engine, Some(lab.leaf(1)), Back::Online, device(&lab)).await.unwrap();
            lab.has_everything(1, &model).await;
        });
    }
}

#[test]
fn a_device_that_hangs_is_faulted() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(9));
        lab.work(&mut model, &mut rng).await;
        lab.disks[0].add(Fault::hang(Op::Write));
        lab.work(&mut model, &mut rng).await;
        lab.wait(600).await;
        assert_eq!(lab.state(0), (VdevState::Faulted, "too many errors".into()));
        lab.work(&mut model, &mut rng).await;
    });
}

#[test]
fn a_hung_device_that_others_make_up_for_delays_nobody_for_long() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(9));
        lab.work(&mut model, &mut rng).await;
        lab.disks[0].add(Fault::hang_for_now(Op::Write, &rt));
        // Clients wait until the device is given up.
        let began = rt.now();
        lab.work(&mut model, &mut rng).await;
        assert!(rt.now() - began < Duration::from_secs(40), "{:?}", rt.now() - began);
        lab.reads(&model).await;
        assert_eq!(lab.state(0).0, VdevState::Faulted);
        // Its late writes do no harm, and once cleared it is resilvered.
        lab.disks[0].heal();
        lab.wait(2).await;
        let devices = BTreeMap::from([(lab.leaf(0), FoundDevice::new(lab.disks[0].clone() as _))]);
        bring_back(&lab.engine, Some(lab.leaf(0)), Back::Cleared, devices).await.unwrap();
        lab.has_everything(0, &model).await;
    });
}

#[test]
fn a_hung_device_can_be_taken_offline_while_a_txg_waits_for_it() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        lab.engine.pool().suspension().set_failmode(Some(FailMode::Wait));
        let (mut model, mut rng) = (Model::new(), Rng::new(19));
        lab.work(&mut model, &mut rng).await;
        lab.disks[0].add(Fault::hang_for_now(Op::Write, &rt));
        let began = rt.now();
        let command = lab.engine.acting_for(0);
        let waiting = rt.spawn(async move { snapshot(&command, &[format!("{POOL}@now")]).await });
        rt.sleep(Duration::from_secs(2)).await;
        take_out(&lab.engine, lab.leaf(0), Away::Offline).await.unwrap();
        assert!(rt.now() - began < Duration::from_secs(8), "{:?}", rt.now() - began);
        waiting.await.unwrap().unwrap();
        lab.work(&mut model, &mut rng).await;
        lab.reads(&model).await;
    });
}

#[test]
fn a_command_says_which_device_does_not_answer() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        lab.engine.pool().suspension().set_failmode(Some(FailMode::Wait));
        lab.disks.iter().for_each(|disk| _ = disk.add(Fault::hang_for_now(Op::Flush, &rt)));
        let (command, began) = (lab.engine.acting_for(0), rt.now());
        let refused = snapshot(&command, &[format!("{POOL}@now")]).await.unwrap_err().to_string();
        assert!(rt.now() - began < Duration::from_secs(10), "{:?}", rt.now() - began);
        assert!(refused.contains("has not answered for"), "{refused}");
        // It was started, and completes when the devices answer.
        lab.disks.iter().for_each(|disk| disk.heal());
        lab.engine.sync_all().await.unwrap();
        let again = snapshot(&lab.engine, &[format!("{POOL}@now")]).await;
        assert!(matches!(again, Err(DatasetError::DatasetExists { .. })), "{again:?}");
    });
}

#[test]
fn reads_do_not_wait_for_a_hung_side_of_a_mirror() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(29));
        lab.work(&mut model, &mut rng).await;
        lab.disks[0].add(Fault::hang(Op::Read));
        let began = rt.now();
        lab.reads(&model).await;
        assert!(rt.now() - began < Duration::from_secs(10), "{:?}", rt.now() - began);
    });
}

#[test]
fn a_command_that_looks_waits_for_no_device_that_does_not_answer() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(31));
        lab.work(&mut model, &mut rng).await;
        lab.engine.cache().set_budget(0);
        lab.disks.iter().for_each(|disk| _ = disk.add(Fault::hang_for_now(Op::Read, &rt)));
        for most_s in [10, 6] {
            let began = rt.now();
            let looked = async { lab.engine.mos_to_look().await?.dataset(POOL).await?.objset().await };
            let Err(refused) = looked.await else { panic!("all disks are silent") };
            let refused = refused.to_string();
            assert!(rt.now() - began < Duration::from_secs(most_s), "{:?}", rt.now() - began);
            assert!(refused.contains("has not answered for"), "{refused}");
        }
        lab.disks.iter().for_each(|disk| disk.heal());
        rt.sleep(Duration::from_secs(1)).await;
        lab.engine.mos_to_look().await.unwrap().dataset(POOL).await.unwrap().objset().await.unwrap();
    });
}

#[test]
fn errors_that_are_rare_are_borne_and_many_are_not() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(10));
        lab.work(&mut model, &mut rng).await;
        // The labels are readable, so the device works: only its error rate counts.
        let data = 8 << 20..80 << 20;
        lab.disks[1].add(Fault::error(Op::Write).within(data.clone()).times(3));
        lab.work(&mut model, &mut rng).await;
        lab.wait(3).await;
        assert_eq!(lab.state(1), (VdevState::Online, String::new()));
        assert!(lab.noticed.lock().unwrap().iter().any(|(_, symptom)| matches!(symptom, Symptom::Io(_))));
        lab.disks[1].add(Fault::error(Op::Write).within(data).times(30));
        lab.work(&mut model, &mut rng).await;
        lab.wait(3).await;
        assert_eq!(lab.state(1), (VdevState::Faulted, "too many errors".into()));
    });
}

#[test]
fn a_device_that_lost_its_labels_goes_out_of_use_when_a_scrub_begins_and_comes_back_with_them() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(17));
        lab.work(&mut model, &mut rng).await;
        let before = lab.disks[1].read_at(0, DISK_BYTES).await.unwrap();
        lab.disks[1].write_at(0, vec![0; DISK_BYTES].into()).await.unwrap();
        assert_eq!(lab.state(1), (VdevState::Online, String::new()), "nobody has met it");
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        assert_eq!(lab.state(1), (VdevState::Unavailable, "invalid label".into()));
        assert_eq!(lab.engine.pool().status().state(), VdevState::Degraded);
        lab.work(&mut model, &mut rng).await;
        lab.wait(30).await;
        lab.reads(&model).await;
        assert_eq!(
            lab.state(1),
            (VdevState::Unavailable, "invalid label".into()),
            "until it is brought back"
        );

        lab.disks[1].write_at(0, before).await.unwrap();
        let devices = BTreeMap::from([(lab.leaf(1), FoundDevice::new(lab.disks[1].clone() as _))]);
        bring_back(&lab.engine, None, Back::Reopened, devices).await.unwrap();
        lab.has_everything(1, &model).await;
        assert_eq!(lab.state(1), (VdevState::Online, String::new()));
    });
}

#[test]
fn a_device_whose_labels_name_another_leaf_goes_out_of_use_once_errors_lead_there() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 3).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(18));
        lab.work(&mut model, &mut rng).await;
        // Another disk's labels, with garbage behind them.
        let labels = lab.disks[0].read_at(0, VDEV_LABEL_START_SIZE as usize).await.unwrap();
        lab.disks[1].write_at(0, vec![0xb5; DISK_BYTES].into()).await.unwrap();
        lab.disks[1].write_at(0, labels).await.unwrap();
        for _ in 0..10 {
            lab.reads(&model).await;
            lab.wait(2).await;
        }
        assert_eq!(lab.state(1), (VdevState::Unavailable, "corrupted data".into()));
        lab.work(&mut model, &mut rng).await;
    });
}

#[test]
fn labels_of_which_some_are_damaged_are_whole_once_a_scrub_has_begun() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 1).await;
        lab.work(&mut Model::new(), &mut Rng::new(19)).await;
        lab.disks[0].write_at(0, vec![0; 512 << 10].into()).await.unwrap();
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        assert_eq!(lab.state(0), (VdevState::Online, String::new()));
        let labels = read_labels(&*lab.disks[0]).await;
        assert!(labels.iter().all(|label| label.config.is_some()));
        // Even if all labels of an indispensable disk are damaged.
        for label in 0..4 {
            let at = label_offset(DISK_BYTES as u64, label).unwrap();
            lab.disks[0].write_at(at, vec![0; 256 << 10].into()).await.unwrap();
        }
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        let labels = read_labels(&*lab.disks[0]).await;
        assert!(labels.iter().all(|label| label.config.is_some()));
    });
}

#[test]
fn a_device_that_lost_all_configurations_but_no_uberblock_keeps_its_place() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let mut model = Model::new();
        lab.work(&mut model, &mut Rng::new(20)).await;
        for label in 0..4 {
            let at = label_offset(DISK_BYTES as u64, label).unwrap() + VDEV_PHYS_OFFSET;
            lab.disks[1].write_at(at, vec![0xb5; VDEV_PHYS_SIZE as usize].into()).await.unwrap();
        }
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        assert_eq!(lab.state(1), (VdevState::Online, String::new()));
        let labels = read_labels(&*lab.disks[1]).await;
        assert!(labels.iter().all(|label| label.config.is_some()));
        lab.holds_everything(1, &model).await;
    });
}

#[test]
fn the_last_copy_is_degraded_and_never_taken_out_of_use() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(11));
        lab.work(&mut model, &mut rng).await;
        take_out(&lab.engine, lab.leaf(1), Away::Offline).await.unwrap();
        let mos = lab.engine.mos().await.unwrap();
        let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
        lab.disks[0].add(Fault::error(Op::Read).within(4 << 20..90 << 20).times(12));
        for id in model.keys().cycle().take(1000) {
            if let Ok(object) = objset.object(*id).await {
                object.read(0, 100_000).await.ok();
            }
            if lab.disks[0].injected() >= 12 {
                break;
            }
        }
        lab.wait(3).await;
        assert_eq!(lab.state(0), (VdevState::Degraded, "too many errors".into()));
        lab.disks[0].heal();
        lab.work(&mut model, &mut rng).await;
    });
}

#[test]
fn a_spare_steps_in_for_a_device_that_fails_and_may_stay() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(12));
        lab.work(&mut model, &mut rng).await;
        lab.add_spare().await;
        lab.wait(30).await;
        assert!(lab.spare_is(None), "nothing fails yet");
        lab.disks[1].add(Fault::error(Op::Write));
        lab.disks[1].add(Fault::error(Op::Read));
        lab.work(&mut model, &mut rng).await;
        lab.wait(30).await;
        assert_eq!(lab.state(1).0, VdevState::Faulted);
        assert!(lab.spare_is(Some(Trouble::InUse)));
        assert_eq!(lab.state(2), (VdevState::Online, String::new()));
        lab.work(&mut model, &mut rng).await;
        detach(&lab.engine, lab.leaf(1)).await.unwrap();
        let pool = lab.engine.pool();
        assert!(pool.status().spares.is_empty() && pool.status().state() == VdevState::Online);
        lab.holds_everything(1, &model).await;
    });
}

#[test]
fn a_spare_goes_when_the_device_is_back() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(13));
        lab.work(&mut model, &mut rng).await;
        lab.add_spare().await;
        for _ in 0..2 {
            lab.disks[1].unplug(true);
            lab.work(&mut model, &mut rng).await;
            lab.wait(30).await;
            assert!(lab.spare_is(Some(Trouble::InUse)));
            lab.disks[1].unplug(false);
            lab.work(&mut model, &mut rng).await;
            lab.wait(60).await;
            assert!(lab.spare_is(None), "{:?}", lab.engine.pool().status());
            assert_eq!(lab.state(1), (VdevState::Online, String::new()));
        }
        lab.has_everything(1, &model).await;
    });
}

#[test]
fn a_spare_goes_when_the_device_that_failed_is_cleared_or_online() {
    for how in [Back::Cleared, Back::Online] {
        simulate(|rt| async move {
            let lab = Lab::new(&rt, 2).await;
            let (mut model, mut rng) = (Model::new(), Rng::new(21));
            lab.add_spare().await;
            match how {
                Back::Cleared => [Op::Write, Op::Read].map(|op| lab.disks[1].add(Fault::error(op))).len(),
                _ => [lab.disks[1].unplug(true)].len(),
            };
            lab.work(&mut model, &mut rng).await;
            lab.wait(30).await;
            assert!(lab.spare_is(Some(Trouble::InUse)));
            lab.disks[1].heal();
            lab.disks[1].unplug(false);
            let device = BTreeMap::from([(lab.leaf(1), FoundDevice::new(lab.disks[1].clone() as _))]);
            bring_back(&lab.engine, Some(lab.leaf(1)), how, device).await.unwrap();
            lab.work(&mut model, &mut rng).await;
            lab.wait(60).await;
            assert!(lab.spare_is(None), "{how:?}: {:?}", lab.engine.pool().status());
            lab.has_everything(1, &model).await;
        });
    }
}

#[test]
fn what_nobody_has_is_in_the_error_log_until_a_scrub_finds_it_no_more() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 1).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(15));
        lab.work(&mut model, &mut rng).await;
        let (object, _) = model.iter().find(|(_, content)| content.len() > 8192).unwrap();
        let mos = lab.engine.mos().await.unwrap();
        let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
        let held = objset.object(*object).await.unwrap();
        let bp = held.blkptr(0, BlockId(0)).await.unwrap();
        let dva = bp.dvas().next().unwrap();
        let at = dva.offset_bytes + VDEV_LABEL_START_SIZE;
        let before = lab.disks[0].read_at(at, 512).await.unwrap();
        lab.disks[0].write_at(at, vec![0xb5; 512].into()).await.unwrap();
        held.read(0, 512).await.unwrap_err();
        lab.wait(3).await;
        let logged = async || lab.engine.mos().await.unwrap().error_log().await.unwrap();
        let log = logged().await;
        assert_eq!(log.len(), 1, "{log:?}");
        assert_eq!((log[0].place.object, log[0].place.block.0, log[0].by_last_scrub), (*object, 0, false));
        assert_eq!(log[0].birth, Some(bp.logical_birth()));
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        lab.wait(60).await;
        assert_eq!(logged().await.len(), 1, "the scrub has found it, too");
        lab.disks[0].write_at(at, before).await.unwrap();
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        lab.wait(60).await;
        assert!(logged().await.is_empty());
    });
}

#[test]
fn known_errors_are_scrubbed_alone() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 1).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(16));
        lab.work(&mut model, &mut rng).await;
        let engine = &lab.engine;
        snapshot(engine, &[format!("{POOL}@s")]).await.unwrap();
        let mos = engine.mos().await.unwrap();
        let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
        let mut spoilt = Vec::new();
        for (object, content) in model.iter().filter(|(_, content)| !content.is_empty()).take(3) {
            let held = objset.object(*object).await.unwrap();
            let last = (content.len() - 1) as u64;
            let bp = held.blkptr(0, BlockId(last / held.block_bytes())).await.unwrap();
            let dva = bp.dvas().next().unwrap();
            let at = dva.offset_bytes + VDEV_LABEL_START_SIZE;
            let before = lab.disks[0].read_at(at, 512).await.unwrap();
            lab.disks[0].write_at(at, vec![0xb5; 512].into()).await.unwrap();
            held.read(last, 1).await.unwrap_err();
            spoilt.push((*object, at, before));
        }
        let logged = async || {
            let log = engine.mos().await.unwrap().error_log().await.unwrap();
            log.iter().map(|error| error.place.object).collect::<BTreeSet<_>>()
        };
        let refused = |refused: Result<bool, DatasetError>| refused.unwrap_err().to_string();
        assert!(!start_error_scrub(engine).await.unwrap(), "nothing is noted yet");
        lab.wait(3).await;
        assert_eq!(logged().await.len(), 3);
        engine.background().settings().set("zfs_scan_suspend_progress", 1).unwrap();
        assert!(start_error_scrub(engine).await.unwrap());
        assert!(refused(start_error_scrub(engine).await).contains("currently error scrubbing; use"));
        let beside = start_scrub(engine, Txg(0)).await.map(|()| true);
        assert!(refused(beside).contains("currently error scrubbing; use 'zpool scrub -s' to cancel"));
        pause_scrub(engine).await.unwrap();
        let beside = pause_scrub(engine).await.map(|()| true);
        assert!(refused(beside).contains("error scrub is paused; use 'zpool scrub -e' to resume"));
        engine.background().settings().set("zfs_scan_suspend_progress", 0).unwrap();
        engine.background().scans.order();
        lab.wait(10).await;
        let status = async || engine.mos().await.unwrap().error_scrub_status().await.unwrap();
        assert!(status().await.is_some_and(|it| it.is_paused() && (it.examined, it.to_examine) == (0, 3)));
        // One is mended, one is still lost, and one is left in the snapshot only.
        lab.disks[0].write_at(spoilt[0].1, spoilt[0].2.clone()).await.unwrap();
        destroy(&lab.engine, spoilt[2].0).await;
        assert!(start_error_scrub(engine).await.unwrap(), "it goes on");
        lab.wait(10).await;
        let done = status().await.unwrap();
        assert!(!done.is_running() && (done.examined, done.to_examine, done.errors) == (3, 0, 2), "{done:?}");
        assert_eq!(logged().await, BTreeSet::from([spoilt[1].0, spoilt[2].0]));
        // Unvisited errors stay.
        engine.background().settings().set("zfs_scan_suspend_progress", 1).unwrap();
        assert!(start_error_scrub(engine).await.unwrap());
        cancel_scrub(engine).await.unwrap();
        assert!(cancel_scrub(engine).await.is_err(), "there is none any more");
        assert_eq!(logged().await.len(), 2);
        assert!(start_error_scrub(engine).await.unwrap());
        cancel_scrub(engine).await.unwrap();
        start_scrub(engine, Txg(0)).await.unwrap();
        assert_eq!(status().await, None, "a scan makes it forgotten");
        assert!(refused(start_error_scrub(engine).await).contains("currently scrubbing; use"));
        pause_scrub(engine).await.unwrap();
        assert!(refused(start_error_scrub(engine).await).contains("use 'zpool scrub' to resume or"));
    });
}
