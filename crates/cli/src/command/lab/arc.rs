//! `cenote lab arc`: which cache policy serves metadata, by the tests of the ARC patches of 2014.
//!
//! Idea: Cenote's own engine works on a pool of its own in the simulator, on a modelled disk, with a cache
//! far smaller than the metadata; once with each policy, from the same seed. So a run takes no disk, and
//! what differs between two policies is the policy's doing. Reads of the disk decide; what the cache held
//! says why.
//!
//! Source: pull request 2110 of ZFS on Linux, "Improve ARC hit rate with metadata heavy workloads".

mod pool;
mod report;
mod work;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_policy::PolicyName;
use cenote_policy::policies::Patch;
use clap::Args;

use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::render::duration;
use crate::session::{Progress, Session, print, print_json, unless_interrupted, watch};
use crate::streams::local;
use report::Study;
use work::{Scale, Test};

/// `cenote lab arc`
#[derive(Debug, Args)]
#[command(
    after_help = "Policies: those of `cenote trace replay`, and zol-0.6.2+growth, +bounds, +dampener, \
        +meta-used, +meta-first, +split and +six: ZFS on Linux 0.6.2 with one of the patches, or the six.\n\n\
        Example: cenote lab arc --quick --out arc"
)]
pub struct Arc {
    /// A tenth of the inodes and of the cache
    #[arg(long)]
    pub quick: bool,
    /// Inodes that each test makes [default: 40000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub inodes: Option<u64>,
    /// Size of the cache [default: 8M]
    #[arg(long, value_name = "SIZE", value_parser = super::run::size)]
    pub cache_size: Option<u64>,
    /// Policies, comma-separated [default: zol-0.6.2, it with each patch, zol-0.6.3, and others]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PolicyName::living)]
    pub policy: Vec<PolicyName>,
    /// Tests, by number, comma-separated [default: all seven]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=7))]
    pub test: Vec<u8>,
    /// Write the report and the panels of each run into this new folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

const INODES: u64 = 40_000;
const CACHE_BYTES: u64 = 8 << 20;

/// What is compared unless said otherwise: the policy before the patches comes first.
fn policies() -> Vec<PolicyName> {
    let patched = Patch::ALL.map(PolicyName::Patched);
    let others = [
        PolicyName::Zol063,
        PolicyName::OpenZfs,
        PolicyName::Lru,
        PolicyName::Arc,
        PolicyName::S3Fifo,
        PolicyName::Sieve,
        PolicyName::WTinyLfu,
        PolicyName::Lirs,
    ];
    [PolicyName::Zol062].into_iter().chain(patched).chain(others).collect()
}

impl Arc {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let part = if self.quick { 10 } else { 1 };
        let scale = Scale {
            inodes: self.inodes.unwrap_or(INODES / part),
            cache_bytes: self.cache_size.unwrap_or(CACHE_BYTES / part),
        };
        let policies = if self.policy.is_empty() { policies() } else { self.policy.clone() };
        let tests: Vec<Test> = Test::ALL
            .into_iter()
            .filter(|t| self.test.is_empty() || self.test.contains(&t.number()))
            .collect();
        if let Some(out) = &self.out {
            std::fs::create_dir(local(out)).map_err(CliError::io(out.display().to_string()))?;
        }
        let interrupted = || "nothing was written".into();
        let study = unless_interrupted(self.study(session, scale, &tests, &policies), interrupted).await?;
        if let Some(out) = &self.out {
            study.write(&local(out)).map_err(CliError::io(out.display().to_string()))?;
        }
        match session.json() {
            true => print_json(&study.json())?,
            false => print(study.text())?,
        }
        Ok(Outcome::Done)
    }

    async fn study(
        &self,
        session: &Session,
        scale: Scale,
        tests: &[Test],
        policies: &[PolicyName],
    ) -> Result<Study, CliError> {
        let mut study = Study::new(scale);
        let total: u64 = tests.iter().map(|test| scale.total_of(*test)).sum::<u64>() * policies.len() as u64;
        let (runs, start) = (tests.len() * policies.len(), session.runtime().now());
        let (line, mut before) = (Progress::text(), 0);
        let pairs = tests.iter().flat_map(|test| policies.iter().map(move |policy| (*test, *policy)));
        for (index, (test, policy)) in pairs.enumerate() {
            let made = Made::default();
            let counter = made.clone();
            // The simulator has a thread to itself.
            let run = session.runtime().blocking(move || pool::run(test, policy, scale, counter));
            let show = |_| {
                let elapsed = session.runtime().now() - start;
                let done = ((before + made.get()) as f64 / total.max(1) as f64).min(1.0);
                let left = elapsed.mul_f64((1.0 - done) / done.max(1e-9));
                let left = if done > 0.01 { format!(", {} left", duration(left)) } else { String::new() };
                line.message(format!(
                    "run {} of {runs}: test {}, {policy}; {:.0} %{left}",
                    index + 1,
                    test.number(),
                    done * 100.0
                ));
            };
            let run = watch(session.runtime(), run, show).await.map_err(CliError::Refused)?;
            line.hide(|| say!("test {}, {policy}: {} reads", test.number(), run.reads));
            before += scale.total_of(test);
            study.add(run);
        }
        line.finish();
        Ok(study)
    }
}

/// How much a run has made so far.
#[derive(Debug, Clone, Default)]
pub struct Made(std::sync::Arc<AtomicU64>);

impl Made {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
