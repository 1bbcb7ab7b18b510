//! `cenote rescue`: copies out everything that can still be read, with a list of what can't.

use std::path::PathBuf;

use cenote_dataset::DatasetKind;
use cenote_inspect::rescue::{Planned, Report, Rescue as Engine, RescueOptions, State, Summary};
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, nice_bytes};
use crate::session::{Progress, Session, print, print_json, raise_file_limit, unless_interrupted, watch};

/// `cenote rescue`
#[derive(Debug, Args)]
#[command(
    after_help = "Example: cenote rescue -d /mnt/images tank ./saved\n\nAt the destination: POOL/DATASET/..., snapshots as \
        DATASET@SNAPSHOT, volumes as VOLUME.img, and rescue-report.tsv with a row for everything that is not there as it was \
        on the pool."
)]
pub struct Rescue {
    /// Snapshots too, each into a folder of its own
    #[arg(long)]
    pub snapshots: bool,
    /// Only these datasets and all below them; repeatable [default: the whole pool]
    #[arg(long, value_name = "DATASET")]
    pub dataset: Vec<String>,
    /// How many older transaction groups to try where the newest tree is broken
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub back: usize,
    /// Contents only: no owners, modes, times, xattrs, ACLs
    #[arg(long)]
    pub no_metadata: bool,
    /// Go on with an earlier rescue: what is at the destination already stays
    #[arg(long)]
    pub resume: bool,
    /// Only say which datasets could be copied, and from which transaction group
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Progress even if standard error is no terminal
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
            show_plan(session, &plan)?;
            let damaged = plan.iter().any(|planned| planned.newest_failed.is_some());
            return Ok(if damaged { Outcome::Damaged } else { Outcome::Done });
        };
        self.prepare(destination)?;
        let mut report = Report::create(destination, session.json())?;
        raise_file_limit();
        let progress = Progress::bytes(expected_bytes(&plan), self.progress);
        let counters = engine.counters();
        let work = engine.run(&plan, destination, &mut report, |planned| progress.message(&planned.name));
        let work = async {
            let done = watch(session.runtime(), work, |_| progress.set(counters.copied().bytes)).await;
            progress.finish();
            Ok(done?)
        };
        let left = || {
            let files = counters.copied().files;
            format!("{files} files were copied, each of them whole: go on with --resume")
        };
        let summary = unless_interrupted(work, left).await?;
        let text = describe(&summary, &plan, &report.path().display().to_string());
        match session.json() {
            true => print_json(&as_json(&summary))?,
            false => print(text)?,
        }
        Ok(if summary.is_damaged() { Outcome::Damaged } else { Outcome::Done })
    }

    /// Makes the destination, or refuses one that holds something else.
    fn prepare(&self, destination: &PathBuf) -> Result<(), CliError> {
        let shown = destination.display().to_string();
        std::fs::create_dir_all(destination).map_err(CliError::io(shown.clone()))?;
        let mut entries = std::fs::read_dir(destination).map_err(CliError::io(shown.clone()))?;
        if !self.resume && entries.next().is_some() {
            let text = format!(
                "{shown} is not empty; name a new folder, or go on with an earlier rescue by --resume"
            );
            return Err(CliError::Usage(text));
        }
        Ok(())
    }
}

/// What the datasets refer to; snapshots share most of it, so this is more than will be copied once.
fn expected_bytes(plan: &[Planned]) -> u64 {
    let bytes = |planned: &Planned| match planned.state {
        State::Opens { referenced_bytes, .. } => referenced_bytes,
        State::Locked(_) | State::Lost(_) => 0,
    };
    plan.iter().map(bytes).fold(0, u64::saturating_add)
}

fn show_plan(session: &Session, plan: &[Planned]) -> Result<(), CliError> {
    let mut table = Table::new([
        ("NAME", Align::Left),
        ("TYPE", Align::Left),
        ("REFER", Align::Right),
        ("TXG", Align::Right),
        ("", Align::Left),
    ]);
    let mut rows = Vec::new();
    for planned in plan {
        let (kind, bytes, txg, note) = match &planned.state {
            State::Opens { txg, kind, referenced_bytes } => {
                let note = planned
                    .newest_failed
                    .as_ref()
                    .map(|why| format!("an older group, since the newest: {why}"));
                (*kind, Some(*referenced_bytes), Some(txg.0), note)
            }
            State::Locked(why) => (None, None, None, Some(format!("locked: {why}"))),
            State::Lost(why) => (None, None, None, Some(format!("lost: {why}"))),
        };
        let kind = kind.map(|kind: DatasetKind| kind.to_string());
        rows.push(serde_json::json!({"name": planned.name, "type": kind, "referenced": bytes, "txg": txg, "note": note}));
        table.row([
            planned.name.clone(),
            kind.unwrap_or_else(|| "-".into()),
            bytes.map_or("-".into(), nice_bytes),
            txg.map_or("-".into(), |txg| txg.to_string()),
            note.unwrap_or_default(),
        ]);
    }
    if session.json() { print_json(&rows) } else { print(table.aligned()) }
}

fn describe(summary: &Summary, plan: &[Planned], report: &str) -> String {
    let copied = summary.copied;
    let mut lines = vec![format!(
        "copied {} datasets: {} files, {} folders, {} links and others, {}",
        plan.len() as u64 - summary.datasets_lost - summary.datasets_locked,
        copied.files,
        copied.folders,
        copied.others + copied.hard_links,
        nice_bytes(copied.bytes)
    )];
    for (count, what) in [
        (summary.already_there, "files were there already"),
        (
            summary.datasets_older,
            "datasets came from older transaction groups; what was written since is lost",
        ),
        (summary.recovered, "files or folders came from older transaction groups"),
        (summary.lost, "files or folders are lost, wholly or in part"),
        (summary.datasets_lost, "datasets are lost"),
        (summary.datasets_locked, "datasets are locked: give their keys with --key"),
        (summary.undressed, "owners, modes, times and the like could not be kept"),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    lines.push(format!("report: {report}\n"));
    lines.join("\n")
}

fn as_json(summary: &Summary) -> serde_json::Value {
    let copied = summary.copied;
    serde_json::json!({
        "files": copied.files,
        "folders": copied.folders,
        "hard_links": copied.hard_links,
        "others": copied.others,
        "bytes": copied.bytes,
        "already_there": summary.already_there,
        "recovered": summary.recovered,
        "lost": summary.lost,
        "datasets_lost": summary.datasets_lost,
        "datasets_older": summary.datasets_older,
        "datasets_locked": summary.datasets_locked,
        "not_kept": summary.undressed,
    })
}
