//! `cenote lab arc`: see [`cenote_study::arc`].

use std::path::PathBuf;

use cenote_policy::PolicyName;
use cenote_study::arc::{Request, Scale, Test, policies};
use clap::Args;

use super::study;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote lab arc`
#[derive(Debug, Args)]
#[command(
    after_help = "Policies: those of `cenote trace replay`, and zol-0.6.2+growth, +bounds, +dampener, \
        +meta-used, +meta-first, +split and +six: ZFS on Linux 0.6.2 with one of the patches, or with all \
        six.\n\n\
        Example: cenote lab arc --quick --out arc"
)]
pub struct Arc {
    /// Use a tenth of the inodes and of the cache
    #[arg(long)]
    pub quick: bool,
    /// Inodes per test [default: 40000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub inodes: Option<u64>,
    /// Size of the cache [default: 8M]
    #[arg(long, value_name = "SIZE", value_parser = super::run::size)]
    pub cache_size: Option<u64>,
    /// Policies, comma-separated [default: zol-0.6.2 alone and with each patch, zol-0.6.3, and others]
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

impl Arc {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let part = if self.quick { 10 } else { 1 };
        let scale = Scale {
            inodes: self.inodes.unwrap_or(INODES / part),
            cache_bytes: self.cache_size.unwrap_or(CACHE_BYTES / part),
        };
        let policies = if self.policy.is_empty() { policies() } else { self.policy };
        let is_wanted = |test: &Test| self.test.is_empty() || self.test.contains(&test.number());
        let tests = Test::ALL.into_iter().filter(is_wanted).collect();
        study::run(session, Request { scale, tests, policies }, self.out).await
    }
}
