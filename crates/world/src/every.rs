//! Runs all small worlds, or one of them.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cenote_runtime::Rng;
use cenote_world::pairs::Pairs;
use cenote_world::small::step::Step;
use cenote_world::small::{Base, On, Program, Ran};
use clap::{Args, ValueEnum};

/// Runs of a pair at once, each with another pause and cut.
const RUNS_OF_PAIR: u64 = 8;
/// Runs of a group, all but the first with a cut.
const RUNS_OF_GROUP: u64 = 6;
/// The longest time in which the steps of a group begin: some txgs. The daemon looks at disks every second.
const LONGEST_GROUP: Duration = Duration::from_secs(6);
/// Most openings write less.
const MOST_WRITES_OF_START: u64 = 60;
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// Small worlds: see `cenote_world::small`.
#[derive(Args)]
pub struct SmallArgs {
    /// Run all programs of up to this many steps, cut off at each write.
    #[arg(long, value_name = "STEPS")]
    small: Option<usize>,
    /// Run all pairs of steps at once, with pauses and cuts by chance.
    #[arg(long)]
    small_pairs: bool,
    /// Run one program of these steps.
    #[arg(long, value_delimiter = ',', value_name = "STEPS")]
    program: Vec<Step>,
    /// Its steps run at once, and begin after so many nanoseconds each.
    #[arg(long, value_delimiter = ',', value_name = "TIMES")]
    begins: Vec<u64>,
    /// Run so many programs of a few kinds of steps, all at once, with pauses and cuts by chance.
    #[arg(long, value_name = "PROGRAMS")]
    small_groups: Option<u64>,
    /// The disks of the pool: one, two of which one may be removed, or a mirror with one that gets into
    /// trouble.
    #[arg(long, value_enum, default_value_t)]
    on: Disks,
    /// The power fails at this write, and at the next ones while the pool is opened again.
    #[arg(long, value_delimiter = ',', value_name = "WRITES")]
    cut_at: Vec<u64>,
    /// Only each Nth program.
    #[arg(long, default_value_t = 1)]
    every: usize,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Disks {
    #[default]
    Disk,
    Two,
    Mirror,
}

/// What was run, and what was wrong.
#[derive(Default)]
struct Tally {
    programs: u64,
    runs: u64,
    wrong: u64,
    pairs: Pairs,
}

/// A cut, and half of the time another one while the pool is opened.
fn cuts(rng: &mut Rng, cut: u64) -> Vec<u64> {
    let again = rng.chance(0.5).then(|| rng.below(MOST_WRITES_OF_START));
    [cut].into_iter().chain(again).collect()
}

impl SmallArgs {
    /// Whether small worlds are meant.
    pub fn is_some(&self) -> bool {
        let is_any = self.small_pairs || self.small_groups.is_some();
        is_any || self.small.is_some() || !self.program.is_empty()
    }

    /// Runs them. `all`: also those after one that is wrong.
    pub fn run(&self, seed: u64, all: bool, tail: usize) -> ExitCode {
        let on = match self.on {
            Disks::Disk => On::Disk,
            Disks::Two => On::Two,
            Disks::Mirror => On::Mirror,
        };
        let base = match Base::new(on) {
            Ok(base) => base,
            Err(error) => {
                println!("the base: {error}");
                return ExitCode::FAILURE;
            }
        };
        let (mut tally, begun) = (Tally::default(), Instant::now());
        if !self.program.is_empty() {
            let begins = self.begins.iter().copied().map(Duration::from_nanos).collect::<Vec<_>>();
            let begins = (!begins.is_empty()).then_some(begins);
            let program = Program { steps: self.program.clone(), begins };
            let ran = base.run(&program, seed, &self.cut_at);
            println!("{} writes; the steps took {:?}", ran.writes, ran.took);
            ran.lines.iter().for_each(|line| println!("{line}"));
            tally.add(ran, 0);
        }
        let mut shown = begun;
        let mut goes_on = |tally: &Tally| {
            if shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                tally.show(begun);
            }
            all || tally.wrong == 0
        };
        let mut rng = Rng::new(seed);
        for program in Program::all(self.small.unwrap_or(0)).step_by(self.every) {
            tally.programs += 1;
            let ran = base.run(&program, seed, &[]);
            let writes = ran.writes;
            tally.add(ran, tail);
            for cut in 0..writes {
                if !goes_on(&tally) {
                    break;
                }
                let cuts = cuts(&mut rng, cut);
                let ran = base.run(&program, seed, &cuts);
                tally.add(ran, tail);
            }
            if !goes_on(&tally) {
                break;
            }
        }
        for number in 0..self.small_groups.unwrap_or(0) {
            tally.programs += 1;
            tally.add_group(&base, on, seed.wrapping_add(number), tail);
            if !goes_on(&tally) {
                break;
            }
        }
        if self.small_pairs {
            for (number, steps) in Program::pairs().step_by(self.every).enumerate() {
                tally.programs += 1;
                tally.add_pair(&base, steps, seed.wrapping_add(number as u64), tail);
                if !goes_on(&tally) {
                    break;
                }
            }
            print!("{}", tally.pairs);
        }
        tally.show(begun);
        if tally.wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl Tally {
    fn add(&mut self, ran: Ran, tail: usize) {
        self.runs += 1;
        self.pairs.count(&ran.record);
        if let Some(violation) = ran.violation {
            ran.lines[ran.lines.len().saturating_sub(tail)..].iter().for_each(|line| println!("{line}"));
            self.wrong += 1;
            println!("WRONG: {}", violation.0);
            println!("again: {}", ran.command);
        }
    }

    /// Two steps at once: first alone at the same moment, for the time that they take.
    fn add_pair(&mut self, base: &Base, steps: [Step; 2], seed: u64, tail: usize) {
        let mut rng = Rng::new(seed);
        let program = |pause| Program { steps: steps.to_vec(), begins: Some(vec![Duration::ZERO, pause]) };
        let first = program(Duration::ZERO);
        let ran = base.run(&first, seed, &[]);
        let (took_ns, writes) = (ran.took.as_nanos() as u64, ran.writes);
        self.add(ran, tail);
        for run in 1..RUNS_OF_PAIR {
            let program = program(Duration::from_nanos(rng.below(took_ns.max(1))));
            let cut = rng.below(writes.max(1));
            let cuts = if run % 2 == 1 { cuts(&mut rng, cut) } else { Vec::new() };
            let ran = base.run(&program, seed, &cuts);
            self.add(ran, tail);
        }
    }

    /// A program of a few kinds of steps, to its end; then with cuts.
    fn add_group(&mut self, base: &Base, on: On, seed: u64, tail: usize) {
        let mut rng = Rng::new(seed);
        let program = Program::draw(&mut rng, on, LONGEST_GROUP);
        let ran = base.run(&program, seed, &[]);
        let writes = ran.writes;
        self.add(ran, tail);
        for _ in 1..RUNS_OF_GROUP {
            let cut = rng.below(writes.max(1));
            let cuts = cuts(&mut rng, cut);
            let ran = base.run(&program, seed, &cuts);
            self.add(ran, tail);
        }
    }

    fn show(&self, begun: Instant) {
        let Tally { programs, runs, wrong, .. } = self;
        let seconds = begun.elapsed().as_secs_f64();
        println!("{programs} programs, {runs} runs, {wrong} wrong, {:.0} runs/s", *runs as f64 / seconds);
    }
}
