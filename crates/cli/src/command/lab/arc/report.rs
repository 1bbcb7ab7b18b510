//! What the tests showed: a table a test, a verdict a policy, and the counters behind it.

use std::fmt::Write as _;
use std::path::Path;

use cenote_cache::CacheStats;
use cenote_policy::PolicyName;
use serde_json::{Value, json};

use super::pool::{Panel, Run};
use super::work::{Scale, Test};
use crate::render::{Align, Table, nice_bytes};

/// A difference that counts: reads of the disk, of those with the policy before the patches.
const NOTABLE: f64 = 0.02;

/// All runs of a study; the first policy is what others are compared with.
pub struct Study {
    scale: Scale,
    runs: Vec<Run>,
}

impl Study {
    pub fn new(scale: Scale) -> Study {
        Study { scale, runs: Vec::new() }
    }

    pub fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    fn tests(&self) -> Vec<Test> {
        let mut tests: Vec<Test> = self.runs.iter().map(|run| run.test).collect();
        tests.dedup();
        tests
    }

    fn of(&self, test: Test) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.test == test)
    }

    fn policies(&self) -> Vec<PolicyName> {
        self.tests().first().map_or_else(Vec::new, |test| self.of(*test).map(|run| run.policy).collect())
    }

    /// Fewer reads than before (negative: more), as a part of those.
    fn gains(&self, policy: PolicyName) -> Vec<f64> {
        let gain = |test: Test| {
            let before = self.of(test).next()?.reads;
            let after = self.of(test).find(|run| run.policy == policy)?.reads;
            Some(1.0 - after as f64 / before.max(1) as f64)
        };
        self.tests().into_iter().filter_map(gain).collect()
    }

    /// The report, in Markdown.
    pub fn text(&self) -> String {
        let mut out = format!(
            "# ARC and metadata: {} inodes, a cache of {}\n\n\
             One modelled disk (4 to 8 ms, 150 MiB/s), Cenote's engine, virtual time. `fewer`: reads of the \
             disk compared with the first policy. `meta miss`, `data miss`: look-ups that missed. `meta`, \
             `data`: what the cache held at the end.\n",
            self.scale.inodes,
            nice_bytes(self.scale.cache_bytes)
        );
        for test in self.tests() {
            _ = writeln!(out, "\n## Test {}: {}\n\n```", test.number(), test.about());
            out += &self.table(test);
            out += "```\n";
        }
        out += "\n## Verdicts\n\n";
        for policy in self.policies().into_iter().skip(1) {
            _ = writeln!(out, "- **{policy}** ({}): {}", policy.about(), self.verdict(policy));
        }
        out
    }

    fn table(&self, test: Test) -> String {
        let heads =
            ["policy", "reads", "fewer", "read", "inodes/s", "meta miss", "data miss", "meta", "data", "p"];
        let align = |head: &&'static str| (*head, if *head == "policy" { Align::Left } else { Align::Right });
        let mut table = Table::new(heads.iter().map(align));
        let before = self.of(test).next().map_or(0, |run| run.reads);
        for run in self.of(test) {
            let CacheStats { data, metadata, .. } = &run.stats;
            let fewer = 100.0 * (1.0 - run.reads as f64 / before.max(1) as f64);
            table.row([
                run.policy.to_string(),
                run.reads.to_string(),
                format!("{fewer:.1} %"),
                nice_bytes(run.read_bytes),
                format!("{:.0}", run.inodes as f64 / run.took.as_secs_f64().max(1e-9)),
                metadata.misses.to_string(),
                data.misses.to_string(),
                nice_bytes(metadata.content_bytes),
                nice_bytes(data.content_bytes),
                gauge(&run.stats, "p").map_or_else(|| "-".into(), nice_bytes),
            ]);
        }
        table.aligned()
    }

    /// In how many tests a policy reads less, by how much, and what its counters say.
    fn verdict(&self, policy: PolicyName) -> String {
        let gains = self.gains(policy);
        let better = gains.iter().filter(|gain| **gain > NOTABLE).count();
        let worse = gains.iter().filter(|gain| **gain < -NOTABLE).count();
        let low = gains.iter().copied().fold(f64::INFINITY, f64::min) * 100.0;
        let high = gains.iter().copied().fold(f64::NEG_INFINITY, f64::max) * 100.0;
        let mut out = format!(
            "fewer reads in {better} of {} tests, more in {worse} ({low:.1} to {high:.1} % fewer).",
            gains.len()
        );
        let sums = |policy: PolicyName| {
            let of = self.runs.iter().filter(move |run| run.policy == policy);
            of.fold((0, 0, 0), |(meta, data, held), run| {
                let CacheStats { data: d, metadata: m, .. } = &run.stats;
                (meta + m.misses, data + d.misses, held + m.content_bytes)
            })
        };
        if let Some(first) = self.policies().first() {
            let (before, after) = (sums(*first), sums(policy));
            _ = write!(
                out,
                " Misses of metadata {} instead of {}, of data {} instead of {}; metadata at the end {} \
                 instead of {}.",
                after.0,
                before.0,
                after.1,
                before.1,
                nice_bytes(after.2 / gains.len().max(1) as u64),
                nice_bytes(before.2 / gains.len().max(1) as u64)
            );
        }
        out
    }

    /// The report and a table of panels for each run, in a folder.
    pub fn write(&self, out: &Path) -> std::io::Result<()> {
        std::fs::write(out.join("report.md"), self.text())?;
        for run in &self.runs {
            let name = format!("test{}-{}.tsv", run.test.number(), run.policy);
            std::fs::write(out.join(name), panels(&run.panels))?;
        }
        Ok(())
    }

    /// All figures.
    pub fn json(&self) -> Value {
        let of = |run: &Run| {
            json!({
                "test": run.test.number(),
                "policy": run.policy.name(),
                "reads": run.reads,
                "read_bytes": run.read_bytes,
                "inodes": run.inodes,
                "seconds": run.took.as_secs_f64(),
                "metadata_misses": run.stats.metadata.misses,
                "data_misses": run.stats.data.misses,
            })
        };
        json!({
            "inodes": self.scale.inodes,
            "cache_bytes": self.scale.cache_bytes,
            "runs": self.runs.iter().map(of).collect::<Vec<_>>(),
        })
    }
}

fn gauge(stats: &CacheStats, name: &str) -> Option<u64> {
    stats.gauges.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// What `arcstat` would have shown meanwhile.
fn panels(panels: &[Panel]) -> String {
    let gauges: Vec<&str> = panels
        .first()
        .map_or_else(Vec::new, |first| first.stats.gauges.iter().map(|(name, _)| *name).collect());
    let mut out = String::from(
        "seconds\tinodes\treads\tdata_hits\tdata_misses\tmeta_hits\tmeta_misses\tdata\tmeta\tsize",
    );
    gauges.iter().for_each(|name| _ = write!(out, "\t{name}"));
    out.push('\n');
    for Panel { at, inodes, reads, stats } in panels {
        let CacheStats { data, metadata, bytes, .. } = stats;
        _ = write!(
            out,
            "{:.3}\t{inodes}\t{reads}\t{}\t{}\t{}\t{}\t{}\t{}\t{bytes}",
            at.as_secs_f64(),
            data.hits,
            data.misses,
            metadata.hits,
            metadata.misses,
            data.content_bytes,
            metadata.content_bytes
        );
        gauges.iter().for_each(|name| _ = write!(out, "\t{}", gauge(stats, name).unwrap_or(0)));
        out.push('\n');
    }
    out
}
