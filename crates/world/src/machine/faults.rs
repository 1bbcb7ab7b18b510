//! Disks that fail, in one life of the machine and over all of them.
//!
//! Fault model of a guilty disk:
//!
//! ```text
//!   vanishes             loses its power: unflushed data are uncertain, every operation fails. Plugged in
//!                        again, it is another device with the old content
//!   reads, writes,       EIO, always or by chance; a failed flush loses unflushed data, and the next
//!   flushes fail         succeeds
//!   hangs                answers nothing for a while, then does all it was asked
//!   is slow              each operation takes some seconds
//!   loses, tears,        says that it has written, and writes nothing, only the first sectors, or to
//!   misdirects writes    another place
//!   reads wrong bytes    one bit of a read
//!   lies about flushes   says that all is durable; the next cut shows what was not
//! ```
//!
//! Idea: an honest budget. At most as many disks of a vdev are guilty as it can do without, until a scrub and
//! a rewrite of all labels have repaired them. Cache devices may always be guilty.
//!
//! The ledger remembers what each guilty disk did, so that nobody else is accused:
//!
//! | a disk that | may have |
//! |---|---|
//! | failed, vanished or hung | read and write errors |
//! | lied | checksum errors |
//! | failed before a power cut or kill | both: log blocks that it lacked were written down nowhere |
//! | was resilvered sequentially, or belongs to a dRAID with a distributed spare in use | checksum errors, if any disk of the pool lied |
//!
//! Locking: one mutex for the ledger, and one for the disks of a life, each held for one look or change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cenote_device::{Device, Fault, Faulty, Op, Rack};
use cenote_pool::{PoolConfig, VdevConfig, VdevKind};
use cenote_runtime::{Rng, Runtime};
use parking_lot::Mutex;

use super::disk::{Disk, Habits};
use super::path_of;

/// A kind of trouble with a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // as the module says
pub enum Trouble {
    Vanishes,
    ReadsFail,
    WritesFail,
    FlushesFail,
    Hangs,
    IsSlow,
    LosesWrites,
    TearsWrites,
    MisdirectsWrites,
    ReadsWrong,
    FlushesLie,
}

/// Which errors a disk may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Failed,
    Lied,
    /// It is only slow.
    None,
}

impl Trouble {
    /// All kinds.
    pub const ALL: [Trouble; 11] = {
        use Trouble::*;
        [
            Vanishes,
            ReadsFail,
            WritesFail,
            FlushesFail,
            Hangs,
            IsSlow,
            LosesWrites,
            TearsWrites,
            MisdirectsWrites,
            ReadsWrong,
            FlushesLie,
        ]
    };

    /// Whether nothing tells that it happens.
    pub fn is_lie(self) -> bool {
        self.mark() == Mark::Lied
    }

    fn mark(self) -> Mark {
        use Trouble::*;
        match self {
            Vanishes | ReadsFail | WritesFail | FlushesFail | Hangs => Mark::Failed,
            IsSlow => Mark::None,
            LosesWrites | TearsWrites | MisdirectsWrites | ReadsWrong | FlushesLie => Mark::Lied,
        }
    }
}

/// Longer than the pool waits for a device that it can do without.
const LONGEST_HANG_NS: u64 = 40_000_000_000;
/// Shorter than operations that count as slow.
const LONGEST_DELAY_NS: u64 = 4_000_000_000;
/// Most operations that one trouble strikes.
const MOST_STRIKES: u64 = 40;

/// Guilty disks, over all lives of the machine.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Disks that may be in trouble now.
    pub guilty: BTreeSet<usize>,
    /// Those ever guilty.
    pub ever: BTreeSet<usize>,
    /// Guilty disks that may have read and write errors.
    pub failed: BTreeSet<usize>,
    /// Guilty disks that may have checksum errors.
    pub lied: BTreeSet<usize>,
    /// Guilty disks that lied themselves, not for want of what was written meanwhile.
    pub liars: BTreeSet<usize>,
    /// Disks without power.
    pub away: BTreeSet<usize>,
    /// Disks that joined the pool, and may lack data until a resilver has ended.
    pub joined: BTreeSet<usize>,
    /// Disks rebuilt without checksums, from others that may have lied.
    pub rebuilt: BTreeSet<usize>,
}

impl Ledger {
    /// Whether a disk is guilty, by its path.
    pub fn is_guilty(&self, path: &str) -> bool {
        self.guilty.iter().any(|disk| is_at(*disk, path))
    }

    /// Whether a disk was rebuilt without checksums.
    pub fn is_rebuilt(&self, path: &str) -> bool {
        self.rebuilt.iter().any(|disk| is_at(*disk, path))
    }

    /// Whether a disk may lack data.
    pub fn may_lack(&self, path: &str) -> bool {
        self.is_guilty(path) || self.joined.iter().any(|disk| is_at(*disk, path))
    }

    /// The disks at a path may have such errors: reads and writes, checksums.
    pub fn may_have(&self, path: &str) -> (bool, bool) {
        let is_among = |disks: &BTreeSet<usize>| disks.iter().any(|disk| is_at(*disk, path));
        let is_misled = !self.lied.is_empty() && is_among(&self.rebuilt);
        (is_among(&self.failed), is_misled || is_among(&self.lied))
    }

    /// The machine or its daemon stops.
    pub fn cut(&mut self) {
        self.lied.extend(&self.failed);
    }

    /// All disks are well, and nothing on them is wrong.
    pub fn absolve(&mut self) {
        self.guilty.clear();
        self.failed.clear();
        self.lied.clear();
        self.liars.clear();
        self.joined.clear();
        self.rebuilt.clear();
    }

    /// Others are guilty from now on.
    pub fn accuse(&mut self, disks: BTreeSet<usize>) {
        self.ever.extend(&disks);
        self.guilty.extend(disks);
    }
}

fn is_at(disk: usize, path: &str) -> bool {
    // The old disk of a replacement has this path until it leaves.
    path_of(disk).to_str() == Some(path.strip_suffix("/old").unwrap_or(path))
}

/// The disk at a path.
pub fn disk_at(path: &str) -> Option<usize> {
    path.rsplit_once("disk").and_then(|(_, number)| number.parse().ok())
}

/// The places of a vdev, each with its disks (more than one while it is being replaced), and the number that
/// it can do without.
pub type Budget = (Vec<BTreeSet<usize>>, usize);

fn disks_of(vdev: &VdevConfig) -> BTreeSet<usize> {
    vdev.leaves().filter_map(|leaf| disk_at(leaf.path.as_deref()?)).collect()
}

fn budget(top: &VdevConfig) -> Budget {
    let most = match top.kind {
        VdevKind::Mirror => top.children.len() - 1,
        VdevKind::Raidz | VdevKind::Draid => top.parity,
        _ => 0,
    };
    // A single disk is its own place, also while another replaces it: the other will be alone there.
    let is_one = top.children.is_empty() || matches!(top.kind, VdevKind::Replacing | VdevKind::Spare);
    let places = if is_one { std::slice::from_ref(top) } else { &top.children[..] };
    (places.iter().map(disks_of).collect(), most)
}

/// The budget of each top-level vdev and cache device.
pub fn budgets(config: &PoolConfig) -> Vec<Budget> {
    let caches = config.l2cache.iter().map(|cache| (vec![disks_of(cache)], 1));
    config.vdevs.iter().map(budget).chain(caches).collect()
}

/// Disks that a pool can do without, all at once: at random, at least one of each vdev that can, none of the
/// places `but`. Disks that lack data are guilty anyway.
pub fn draw(
    config: &PoolConfig,
    but: &BTreeSet<usize>,
    lagging: &BTreeSet<usize>,
    rng: &mut Rng,
) -> BTreeSet<usize> {
    let mut drawn = BTreeSet::new();
    for (mut places, most) in budgets(config) {
        let weak = places.iter().filter(|place| !place.is_empty() && place.is_subset(lagging)).count();
        drawn.extend(places.extract_if(.., |place| place.is_subset(lagging)).flatten());
        places.retain(|place| place.is_disjoint(but));
        let most = most.saturating_sub(weak);
        let count = if most == 0 { 0 } else { 1 + rng.below(most as u64) };
        for _ in 0..count.min(places.len() as u64) {
            drawn.extend(places.swap_remove(rng.below(places.len() as u64) as usize));
        }
    }
    drawn
}

/// The disks of one life.
pub struct Bay {
    runtime: Runtime,
    disks: Vec<Arc<Disk>>,
    rack: Arc<Rack>,
    ledger: Arc<Mutex<Ledger>>,
    /// Held for verbs on devices and repairs.
    pub turn: tokio::sync::Mutex<()>,
    /// Held for a repair, which waits for the end of all scans.
    pub repair: tokio::sync::Mutex<()>,
    plugged: Mutex<BTreeMap<usize, Arc<Faulty>>>,
}

impl Bay {
    /// Puts all disks with power into a new rack of the runtime.
    pub(super) fn new(runtime: &Runtime, disks: &[Arc<Disk>], ledger: &Arc<Mutex<Ledger>>) -> Bay {
        let rack = Arc::new(Rack::default());
        runtime.equip(rack.clone());
        let (disks, ledger) = (disks.to_vec(), ledger.clone());
        let (turn, repair, plugged) = Default::default();
        let bay = Bay { runtime: runtime.clone(), disks, rack, ledger, turn, repair, plugged };
        (0..bay.disks.len()).for_each(|disk| bay.disks[disk].behave(Habits::default()));
        let away = bay.ledger.lock().away.clone();
        (0..bay.disks.len()).filter(|disk| !away.contains(disk)).for_each(|disk| bay.plug(disk));
        bay
    }

    /// The guilty disks.
    pub fn ledger(&self) -> Ledger {
        self.ledger.lock().clone()
    }

    /// Changes the ledger.
    pub fn note<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        change(&mut self.ledger.lock())
    }

    /// A disk in this life; `None` if it has no power.
    pub fn device(&self, disk: usize) -> Option<Arc<Faulty>> {
        self.plugged.lock().get(&disk).cloned()
    }

    fn plug(&self, disk: usize) {
        let device = self.disks[disk].attach(&self.runtime);
        let faulty = Arc::new(Faulty::new(device, self.runtime.random_u64()));
        self.rack.insert(&path_of(disk), faulty.clone() as Arc<dyn Device>);
        self.plugged.lock().insert(disk, faulty);
        self.ledger.lock().away.remove(&disk);
    }

    fn unplug(&self, disk: usize, rng: &mut Rng) {
        self.rack.remove(&path_of(disk));
        self.disks[disk].cut(rng);
        if let Some(device) = self.plugged.lock().remove(&disk) {
            device.unplug(true);
            device.heal();
        }
        self.ledger.lock().away.insert(disk);
    }

    /// Puts all disks with power into another machine, too.
    pub fn lend(&self, to: &Runtime) {
        let rack = Rack::default();
        self.plugged.lock().iter().for_each(|(disk, device)| rack.insert(&path_of(*disk), device.clone()));
        to.equip(Arc::new(rack));
    }

    /// Ends the troubles of a disk.
    pub fn heal(&self, disk: usize) {
        let device = self.device(disk);
        self.disks[disk].behave(Habits::default());
        match device {
            Some(device) => device.heal(),
            None => self.plug(disk),
        }
    }

    /// A disk gets into trouble. Nothing happens to an absent one.
    pub fn strike(&self, disk: usize, trouble: Trouble, rng: &mut Rng) {
        let Some(device) = self.device(disk) else { return };
        self.note(|ledger| match trouble.mark() {
            Mark::Failed => _ = ledger.failed.insert(disk),
            Mark::Lied => {
                ledger.lied.insert(disk);
                ledger.liars.insert(disk);
            }
            Mark::None => {}
        });
        let times = 1 + rng.below(MOST_STRIKES);
        // All of some time, or some of all time.
        let chance = if rng.chance(0.5) { 1.0 } else { 0.02 + 0.48 * rng.below(100) as f64 / 100.0 };
        let is_short = chance >= 1.0;
        let often = |fault: Fault| if is_short { fault.times(times) } else { fault.chance(chance) };
        let habits = Habits::default();
        use Trouble::*;
        match trouble {
            Vanishes => self.unplug(disk, rng),
            ReadsFail => _ = device.add(often(Fault::error(Op::Read))),
            WritesFail => _ = device.add(often(Fault::error(Op::Write))),
            FlushesFail => _ = device.add(often(Fault::error(Op::Flush))),
            Hangs => self.hang(&device, log_uniform(rng, LONGEST_HANG_NS)),
            IsSlow => {
                let by = log_uniform(rng, LONGEST_DELAY_NS);
                for op in [Op::Read, Op::Write, Op::Flush] {
                    device.add(Fault::delay(op, by, &self.runtime).times(times));
                }
            }
            LosesWrites => _ = device.add(often(Fault::lost_write())),
            TearsWrites => _ = device.add(often(Fault::torn_write())),
            ReadsWrong => _ = device.add(often(Fault::corruption())),
            MisdirectsWrites => self.disks[disk].behave(Habits { misdirects: chance / 4.0, ..habits }),
            FlushesLie => self.disks[disk].behave(Habits { flushes_lie: true, ..habits }),
        }
    }

    /// Nothing is answered for a time, or until the disk is well.
    fn hang(&self, device: &Arc<Faulty>, time: Duration) {
        let ops = [Op::Read, Op::Write, Op::Flush];
        let rules = ops.map(|op| device.add(Fault::hang_for_now(op, &self.runtime)));
        let (device, runtime) = (device.clone(), self.runtime.clone());
        let over = async move {
            runtime.sleep(time).await;
            rules.into_iter().for_each(|rule| _ = device.remove(rule));
        };
        self.runtime.spawn(over).detach();
    }
}

/// Short times are as likely as long ones, in powers of two.
fn log_uniform(rng: &mut Rng, most_ns: u64) -> Duration {
    Duration::from_nanos(most_ns >> rng.below(12))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(kind: VdevKind, children: Vec<VdevConfig>) -> VdevConfig {
        VdevConfig { children, ..VdevConfig::new(kind, 0, Default::default()) }
    }

    fn disk(number: usize) -> VdevConfig {
        let path = path_of(number).to_str().map(str::to_owned);
        VdevConfig { path, ..vdev(VdevKind::Disk, Vec::new()) }
    }

    #[test]
    fn a_disk_and_the_one_that_replaces_it_are_one_place() {
        let both = || vec![disk(0), disk(1)];
        let (one, other) = (BTreeSet::from([0]), BTreeSet::from([1]));
        assert_eq!(budget(&vdev(VdevKind::Mirror, both())), (vec![one, other], 1));
        let one = vec![BTreeSet::from([0, 1])];
        assert_eq!(budget(&vdev(VdevKind::Replacing, both())), (one.clone(), 0));
        let mirror = vdev(VdevKind::Mirror, vec![vdev(VdevKind::Replacing, both()), disk(2)]);
        assert_eq!(budget(&mirror), ([one, vec![BTreeSet::from([2])]].concat(), 1));
    }
}
