//! Remaining time of a run, from the time its tests have taken so far.
//!
//! A test that has run before takes its mean time; any other its planned time, scaled by how much the tests
//! so far exceeded theirs (laying out files, dropping caches).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::load::suite::Test;

#[derive(Debug, Default)]
pub struct Eta {
    /// For each test: total time of its runs, and their number.
    took: BTreeMap<String, (Duration, u32)>,
    /// For tests with a planned time: time taken and time planned.
    against_plan: (f64, f64),
}

impl Eta {
    pub fn took(&mut self, test: &Test, elapsed: Duration) {
        let (sum, count) = self.took.entry(test.name.clone()).or_default();
        *sum += elapsed;
        *count += 1;
        if let Some(ns) = test.work.measured_ns() {
            self.against_plan.0 += elapsed.as_secs_f64();
            self.against_plan.1 += ns as f64 / 1e9;
        }
    }

    /// Estimated time of these tests in sequence; None if one has no estimate.
    pub fn of<'a>(&self, tests: impl IntoIterator<Item = &'a Test>) -> Option<Duration> {
        tests.into_iter().map(|test| self.of_one(test)).sum()
    }

    fn of_one(&self, test: &Test) -> Option<Duration> {
        if let Some((sum, count)) = self.took.get(&test.name) {
            return Some(*sum / *count);
        }
        let (took, planned) = self.against_plan;
        let scale = if planned > 0.0 { took / planned } else { 1.0 };
        let seconds = test.work.measured_ns()? as f64 / 1e9 * scale;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::suite::{Options, bonnie, pools};

    #[test]
    fn the_time_left_comes_from_the_plan_and_then_from_measured_tests() {
        let plan = pools::plan(&Options { seconds: Some(10), ..Options::default() }, 1);
        let mut eta = Eta::default();
        let all = |eta: &Eta| eta.of(&plan.tests).map(|left| left.as_secs());
        assert_eq!(all(&eta), Some(50), "as planned");
        eta.took(&plan.tests[0], Duration::from_secs(20));
        assert_eq!(all(&eta), Some(100), "all take twice as long as planned");
        eta.took(&plan.tests[1], Duration::from_secs(10));
        assert_eq!(all(&eta), Some(20 + 10 + 3 * 15));
        assert_eq!(eta.of([]), Some(Duration::ZERO));
        let bonnie = bonnie::plan(&Options { memory_bytes: 1 << 30, ..Options::default() }, 1);
        assert_eq!(Eta::default().of(&bonnie.tests), None, "nothing is known before its first run");
    }
}
