//! Report: a table per test, a verdict per policy, and the counters behind it.

use std::fmt::Write as _;

use cenote_cache::CacheStats;
use cenote_control::text::nice_bytes;
use cenote_policy::PolicyName;

use super::{Answer, Panel, Run, Test};
use crate::report::{Attachment, Report};

/// Least notable difference in disk reads, as a share of the baseline's.
const NOTABLE: f64 = 0.02;

impl crate::Answer for Answer {
    fn report(&self) -> Report {
        let mut report = Report::default();
        let mut text = format!(
            "# ARC and metadata: {} inodes, a cache of {}\n\n\
             One modelled disk (4 to 8 ms, 150 MiB/s), Cenote's engine, virtual time. `fewer`: reads of the \
             disk compared with the first policy. `meta miss`, `data miss`: look-ups that missed. `meta`, \
             `data`: what the cache held at the end.\n",
            self.scale.inodes,
            nice_bytes(self.scale.cache_bytes)
        );
        for test in self.tests() {
            _ = writeln!(text, "\n## Test {}: {}\n", test.number(), test.about());
            report.text(std::mem::take(&mut text));
            self.table(test, &mut report);
        }
        text += "\n## Verdicts\n\n";
        for policy in self.policies().into_iter().skip(1) {
            _ = writeln!(text, "- **{policy}** ({}): {}", policy.about(), self.verdict(policy));
        }
        report.text(text);
        report
    }

    /// A table per run, as `arcstat` would have shown it.
    fn attachments(&self) -> Vec<Attachment> {
        let panels = |run: &Run| Attachment {
            name: format!("test{}-{}.tsv", run.test.number(), run.policy),
            text: panels(&run.panels),
        };
        self.runs.iter().map(panels).collect()
    }
}

impl Answer {
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

    /// Saved reads as a share of the baseline's; negative if a policy reads more.
    fn gains(&self, policy: PolicyName) -> Vec<f64> {
        let gain = |test: Test| {
            let before = self.of(test).next()?.reads;
            let after = self.of(test).find(|run| run.policy == policy)?.reads;
            Some(1.0 - after as f64 / before.max(1) as f64)
        };
        self.tests().into_iter().filter_map(gain).collect()
    }

    fn table(&self, test: Test, report: &mut Report) {
        let before = self.of(test).next().map_or(0, |run| run.reads);
        let row = |run: &Run| {
            let fewer = 100.0 * (1.0 - run.reads as f64 / before.max(1) as f64);
            [
                run.policy.to_string(),
                run.reads.to_string(),
                format!("{fewer:.1} %"),
                nice_bytes(run.read_bytes),
                format!("{:.0}", run.inodes as f64 / run.seconds.max(1e-9)),
                run.metadata_misses.to_string(),
                run.data_misses.to_string(),
                nice_bytes(run.held.metadata_bytes),
                nice_bytes(run.held.data_bytes),
                run.held.p_bytes.map_or_else(|| "-".into(), nice_bytes),
            ]
        };
        let heads =
            ["policy", "reads", "fewer", "read", "inodes/s", "meta miss", "data miss", "meta", "data", "p"];
        report.table(1, heads, self.of(test).map(row));
    }

    /// Number of tests in which a policy reads less, by how much, and its counters.
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
            of.fold((0, 0, 0), |(metadata, data, held), run| {
                (metadata + run.metadata_misses, data + run.data_misses, held + run.held.metadata_bytes)
            })
        };
        if let Some(first) = self.policies().first() {
            let (before, after) = (sums(*first), sums(policy));
            let mean = |bytes: u64| nice_bytes(bytes / gains.len().max(1) as u64);
            _ = write!(
                out,
                " Misses of metadata {} instead of {}, of data {} instead of {}; metadata at the end {} \
                 instead of {}.",
                after.0,
                before.0,
                after.1,
                before.1,
                mean(after.2),
                mean(before.2)
            );
        }
        out
    }
}

fn panels(panels: &[Panel]) -> String {
    let names: Vec<&str> = panels
        .first()
        .map_or_else(Vec::new, |first| first.stats.gauges.iter().map(|(name, _)| name.as_str()).collect());
    let mut out = String::from(
        "seconds\tinodes\treads\tdata_hits\tdata_misses\tmeta_hits\tmeta_misses\tdata\tmeta\tsize",
    );
    names.iter().for_each(|name| _ = write!(out, "\t{name}"));
    out.push('\n');
    for Panel { seconds, inodes, reads, stats } in panels {
        let CacheStats { data, metadata, bytes, gauges, .. } = stats;
        _ = write!(
            out,
            "{seconds:.3}\t{inodes}\t{reads}\t{}\t{}\t{}\t{}\t{}\t{}\t{bytes}",
            data.hits,
            data.misses,
            metadata.hits,
            metadata.misses,
            data.content_bytes,
            metadata.content_bytes
        );
        for name in &names {
            let value = gauges.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
            _ = write!(out, "\t{value}");
        }
        out.push('\n');
    }
    out
}
