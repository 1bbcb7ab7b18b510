//! Compares cache policies for metadata, by the tests of the ARC patches of 2014.
//!
//! Idea: Cenote's engine runs each test in the simulator, on a modelled disk, with a cache far smaller than
//! the metadata; once with each policy, from the same seed. Disk reads decide; the cache's content explains
//! them.
//!
//! Source: pull request 2110 of ZFS on Linux, "Improve ARC hit rate with metadata heavy workloads".

mod report;
mod run;
mod test;
mod work;

use cenote_policy::PolicyName;
use cenote_policy::policies::Patch;
use cenote_runtime::Runtime;
use serde::Serialize;

use crate::Study;
use crate::bench::{Progress, run_each};
use crate::error::Result;
use run::Loaded;

pub use run::{Held, Panel, Run};
pub use test::{Leaf, Scale, Test};

/// Scale, tests and policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Number of inodes, and cache size.
    pub scale: Scale,
    /// Tests to run.
    pub tests: Vec<Test>,
    /// Policies; the first is the baseline.
    pub policies: Vec<PolicyName>,
}

/// Results of all runs.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// As requested.
    #[serde(flatten)]
    pub scale: Scale,
    /// By test, then by policy.
    pub runs: Vec<Run>,
}

/// Default policies: the one before the patches comes first.
pub fn policies() -> Vec<PolicyName> {
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

impl Study for Request {
    type Answer = Answer;

    async fn run(self, rt: &Runtime, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Answer> {
        let Request { scale, tests, policies } = self;
        let pairs = tests.iter().flat_map(|test| policies.iter().map(move |policy| (*test, *policy)));
        let loads: Vec<Loaded> = pairs.map(|(test, policy)| Loaded { test, policy, scale }).collect();
        Ok(Answer { scale, runs: run_each(rt, &loads, progress).await? })
    }
}
