//! A queue that never runs dry, before a disk with a moving head: checks the theoretical bounds of each
//! class.
//!
//! `CENOTE_SEEDS` sets the number of seeds; a failure names its seed, and `CENOTE_SEED` repeats it.

use super::*;

/// Serves one operation at a time, in order of arrival.
struct Disk {
    runtime: Runtime,
    head: tokio::sync::Mutex<u64>,
}

const DISK_BYTES: u64 = 1 << 40;
/// Half a turn, and the longest seek.
const TURN: Duration = Duration::from_micros(4200);
const FULL_STROKE: Duration = Duration::from_micros(14_000);
const SERVICE_MAX: Duration = Duration::from_micros(4200 + 14_000);

impl Disk {
    fn new(runtime: &Runtime) -> Arc<Disk> {
        Arc::new(Disk { runtime: runtime.clone(), head: tokio::sync::Mutex::new(0) })
    }

    async fn serve(&self, offset: u64) {
        let mut head = self.head.lock().await;
        let way = offset.abs_diff(*head) as f64 / DISK_BYTES as f64;
        self.runtime.sleep(TURN + FULL_STROKE.mul_f64(way.sqrt())).await;
        *head = offset;
    }
}

pub(super) fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    match number("CENOTE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("CENOTE_SEEDS").unwrap_or(20)).collect(),
    }
}

/// Operates until the end; returns the time of each operation.
async fn client(
    (queue, disk): (Arc<Queue>, Arc<Disk>),
    class: IoClass,
    mut rng: Rng,
    end: Instant,
) -> Vec<Duration> {
    let mut took = Vec::new();
    while disk.runtime.now() < end {
        let (from, offset) = (disk.runtime.now(), rng.below(DISK_BYTES));
        let permit = enter(&queue, class, offset).await;
        disk.serve(offset).await;
        drop(permit);
        took.push(disk.runtime.now().since(from));
    }
    took
}

/// Returns each class's times, sorted.
async fn run(runtime: &Runtime, seed: u64, clients: &[(IoClass, u64)], last: Duration) -> Vec<Vec<Duration>> {
    let (queue, disk) = (queue(runtime), Disk::new(runtime));
    let end = runtime.now() + last;
    let mut tasks = Vec::new();
    for (line, &(class, count)) in clients.iter().enumerate() {
        for n in 0..count {
            let rng = Rng::new(seed << 16 | (line as u64) << 8 | n);
            tasks.push((line, runtime.spawn(client((queue.clone(), disk.clone()), class, rng, end))));
        }
    }
    let mut took = vec![Vec::new(); clients.len()];
    for (line, task) in tasks {
        took[line].extend(task.await.unwrap_or_else(|error| panic!("seed {seed}: {error}")));
    }
    took.iter_mut().for_each(|times| times.sort());
    took
}

/// All classes have more work than the disk can do. Each has its minimum under way (background work: a few
/// operations after each of the users'), so a round serves at least one of each.
#[test]
fn a_mix_of_classes_never_starves_one() {
    const CLIENTS: u64 = 12;
    for seed in seeds() {
        let runtime = Runtime::simulated(SimConfig::seed(seed));
        runtime.block_on(async {
            let clients = IoClass::ALL.map(|class| (class, CLIENTS));
            let took = run(&runtime, seed, &clients, Duration::from_secs(60)).await;
            let settings = QueueSettings::default();
            // Operations on the disk at once: users at their maximum, background work at its minimum.
            let most = |class: &IoClass| match class.is_background() {
                true => settings.min_active(*class),
                false => settings.max_active_of(*class),
            };
            let round = SERVICE_MAX * IoClass::ALL.iter().map(most).sum::<u32>();
            for ((class, _), took) in clients.iter().zip(&took) {
                let longest = took.last().copied().unwrap_or(Duration::MAX);
                // Those before it, one a round; two rounds until background work gets its turn.
                let bound = round * (CLIENTS as u32 + 2);
                assert!(longest <= bound, "CENOTE_SEED={seed}: {class:?} took {longest:?} of {bound:?}");
                let part = took.len() as f64 / CLIENTS as f64;
                assert!(part >= 2.0, "CENOTE_SEED={seed}: {class:?} was served {} times", took.len());
            }
        });
    }
}

/// Readers wait only for the operations on the disk when they come: the permitted async writes, a few scrub
/// reads, and each other.
#[test]
fn users_read_within_their_bound_under_a_full_txg_and_a_scrub() {
    const READERS: u64 = 4;
    for seed in seeds() {
        let runtime = Runtime::simulated(SimConfig::seed(seed));
        runtime.block_on(async {
            let clients = [(IoClass::SyncRead, READERS), (IoClass::AsyncWrite, 200), (IoClass::Scrub, 50)];
            let took = run(&runtime, seed, &clients, Duration::from_secs(60)).await;
            let settings = QueueSettings::default();
            let before =
                settings.async_writes_max() + settings.min_active(IoClass::Scrub) + READERS as u32 - 1;
            let bound = SERVICE_MAX * (before + 1);
            let reads = &took[0];
            let p99 = reads[reads.len() * 99 / 100];
            assert!(p99 <= bound, "CENOTE_SEED={seed}: p99 {p99:?} of {bound:?}, {} reads", reads.len());
            // The test is meaningful only if the writes and the scrub progress meanwhile.
            assert!(took[1].len() > reads.len(), "CENOTE_SEED={seed}: {} writes", took[1].len());
            assert!(took[2].len() > 20, "CENOTE_SEED={seed}: {} scrub reads", took[2].len());
        });
    }
}
