//! `cenote rescue`: copies out everything that is still readable and lists the rest.

use std::path::{Path, PathBuf};

use cenote_dataset::DatasetKind;
use cenote_inspect::rescue::{DatasetState, Planned, Report, Rescue as Engine, RescueOptions, Summary};
use clap::Args;

use crate::outcome::{CliError, Outcome, Printed};
use crate::render::{Align, Table, counted, counted_as, nice_bytes};
use crate::session::{Progress, Session, print, print_json, raise_file_limit, unless_interrupted, watch};

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
            show_plan(session, &plan)?;
            let is_damaged =
                |planned: &Planned| planned.newest_failed.is_some() || planned.inferred.is_some();
            let damaged = plan.iter().any(is_damaged);
            return Ok(if damaged { Outcome::Damaged } else { Outcome::Done });
        };
        let report = self.prepare(destination, session.json())?;
        raise_file_limit();
        let progress = Progress::bytes(expected_bytes(&plan), self.progress);
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
        let text = describe(&summary, &plan, &report.path().display().to_string());
        let outcome = if summary.is_damaged() { Outcome::Damaged } else { Outcome::Done };
        Ok(outcome.printed(match session.json() {
            true => print_json(&as_json(&summary)),
            false => print(text),
        }))
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
            DatasetState::Opens { txg, kind, referenced_bytes } => {
                let older = planned.newest_failed.as_ref().map(|why| format!("an older txg: {why}"));
                let note = older.or_else(|| planned.inferred.clone());
                (*kind, Some(*referenced_bytes), Some(txg.0), note)
            }
            DatasetState::Locked(why) => (None, None, None, Some(format!("locked: {why}"))),
            DatasetState::Lost(why) => (None, None, None, Some(format!("lost: {why}"))),
        };
        let kind = kind.map(|kind: DatasetKind| kind.to_string());
        let name = &planned.name;
        rows.push(
            serde_json::json!({"name": name, "type": kind, "referenced": bytes, "txg": txg, "note": note}),
        );
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

/// Counts of rescued files, then losses, worst first, then the path of their list.
fn describe(summary: &Summary, plan: &[Planned], report: &str) -> String {
    let (copied, missing) = (summary.copied, summary.missing);
    let opened =
        plan.iter().filter(|planned| matches!(planned.state, DatasetState::Opens { .. })).count() as u64;
    let verdict = match summary.is_damaged() {
        true => "not everything could be rescued",
        false if missing.datasets_locked > 0 => "everything except the locked datasets was rescued",
        false => "everything is rescued",
    };
    let links = copied.others + copied.hard_links;
    let mut lines = vec![
        verdict.to_owned(),
        format!(
            "  copied: {} of {}, {}, {}",
            counted(copied.files, "file"),
            counted(opened, "dataset"),
            counted(copied.folders, "folder"),
            counted_as(links, "link or special file", "links and special files"),
        ) + &format!(", {}", nice_bytes(copied.bytes)),
    ];
    for (count, one, many) in [
        (missing.datasets_lost, "dataset is lost", "datasets are lost"),
        (
            missing.lost,
            "file or folder is lost entirely or in part",
            "files or folders are lost entirely or in part",
        ),
        (
            missing.datasets_older,
            "dataset is from an older txg; later changes are lost",
            "datasets are from older txgs; later changes are lost",
        ),
        (missing.recovered, "file or folder is from an older txg", "files or folders are from older txgs"),
        (
            missing.datasets_inferred,
            "dataset was read without some of its tables",
            "datasets were read without some of their tables",
        ),
        (
            missing.datasets_locked,
            "dataset is locked; give its key with --key and continue with --resume",
            "datasets are locked; give their keys with --key and continue with --resume",
        ),
        (
            missing.renamed,
            "name that Linux can't store was replaced",
            "names that Linux can't store were replaced",
        ),
        (
            missing.nodes,
            "device node, fifo or socket could not be made (device nodes need root)",
            "device nodes, fifos or sockets could not be made (device nodes need root)",
        ),
        (
            missing.undressed,
            "owner, mode, time or other attribute could not be set",
            "owners, modes, times or other attributes could not be set",
        ),
        (summary.already_there, "file was already there", "files were already there"),
    ] {
        if count > 0 {
            lines.push(format!("  {}", counted_as(count, one, many)));
        }
    }
    lines.push(format!("report: {report}\n"));
    lines.join("\n")
}

fn as_json(summary: &Summary) -> serde_json::Value {
    let (copied, missing) = (summary.copied, summary.missing);
    serde_json::json!({
        "files": copied.files,
        "folders": copied.folders,
        "hard_links": copied.hard_links,
        "others": copied.others,
        "bytes": copied.bytes,
        "already_there": summary.already_there,
        "recovered": missing.recovered,
        "lost": missing.lost,
        "renamed": missing.renamed,
        "nodes_not_made": missing.nodes,
        "datasets_lost": missing.datasets_lost,
        "datasets_older": missing.datasets_older,
        "datasets_inferred": missing.datasets_inferred,
        "datasets_locked": missing.datasets_locked,
        "not_kept": missing.undressed,
    })
}
