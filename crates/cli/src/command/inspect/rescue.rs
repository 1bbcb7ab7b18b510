//! `cenote rescue`: copies out everything that is still readable and lists the rest.

use std::path::{Path, PathBuf};

use cenote_control::text::counted_as;
use cenote_inspect::rescue::{DatasetState, Planned, Report, Rescue as Engine, RescueOptions};
use cenote_shown::inspect::rescue;
use clap::Args;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, bytes_line, raise_file_limit, unless_interrupted, watch};

/// `cenote rescue`
#[derive(Debug, Args)]
#[command(after_help = "The destination gets POOL/DATASET/..., snapshots as DATASET@SNAPSHOT, volumes as \
    VOLUME.img, and rescue-report.tsv with a row for everything that is missing or differs from the pool.\n\n\
    Example: cenote rescue tank ./saved")]
pub struct Rescue {
    /// Rescue snapshots too, each into its own folder
    #[arg(long)]
    pub snapshots: bool,
    /// Only these datasets and all below them; repeatable [default: the whole pool]
    #[arg(long, value_name = "DATASET")]
    pub dataset: Vec<String>,
    /// Number of older txgs to try where the newest tree is broken
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub back: usize,
    /// Contents only: no owners, modes, times, xattrs, ACLs
    #[arg(long)]
    pub no_metadata: bool,
    /// Continue an earlier rescue: keep complete files; retry lost files and those from an older txg
    #[arg(long)]
    pub resume: bool,
    /// Report both checksums of blocks that fail verification
    #[arg(short, long)]
    pub verbose: bool,
    /// Only list the datasets that can be copied, with the txg of each
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Show progress even if standard error is not a terminal
    #[arg(long)]
    pub progress: bool,
    /// Pool
    pub pool: String,
    /// An empty or new folder
    #[arg(required_unless_present = "dry_run")]
    pub destination: Option<PathBuf>,
}

impl Rescue {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let found = session.find_pool(&self.pool).await?;
        let options = RescueOptions {
            import: session.import_options(),
            snapshots: self.snapshots,
            datasets: self.dataset.clone(),
            back: self.back,
            metadata: !self.no_metadata,
        };
        let mut engine = Engine::new(session.runtime(), &found, options);
        let plan = engine.plan().await?;
        let Some(destination) = self.destination.as_ref().filter(|_| !self.dry_run) else {
            session.show(|| rescue::plan(&plan), || rescue::plan_json(&plan))?;
            let is_damaged =
                |planned: &Planned| planned.newest_failed.is_some() || planned.inferred.is_some();
            let damaged = plan.iter().any(is_damaged);
            return Ok(if damaged { Outcome::Damaged } else { Outcome::Done });
        };
        let report = self.prepare(destination, session.json())?;
        raise_file_limit();
        let progress = bytes_line(expected_bytes(&plan), self.progress);
        let counters = engine.counters();
        let work = engine.run(&plan, destination, &report, |planned| progress.message(&planned.name));
        let work = async {
            let done = watch(session.runtime(), work, |_| progress.set(counters.copied().bytes)).await;
            progress.finish();
            Ok(done?)
        };
        let left = || {
            let files = counted_as(counters.copied().files, "file was", "files were");
            format!("{files} copied; continue with --resume")
        };
        let summary = unless_interrupted(work, left).await?;
        let outcome = if summary.is_damaged() { Outcome::Damaged } else { Outcome::Done };
        let text = || rescue::text(&summary, &plan, &report.path().display().to_string());
        Ok(outcome.printed(session.show(text, || rescue::json(&summary))))
    }

    /// Creates the destination and opens its report. A folder with other contents is refused.
    fn prepare(&self, destination: &Path, json: bool) -> Result<Report, CliError> {
        let shown = destination.display().to_string();
        std::fs::create_dir_all(destination).map_err(CliError::io(shown.clone()))?;
        let mut entries = std::fs::read_dir(destination).map_err(CliError::io(shown.clone()))?;
        let is_empty = entries.next().is_none();
        if !self.resume && !is_empty {
            return Err(CliError::Usage(format!(
                "{shown} is not empty; name a new folder, or continue an earlier rescue with --resume"
            )));
        }
        if !is_empty && !Report::is_in(destination) {
            return Err(CliError::Usage(format!(
                "{shown} has no report of an earlier rescue, so its files can't be trusted as complete; \
                 name a new folder"
            )));
        }
        Ok(Report::open(destination, json, self.verbose)?)
    }
}

/// The bytes referenced by the datasets. Snapshots share most of them, so this is an upper bound of the
/// copied bytes.
fn expected_bytes(plan: &[Planned]) -> u64 {
    let bytes = |planned: &Planned| match planned.state {
        DatasetState::Opens { referenced_bytes, .. } => referenced_bytes,
        DatasetState::Locked(_) | DatasetState::Lost(_) => 0,
    };
    plan.iter().map(bytes).fold(0, u64::saturating_add)
}
