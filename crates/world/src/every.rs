//! Runs all small worlds, or one of them.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cenote_runtime::Rng;
use cenote_world::pairs::Pairs;
use cenote_world::small::step::Step;
use cenote_world::small::{Base, Program, Ran};
use clap::Args;

/// Runs of a pair at once, each with another pause and cut.
const RUNS_OF_PAIR: u64 = 8;
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
    /// Its steps begin at once, with this pause before each further one, in nanoseconds.
    #[arg(long)]
    pause: Option<u64>,
    /// The power fails at this write, and at the next ones while the pool is opened again.
    #[arg(long, value_delimiter = ',', value_name = "WRITES")]
    cut_at: Vec<u64>,
    /// Only each Nth program.
    #[arg(long, default_value_t = 1)]
    every: usize,
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
        self.small.is_some() || self.small_pairs || !self.program.is_empty()
    }

    /// Runs them. `all`: also those after one that is wrong.
    pub fn run(&self, seed: u64, all: bool, tail: usize) -> ExitCode {
        let base = match Base::new() {
            Ok(base) => base,
            Err(error) => {
                println!("the base: {error}");
                return ExitCode::FAILURE;
            }
        };
        let (mut tally, begun) = (Tally::default(), Instant::now());
        if !self.program.is_empty() {
            let at_once = self.pause.map(Duration::from_nanos);
            let program = Program { steps: self.program.clone(), at_once };
            let ran = base.run(&program, seed, &self.cut_at);
            println!("{} writes; the steps took {:?}", ran.writes, ran.took);
            ran.lines.iter().for_each(|line| println!("{line}"));
            tally.add(&program, seed, &self.cut_at, ran, 0);
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
            tally.add(&program, seed, &[], ran, tail);
            for cut in 0..writes {
                if !goes_on(&tally) {
                    break;
                }
                let cuts = cuts(&mut rng, cut);
                let ran = base.run(&program, seed, &cuts);
                tally.add(&program, seed, &cuts, ran, tail);
            }
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
    fn add(&mut self, program: &Program, seed: u64, cuts: &[u64], ran: Ran, tail: usize) {
        self.runs += 1;
        self.pairs.count(&ran.record);
        if let Some(violation) = ran.violation {
            ran.lines[ran.lines.len().saturating_sub(tail)..].iter().for_each(|line| println!("{line}"));
            self.wrong += 1;
            println!("WRONG: {}", violation.0);
            println!("again: {}", program.command(seed, cuts));
        }
    }

    /// Two steps at once: first alone at the same moment, for the time that they take.
    fn add_pair(&mut self, base: &Base, steps: [Step; 2], seed: u64, tail: usize) {
        let mut rng = Rng::new(seed);
        let program = |pause| Program { steps: steps.to_vec(), at_once: Some(pause) };
        let first = program(Duration::ZERO);
        let ran = base.run(&first, seed, &[]);
        let (took_ns, writes) = (ran.took.as_nanos() as u64, ran.writes);
        self.add(&first, seed, &[], ran, tail);
        for run in 1..RUNS_OF_PAIR {
            let program = program(Duration::from_nanos(rng.below(took_ns.max(1))));
            let cut = rng.below(writes.max(1));
            let cuts = if run % 2 == 1 { cuts(&mut rng, cut) } else { Vec::new() };
            let ran = base.run(&program, seed, &cuts);
            self.add(&program, seed, &cuts, ran, tail);
        }
    }

    fn show(&self, begun: Instant) {
        let Tally { programs, runs, wrong, .. } = self;
        let seconds = begun.elapsed().as_secs_f64();
        println!("{programs} programs, {runs} runs, {wrong} wrong, {:.0} runs/s", *runs as f64 / seconds);
    }
}
