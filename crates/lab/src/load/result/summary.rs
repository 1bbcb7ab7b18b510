//! The summary: a few kilobytes that describe a result, for programs that want figures rather than evidence.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Failure, ResultFolder, Run, SCHEMA};
use crate::Result;
use crate::load::measurement::{Figure, Tool};
use crate::load::samples::Missing;
use crate::load::suite::Options;
use crate::load::target::Target;
use crate::stats::Spread;
use crate::unit::{Better, Unit};

/// One figure of one test on one target, over all its repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FigureSummary {
    /// Name of the test.
    pub test: String,
    /// Name of the target.
    pub target: String,
    /// Name of the figure: `read.iops`.
    pub figure: String,
    /// Unit of all values here.
    pub unit: Unit,
    /// Better direction.
    pub better: Better,
    /// Values in order of the repeats.
    pub values: Vec<f64>,
    /// Median, interval, stability.
    pub spread: Spread,
}

/// A test of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestSummary {
    /// Name of the test.
    pub name: String,
    /// Description of the test.
    pub about: String,
}

/// `summary.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the program that started the result.
    pub cenote: String,
    /// Name of the suite.
    pub suite: String,
    /// Title of the suite.
    pub title: String,
    /// Start: nanoseconds since 1970, UTC.
    pub created_unix_ns: u64,
    /// Whether the whole plan was done.
    pub complete: bool,
    /// Number of runs.
    pub runs: usize,
    /// Number of planned runs.
    pub planned: usize,
    /// Options, including `quick`.
    pub options: Options,
    /// All targets.
    pub targets: Vec<Target>,
    /// All tests of the plan.
    pub tests: Vec<TestSummary>,
    /// Tools that did the work.
    pub tools: Vec<Tool>,
    /// Machine, without details that only its own file holds.
    pub machine: Value,
    /// Sources sampled in at least one run.
    pub sampled: Vec<String>,
    /// Sources not sampled in at least one run.
    pub missing: Vec<Missing>,
    /// Notes of the runs, each once.
    pub notes: Vec<String>,
    /// Tests without a measurement.
    pub failures: Vec<Failure>,
    /// Ordered by test and target.
    pub figures: Vec<FigureSummary>,
}

impl Summary {
    pub(super) fn of<R: Borrow<Run>>(
        folder: &ResultFolder,
        runs: impl IntoIterator<Item = Result<R>>,
    ) -> Result<Summary> {
        let plan = folder.plan();
        let mut figures = Figures::default();
        let (mut sampled, mut missing) = (BTreeSet::new(), Vec::new());
        let (mut notes, mut tools) = (Vec::new(), Vec::new());
        for run in runs {
            let run = run?;
            let Run { measurement, samples } = run.borrow();
            figures.add(run.borrow());
            sampled.extend(samples.series.iter().map(|series| series.source.clone()));
            sampled.extend(samples.histograms.iter().map(|histogram| histogram.source.clone()));
            add_new(&mut missing, samples.missing.clone());
            add_new(&mut notes, measurement.outcome.notes.clone());
            // The command differs from run to run; the program does not.
            add_new(&mut tools, [Tool { command: None, ..measurement.outcome.tool.clone() }]);
        }
        let test =
            |t: &crate::load::suite::Test| TestSummary { name: t.name.clone(), about: t.about.clone() };
        Ok(Summary {
            schema: SCHEMA.into(),
            cenote: folder.head.cenote.clone(),
            suite: plan.suite.clone(),
            title: plan.title.clone(),
            created_unix_ns: folder.created_unix_ns(),
            complete: folder.is_complete(),
            runs: folder.len(),
            planned: folder.planned(),
            options: plan.options.clone(),
            targets: folder.targets().to_vec(),
            tests: plan.tests.iter().map(test).collect(),
            tools,
            machine: essentials(folder.machine()),
            sampled: sampled.into_iter().collect(),
            missing,
            notes,
            failures: folder.failures()?,
            figures: figures.finish(),
        })
    }
}

fn add_new<T: PartialEq>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for item in more {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

/// Figures of some runs over their repeats; tests, targets and figures in order of first appearance.
pub fn summarise<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<FigureSummary> {
    let mut figures = Figures::default();
    for run in runs {
        figures.add(run);
    }
    figures.finish()
}

/// Gathers figures run by run, with at most one run in memory.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Index in `all` for each (test, target, figure).
    place: BTreeMap<(String, String, String), usize>,
    all: Vec<Gathered>,
}

#[derive(Debug)]
struct Gathered {
    test: String,
    target: String,
    figure: Figure,
    /// (repeat, value).
    values: Vec<(u32, f64)>,
}

impl Figures {
    pub(crate) fn add(&mut self, run: &Run) {
        let m = &run.measurement;
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for mut figure in m.outcome.figures() {
            // Two streams of a run may have the same operation: the second's figures are others, not repeats.
            let times = seen.entry(figure.name.clone()).or_default();
            *times += 1;
            if *times > 1 {
                figure.name = format!("{} ({times})", figure.name);
            }
            let (test, target) = (m.test.clone(), m.target.clone());
            let next = self.all.len();
            let at = *self.place.entry((test.clone(), target.clone(), figure.name.clone())).or_insert(next);
            let value = (m.repeat, figure.value);
            match self.all.get_mut(at) {
                Some(known) => known.values.push(value),
                None => self.all.push(Gathered { test, target, figure, values: vec![value] }),
            }
        }
    }

    pub(crate) fn finish(self) -> Vec<FigureSummary> {
        self.all.into_iter().map(Gathered::summary).collect()
    }
}

impl Gathered {
    fn summary(mut self) -> FigureSummary {
        self.values.sort_by_key(|value| value.0);
        let values: Vec<f64> = self.values.into_iter().map(|value| value.1).collect();
        let Figure { name, unit, better, .. } = self.figure;
        let spread = Spread::of(&values);
        FigureSummary { test: self.test, target: self.target, figure: name, unit, better, values, spread }
    }
}

fn essentials(machine: &Value) -> Value {
    const LONG_BYTES: usize = 2048;
    let Value::Object(all) = machine else { return machine.clone() };
    let is_short = |value: &Value| value.to_string().len() <= LONG_BYTES;
    Value::Object(all.iter().filter(|(_, v)| is_short(v)).map(|(k, v)| (k.clone(), v.clone())).collect())
}
