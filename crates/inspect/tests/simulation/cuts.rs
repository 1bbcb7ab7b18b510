//! Power cuts at any moment of a run of random operations.
//!
//! ```text
//!   record   a pool, random operations           -> journal, history, acknowledgements
//!   cut      at many moments of the journal      -> disks
//!   open     the pool for writing, replay its logs: it must equal the history as of the txg found and the
//!            commits since, no older than what was acknowledged; intact, nothing leaked
//!   again    for some: cut the power during replay or while the pool is taken, which must give the same
//!            result; or continue the work and cut the power then
//! ```
//!
//! `CENOTE_KEEP=DIR` keeps some of the pools that cuts left, as disk images; `proof/cuts` gives them to the
//! OpenZFS module.

#![allow(clippy::print_stderr, reason = "tests say what they skip")]

use std::path::Path;

use cenote_engine::Engine;
use cenote_pool::VdevClass::{Log, Normal, Special};
use cenote_pool::VdevKind::{Disk, Mirror, Raidz};
use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_testkit::image::{Image, save};

use crate::check::ask_zdb;
use crate::journal::{DiskShape, Journal, Moment};
use crate::model::World;
use crate::pools::{Disks, Layout, Vdev, create};
use crate::power_cut::Cutter;
use crate::run::{Expected, Recovered, Run, recover, recover_damaged};
use crate::work::Worker;

/// Cuts of each layout, 500 in total; `CENOTE_CUTS` sets another number, rounded up to whole runs. The full
/// number of `proof/simulations`, after changes of the engine, is 1120: 10,000 in total.
const CUTS: usize = 56;
const CUTS_PER_RUN: usize = 56;
/// Operations of a run, and after a cut.
const STEPS: usize = 160;
const STEPS_AFTER: usize = 24;
/// After one in this many cuts the work continues, and the power is cut again.
const GO_ON: usize = 8;
/// One in this many recoveries is interrupted.
const CUT_RECOVERY: usize = 4;
/// One in this many cuts is checked by `zdb`, which takes a second.
const ASK_ZDB: u64 = 400;
/// How many cuts of a run that left logs to replay are kept.
const KEEP: usize = 2;

pub fn simulate<F: Future>(seed: u64, main: impl FnOnce(Runtime) -> F) -> F::Output {
    Runtime::simulate(SimConfig::seed(seed), main).0
}

/// A new pool, and work on it.
fn record(seed: u64, layout: &Layout) -> Run {
    simulate(seed, |rt| async move {
        let disks = Disks::new(&rt, layout.shape(), layout.blank());
        let engine = create(&rt, layout, &disks.devices()).await;
        disks.take_journal();
        let world = Worker::new_world(&engine).await;
        work(&rt, engine, &disks, world, STEPS).await
    })
}

async fn work(rt: &Runtime, engine: Engine, disks: &Disks, world: World, steps: usize) -> Run {
    let before = disks.images();
    let mut worker = Worker::begin(rt, engine, disks, world).await;
    worker.run(steps).await;
    worker.into_run(before)
}

/// The result of a cut.
struct Survived {
    expected: Expected,
    /// The disks before recovery, and the writes of recovery.
    before: Vec<Image>,
    recovery: Journal,
    has_replayed: bool,
    /// The continued work.
    run: Option<Run>,
}

/// Opens the pool that a cut left, and continues the work for `steps` operations.
fn after_cut(
    seed: u64,
    shape: DiskShape,
    before: Vec<Image>,
    run: &Run,
    moment: Moment,
    steps: usize,
) -> Result<Survived, String> {
    simulate(seed, |rt| async move {
        let disks = Disks::new(&rt, shape, before.clone());
        let pool = recover(&rt, disks.devices()).await?;
        let expected = run.expect(&pool, moment).await?;
        let (recovery, has_replayed) = (disks.take_journal(), !pool.replayed.is_empty());
        let run = match steps > 0 && expected.unsure.is_empty() {
            true => Some(work(&rt, pool.engine, &disks, expected.world.clone(), steps).await),
            false => None,
        };
        Ok(Survived { expected, before, recovery, has_replayed, run })
    })
}

/// Moments of a journal, ascending: half anywhere, half close to the end of a flush, where a txg becomes the
/// pool's state.
pub fn moments(journal: &Journal, count: usize, rng: &mut Rng) -> Vec<Moment> {
    let mut moments: Vec<Moment> = (0..count)
        .map(|index| match journal.flushes.len() {
            flushes if index % 2 == 0 && flushes > 0 => {
                let flush = journal.flushes[rng.below(flushes as u64) as usize];
                (flush.done + rng.below(8) as usize).saturating_sub(4)
            }
            _ => rng.below(journal.now as u64 + 1) as usize,
        })
        .collect();
    moments.sort_unstable();
    moments
}

/// A cut, and the run that it interrupted.
pub struct Cut<'a> {
    pub rt: &'a Runtime,
    pub layout: &'a Layout,
    pub images: Vec<Image>,
    pub run: &'a Run,
    pub at: Moment,
}

/// The pool after a cut, and its expected content.
pub struct Opened<'a> {
    pub rt: &'a Runtime,
    pub layout: &'a Layout,
    pub disks: Disks,
    pub pool: Recovered,
    pub expected: Expected,
}

impl<'a> Cut<'a> {
    /// Opens the pool; it is intact and has all data that must survive.
    pub async fn open(self) -> Result<Opened<'a>, String> {
        self.open_but(&[]).await
    }

    /// The same without some disks.
    pub async fn open_but(self, gone: &[usize]) -> Result<Opened<'a>, String> {
        let disks = self.disks();
        let pool = recover(self.rt, disks.devices_but(gone)).await?;
        self.opened(disks, pool).await
    }

    /// The same for a pool with rubbish on one disk.
    pub async fn open_damaged(self) -> Result<Opened<'a>, String> {
        let disks = self.disks();
        let pool = recover_damaged(self.rt, disks.devices()).await?;
        self.opened(disks, pool).await
    }

    pub fn disks(&self) -> Disks {
        Disks::new(self.rt, self.layout.shape(), self.images.clone())
    }

    async fn opened(self, disks: Disks, pool: Recovered) -> Result<Opened<'a>, String> {
        let expected = self.run.expect(&pool, self.at).await?;
        Ok(Opened { rt: self.rt, layout: self.layout, disks, pool, expected })
    }
}

impl Opened<'_> {
    pub fn engine(&self) -> &Engine {
        &self.pool.engine
    }

    /// Unfinished work is complete: the pool has its expected content, also when reopened without the disks
    /// `apart` (not part of it), and without the disks `lost`.
    pub async fn end(self, apart: &[usize], lost: &[usize]) -> Result<(), String> {
        let Opened { rt, layout, disks, pool, expected } = self;
        expected.compare(&pool.engine).await?;
        pool.engine.sync_all().await.map_err(|error| error.to_string())?;
        drop(pool);
        let mut ways = vec![apart.to_vec(), [apart, lost].concat()];
        ways.dedup();
        for gone in ways {
            let again = |why| format!("again without {gone:?}: {why}");
            let disks = Disks::new(rt, layout.shape(), disks.images());
            let pool = recover(rt, disks.devices_but(&gone)).await.map_err(again)?;
            expected.compare(&pool.engine).await.map_err(again)?;
        }
        Ok(())
    }
}

/// Cuts one run at `cuts` moments, each of which it has to survive.
pub fn survives_cuts(
    seed: u64,
    layout: &Layout,
    run: &Run,
    count: usize,
    survive: impl AsyncFn(Cut<'_>) -> Result<(), String>,
) {
    let mut rng = Rng::stream(seed, 1);
    let mut cutter = Cutter::new(&run.journal, run.before.clone());
    for moment in moments(&run.journal, count, &mut rng) {
        let images = cutter.cut(moment, layout.sector_bytes, &mut rng);
        let survived = simulate(rng.next_u64(), async |rt| {
            survive(Cut { rt: &rt, layout, images, run, at: moment }).await
        });
        survived.unwrap_or_else(|why| panic!("cut at {moment} of {}: {why}", run.journal.now));
    }
}

/// Cuts one run at many moments.
fn cut_run(test: &str, seed: u64, layout: &Layout) {
    let mut rng = Rng::stream(seed, 1);
    let run = record(seed, layout);
    let mut cutter = Cutter::new(&run.journal, run.before.clone());
    let mut with_logs = 0;
    for (index, moment) in moments(&run.journal, CUTS_PER_RUN, &mut rng).into_iter().enumerate() {
        let images = cutter.cut(moment, layout.sector_bytes, &mut rng);
        let steps = if index % GO_ON == 0 { STEPS_AFTER } else { 0 };
        let seed = rng.next_u64();
        let asked = if rng.below(ASK_ZDB) == 0 { ask_zdb(&images) } else { Ok(()) };
        let outcome = asked.and_then(|()| {
            let survived = after_cut(seed, layout.shape(), images, &run, moment, steps)?;
            if survived.has_replayed {
                keep(&format!("{test}-{}", with_logs % KEEP), &survived.before);
                with_logs += 1;
            }
            if index % CUT_RECOVERY == 0 {
                cut_recovery(seed, layout, &survived)?;
            }
            survived.run.map_or(Ok(()), |run| cut_again(seed, layout, &run))
        });
        outcome.unwrap_or_else(|why| panic!("cut {index} at moment {moment} of {}: {why}", run.journal.now));
    }
}

/// The last cuts of a run overwrite the earlier ones: they hold the most data.
fn keep(name: &str, images: &[Image]) {
    if let Some(base) = std::env::var_os("CENOTE_KEEP") {
        save(images, &Path::new(&base).join(name));
    }
}

/// A random moment of a journal, and the disks after a cut at that moment.
fn cut_anywhere(journal: &Journal, before: &[Image], layout: &Layout, rng: &mut Rng) -> (Moment, Vec<Image>) {
    let moment = rng.below(journal.now as u64 + 1) as usize;
    (moment, Cutter::new(journal, before.to_vec()).cut(moment, layout.sector_bytes, rng))
}

/// A second cut while the pool is opened: the next opening must find the same state as after the first.
fn cut_recovery(seed: u64, layout: &Layout, first: &Survived) -> Result<(), String> {
    let mut rng = Rng::stream(seed, 3);
    let (moment, images) = cut_anywhere(&first.recovery, &first.before, layout, &mut rng);
    if rng.below(ASK_ZDB / CUT_RECOVERY as u64) == 0 {
        ask_zdb(&images)?;
    }
    let done = simulate(seed, |rt| async move {
        let pool = recover(&rt, Disks::new(&rt, layout.shape(), images).devices()).await?;
        first.expected.compare(&pool.engine).await
    });
    done.map_err(|why| format!("cut again at {moment} of {}, in recovery: {why}", first.recovery.now))
}

/// A second cut, while the work continues on a pool that survived the first.
fn cut_again(seed: u64, layout: &Layout, run: &Run) -> Result<(), String> {
    let mut rng = Rng::stream(seed, 2);
    let (moment, images) = cut_anywhere(&run.journal, &run.before, layout, &mut rng);
    let done = after_cut(seed, layout.shape(), images, run, moment, 0);
    done.map(drop).map_err(|why| format!("after the work went on, cut again at {moment}: {why}"))
}

/// Prints how to replay the test if it fails.
pub struct Replay<'a> {
    pub test: &'a str,
    pub seed: u64,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay { test, seed } = self;
            eprintln!("replay: CENOTE_SEED={seed} cargo test -p cenote-inspect --test simulation {test}");
        }
    }
}

pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a test `runs` times, each time with another seed; or once, with `CENOTE_SEED`.
pub fn on_seeds(test: &str, runs: u64, run: impl Fn(u64)) {
    let run = |seed| {
        let _replay = Replay { test, seed };
        run(seed);
    };
    if let Some(seed) = number("CENOTE_SEED") {
        return run(seed);
    }
    let seeds = Runtime::real(Some(1));
    (0..runs).for_each(|_| run(seeds.random_u64()));
}

/// Runs a test `runs` times, each time with another seed, and with each of these kinds of runs equally often.
/// The kind follows from the seed, so `CENOTE_SEED` is all that repeats a run.
pub fn on_kinds(test: &str, runs: u64, kinds: &[usize], kind_of: impl Fn(u64) -> usize, run: impl Fn(u64)) {
    if number("CENOTE_SEED").is_some() {
        return on_seeds(test, 1, run);
    }
    let seeds = Runtime::real(Some(1));
    for kind in kinds.iter().cycle().take(runs as usize) {
        let seed = loop {
            let seed = seeds.random_u64();
            if kind_of(seed) == *kind {
                break seed;
            }
        };
        let _replay = Replay { test, seed };
        run(seed);
    }
}

/// Runs a test on each of these pools `CENOTE_RUNS` times (1), each time with another seed, or with
/// `CENOTE_SEED`.
pub fn on_pools(test: &str, pools: &[&[Vdev]], run: impl Fn(u64, &Layout)) {
    let layout = |vdevs: &&[Vdev]| Layout { vdevs: vdevs.to_vec(), sector_bytes: 512, spares: 0 };
    on_layouts(test, &pools.iter().map(layout).collect::<Vec<_>>(), run);
}

/// The same for layouts.
pub fn on_layouts(test: &str, layouts: &[Layout], run: impl Fn(u64, &Layout)) {
    let runs = number("CENOTE_RUNS").unwrap_or(1);
    let seeds = Runtime::real(Some(1));
    for layout in layouts {
        for _ in 0..runs {
            let seed = number("CENOTE_SEED").unwrap_or_else(|| seeds.random_u64());
            let _replay = Replay { test, seed };
            run(seed, layout);
        }
    }
}

fn cut_pool(test: &str, vdevs: &[Vdev], sector_bytes: u32) {
    let layout = Layout { vdevs: vdevs.to_vec(), sector_bytes, spares: 0 };
    let cuts = number("CENOTE_CUTS").unwrap_or(CUTS as u64);
    on_seeds(test, cuts.div_ceil(CUTS_PER_RUN as u64), |seed| cut_run(test, seed, &layout));
}

#[test]
fn power_cuts_stripe() {
    cut_pool("power_cuts_stripe", &[(Disk, 0, 1, Normal), (Disk, 0, 1, Normal)], 512);
}

#[test]
fn power_cuts_one_disk_large_sectors() {
    cut_pool("power_cuts_one_disk_large_sectors", &[(Disk, 0, 1, Normal)], 4096);
}

#[test]
fn power_cuts_mirror() {
    cut_pool("power_cuts_mirror", &[(Mirror, 0, 2, Normal)], 512);
}

#[test]
fn power_cuts_raidz1() {
    cut_pool("power_cuts_raidz1", &[(Raidz, 1, 3, Normal)], 512);
}

#[test]
fn power_cuts_raidz2() {
    cut_pool("power_cuts_raidz2", &[(Raidz, 2, 4, Normal)], 4096);
}

#[test]
fn power_cuts_raidz3() {
    cut_pool("power_cuts_raidz3", &[(Raidz, 3, 5, Normal)], 512);
}

#[test]
fn power_cuts_stripe_log() {
    cut_pool("power_cuts_stripe_log", &[(Disk, 0, 1, Normal), (Disk, 0, 1, Log)], 512);
}

#[test]
fn power_cuts_mirror_special() {
    cut_pool("power_cuts_mirror_special", &[(Mirror, 0, 2, Normal), (Mirror, 0, 2, Special)], 512);
}

#[test]
fn power_cuts_raidz1_log_special() {
    let vdevs = [(Raidz, 1, 3, Normal), (Mirror, 0, 2, Log), (Mirror, 0, 2, Special)];
    cut_pool("power_cuts_raidz1_log_special", &vdevs, 4096);
}

#[test]
fn a_seed_is_a_history() {
    let layout =
        Layout { vdevs: vec![(Raidz, 1, 3, Normal), (Disk, 0, 1, Log)], sector_bytes: 512, spares: 0 };
    let fingerprint = |seed| {
        let run = record(seed, &layout);
        run.journal
            .writes
            .iter()
            .map(|write| (write.disk, write.offset, write.data.clone()))
            .collect::<Vec<_>>()
    };
    let (first, again, other) = (fingerprint(7), fingerprint(7), fingerprint(8));
    assert!(first == again, "the same seed wrote something else");
    assert!(first != other);
}
