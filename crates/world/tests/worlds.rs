//! Worlds in the tests: seeds that once failed, new ones, and proof that the oracle looks.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::process::Command;
use std::time::{Duration, Instant};

use cenote_world::less::Less;
use cenote_world::small::step::Step;
use cenote_world::small::{Base, On, Program};
use cenote_world::world::{Params, Report, Sabotage, run};

/// Seeds of every run.
const SEEDS: std::ops::Range<u64> = 1..5;

const PARAMS: Params =
    Params { seed: 0, calls: 120, cuts: 2, sabotage: None, aims: false, less: Less::NOTHING };

fn world(params: Params) -> Report {
    run(params).unwrap()
}

fn check(params: Params) {
    let command = params.command();
    if let Some(violation) = world(params).violation {
        panic!("{}\nagain: {command}", violation.0);
    }
}

/// In their own processes, and to the microsecond: steps of tasks between calls still differ in order, for an
/// unknown reason.
#[test]
fn a_seed_repeats_its_history() {
    let history = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote-world"));
        let output = command.args(["--seed", "1", "--ops", "40", "--cuts", "1", "--log"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("seed ")).map(str::to_owned);
        lines.collect::<Vec<String>>()
    };
    let first = history();
    assert!(first.len() > 40);
    assert_eq!(first, history());
}

/// `CENOTE_WORLD_SECONDS`: time for new seeds, after the usual ones.
#[test]
fn worlds_are_right() {
    SEEDS.for_each(|seed| check(Params { seed, ..PARAMS }));
    // A verify meets the end of a resilver.
    [84, 95].into_iter().for_each(|seed| check(Params { seed, ..PARAMS }));
    // A longer one.
    check(Params { seed: 9526, calls: 600, cuts: 6, ..PARAMS });
    let seconds = std::env::var("CENOTE_WORLD_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let first = u64::from(std::process::id()) + SEEDS.end;
    (first..).take_while(|_| Instant::now() < until).for_each(|seed| check(Params { seed, ..PARAMS }));
}

/// Whether one of some worlds is found to be wrong.
fn is_found(sabotage: Sabotage, calls: u64) -> bool {
    let sabotage = Some(sabotage);
    (1..30).any(|seed| world(Params { seed, calls, sabotage, ..PARAMS }).violation.is_some())
}

#[test]
fn disks_that_lie_about_flushes_are_found() {
    assert!(is_found(Sabotage::FlushesLie, 120));
}

#[test]
fn notices_that_are_lost_are_found() {
    assert!(is_found(Sabotage::NoticesAreLost, 300));
}

/// `cenote-world --small 2` and `--small-pairs` run all of them.
#[test]
fn small_worlds_are_right_wherever_the_power_fails() {
    let base = Base::new(On::Disk).unwrap();
    let check = |program: &Program, cuts: &[u64]| {
        let ran = base.run(program, 1, cuts);
        if let Some(violation) = ran.violation {
            panic!("{}\nagain: {}", violation.0, ran.command);
        }
        ran.writes
    };
    for steps in [vec![Step::Commit, Step::Rename], vec![Step::FlushVolume, Step::RollbackVolume]] {
        let program = Program { steps, begins: None };
        let writes = check(&program, &[]);
        assert!(writes > 20, "{writes}");
        (0..writes).for_each(|cut| _ = check(&program, &[cut, cut / 2]));
    }
    let steps = vec![Step::RollbackVolume, Step::FlushVolume];
    for pause in 0..SMALL_PAUSES {
        let begins = Some(vec![Duration::ZERO, Duration::from_micros(pause * 100)]);
        check(&Program { steps: steps.clone(), begins }, &[]);
    }
}

/// The disk's last flush fails, and the next one succeeds; then the power fails, twice.
#[test]
fn a_disk_that_failed_the_last_flush_of_a_txg_is_resilvered() {
    let base = Base::new(On::Mirror).unwrap();
    use Step::{FailFlushes, Heal, Snapshot};
    let steps = vec![FailFlushes, FailFlushes, FailFlushes, Snapshot, Heal, Heal];
    let begins = [86_139_247, 34_286_324, 14_052_970, 92_029_859, 21_272_950, 762_972];
    let begins = Some(begins.map(Duration::from_nanos).to_vec());
    let program = Program { steps, begins };
    for cut in 88..100 {
        let ran = base.run(&program, 25, &[cut, 16]);
        assert!(ran.violation.is_none(), "{}\nagain: {}", ran.violation.unwrap().0, ran.command);
    }
}

/// Both commands find it free.
#[test]
fn a_disk_that_two_commands_attach_at_once_joins_once() {
    let base = Base::new(On::Mirror).unwrap();
    let program = |pause| {
        let begins = Some(vec![Duration::ZERO, Duration::from_micros(pause)]);
        Program { steps: vec![Step::Attach, Step::Attach], begins }
    };
    for pause in (0..4_000).step_by(400) {
        let ran = base.run(&program(pause), 1, &[]);
        assert!(ran.violation.is_none(), "{}\nagain: {}", ran.violation.unwrap().0, ran.command);
    }
}

const SMALL_PAUSES: u64 = 20;
