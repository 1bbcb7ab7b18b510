//! Scans all targets and writes the results in the requested format.

use std::fs::File;
use std::io::{self, Write};

use cenote_fs::manifest::{MANIFEST_HEADER, snapshot_root_ino};
use cenote_inspect::InspectError;
use cenote_inspect::scan::parquet::{self, ParquetSink};
use cenote_inspect::scan::sort::Sorter;
use cenote_inspect::scan::summary::{Summary, SummaryOptions};
use cenote_inspect::scan::{Jsonl, RowBatch, ScanNeeds, ScanProblem, ScanTarget, Tsv, manifest, scan};

use super::{Format, Scan, Separator, summary};
use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::render::quoted;
use crate::session::{Progress, Session, unless_interrupted};
use crate::streams::{local, streams};

/// How many problems are listed; all are counted.
const MOST_PROBLEMS: usize = 100;

/// A running scan.
struct Work<'a> {
    session: &'a Session,
    options: &'a Scan,
    targets: Vec<ScanTarget>,
    report: Report,
}

/// Scans every target and writes the result.
pub async fn write(session: &Session, options: &Scan, targets: Vec<ScanTarget>) -> Result<Outcome, CliError> {
    let mut work = Work { session, options, targets, report: Report::new(options) };
    let result = match &options.output {
        None => work.write().await,
        Some(path) => {
            // An existing file may hold someone's data: it stays.
            if path.symlink_metadata().is_ok() {
                return Err(CliError::Usage(format!("{} exists already: name a new file", path.display())));
            }
            let done = unless_interrupted(work.write(), || "nothing was left behind".into()).await;
            if done.is_err() {
                // Half a list would be mistaken for a complete one.
                let _ = std::fs::remove_file(path);
            }
            done
        }
    };
    work.report.progress.finish();
    match result {
        // A reader that has seen enough does not turn damage into success.
        Err(error) if error.is_broken_pipe() => {}
        other => other?,
    }
    Ok(work.report.outcome())
}

/// How errors name the output.
fn output_name(options: &Scan) -> String {
    options.output.as_ref().map_or_else(|| "standard output".into(), |path| path.display().to_string())
}

/// The output: the file named by `--output`, which must not exist, or standard output.
fn open(options: &Scan) -> Result<Box<dyn Write + Send>, CliError> {
    match &options.output {
        None => Ok(Box::new(io::BufWriter::with_capacity(1 << 18, streams().stdout.clone()))),
        Some(path) => {
            let file = File::create_new(local(path)).map_err(CliError::io(path.display().to_string()))?;
            Ok(Box::new(io::BufWriter::with_capacity(1 << 20, file)))
        }
    }
}

/// Counts files and problems during a scan, and reports the problems at its end.
struct Report {
    progress: Progress,
    problems: Vec<String>,
    count: u64,
    damaged: bool,
}

impl Report {
    fn new(options: &Scan) -> Report {
        // A moving progress line among rows on the same terminal helps nobody.
        let rows_on_terminal = options.output.is_none()
            && options.format != Format::Summary
            && streams().stdout_screen().is_some();
        let progress = if rows_on_terminal && !options.progress {
            Progress::hidden()
        } else {
            Progress::files(options.progress)
        };
        Report { progress, problems: Vec::new(), count: 0, damaged: false }
    }

    fn add(&mut self, target: &str, problems: &[ScanProblem], rows: usize) {
        self.progress.add(rows as u64);
        self.count += problems.len() as u64;
        for problem in problems {
            self.damaged |= problem.error.is_damage();
            if self.problems.len() < MOST_PROBLEMS {
                let path = quoted(&[target.as_bytes(), b":/", &problem.path[..]].concat());
                self.problems.push(format!("{path} (object {}): {}", problem.object, problem.error));
            }
        }
    }

    fn outcome(&self) -> Outcome {
        for problem in &self.problems {
            say!("{problem}");
        }
        if self.count > self.problems.len() as u64 {
            say!("and {} more", self.count - self.problems.len() as u64);
        }
        match (self.count, self.damaged) {
            (0, _) => Outcome::Done,
            (_, false) => Outcome::Failed,
            (_, true) => Outcome::Damaged,
        }
    }
}

fn name_of(target: &ScanTarget) -> String {
    match &target.snapshot {
        Some(snapshot) => format!("{}@{snapshot}", target.dataset),
        None => target.dataset.clone(),
    }
}

/// Scans `target`, keeps the report, and passes rendered batches to `sink`. Damage goes into the report.
async fn run<T: Send + 'static>(
    target: &ScanTarget,
    report: &mut Report,
    needs: ScanNeeds,
    render: impl Fn(&RowBatch) -> T + Send + Sync + 'static,
    mut sink: impl FnMut(T) -> Result<(), InspectError>,
) -> Result<(), CliError> {
    let name = name_of(target);
    report.progress.message(name.clone());
    let render = move |batch: &RowBatch| (render(batch), batch.problems.clone(), batch.rows.len());
    let take = |(rendered, problems, rows): (T, Vec<ScanProblem>, usize)| {
        report.add(&name, &problems, rows);
        sink(rendered)
    };
    match scan(target, needs, render, take).await {
        // The output accepts nothing more.
        Err(error @ InspectError::Io { .. }) => Err(error.into()),
        // An unreadable root loses only its own dataset.
        Err(error) => {
            let problem = ScanProblem { path: Vec::new(), object: target.filesystem.root(), error };
            report.add(&name, &[problem], 0);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

impl Work<'_> {
    async fn write(&mut self) -> Result<(), CliError> {
        match self.options.format {
            Format::Summary => self.summary().await,
            Format::Tsv => {
                let end = match self.options.separator {
                    Separator::Newline => b'\n',
                    Separator::Nul => 0,
                    Separator::Fs => 0x1c,
                };
                let columns = self.options.columns()?;
                let needs = columns.needs();
                let tsv = Tsv::new(columns, end);
                let header = if self.options.no_header { Vec::new() } else { tsv.header() };
                self.rows(needs, header, move |batch| tsv.render(batch)).await
            }
            Format::Jsonl => {
                let columns = self.options.columns()?;
                let needs = columns.needs();
                let jsonl = Jsonl::new(columns);
                self.rows(needs, Vec::new(), move |batch| jsonl.render(batch)).await
            }
            Format::Manifest => self.manifest().await,
            Format::Parquet => self.parquet().await,
        }
    }

    async fn rows(
        &mut self,
        needs: ScanNeeds,
        header: Vec<u8>,
        render: impl Fn(&RowBatch) -> Vec<u8> + Clone + Send + Sync + 'static,
    ) -> Result<(), CliError> {
        let name = output_name(self.options);
        let mut out = open(self.options)?;
        out.write_all(&header).map_err(CliError::io(&name))?;
        for target in &self.targets {
            let sink = |text: Vec<u8>| out.write_all(&text).map_err(InspectError::io(&name));
            run(target, &mut self.report, needs, render.clone(), sink).await?;
        }
        out.flush().map_err(CliError::io(name))
    }

    async fn manifest(&mut self) -> Result<(), CliError> {
        let name = output_name(self.options);
        let needs = ScanNeeds { targets: true, xattrs: true, hashes: true };
        let mut out = open(self.options)?;
        for target in &self.targets {
            if self.targets.len() > 1 {
                writeln!(out, "# {}", name_of(target)).map_err(CliError::io(&name))?;
            }
            out.write_all(MANIFEST_HEADER.as_bytes()).map_err(CliError::io(&name))?;
            let mut sorter = Sorter::default();
            let dataset = target.filesystem.objset().dataset_id();
            let root_ino = target.snapshot.as_ref().map(|_| snapshot_root_ino(dataset));
            let render = move |batch: &RowBatch| manifest::render(batch, root_ino);
            let sink = |lines: Vec<(Vec<u8>, String)>| {
                let push = |(key, line): &(Vec<u8>, String)| sorter.push(key, line.as_bytes());
                lines.iter().try_for_each(push).map_err(InspectError::io("temporary file"))
            };
            run(target, &mut self.report, needs, render, sink).await?;
            sorter.finish(|line| out.write_all(line)).map_err(CliError::io(&name))?;
        }
        out.flush().map_err(CliError::io(name))
    }

    async fn parquet(&mut self) -> Result<(), CliError> {
        if self.options.output.is_none() && streams().stdout_screen().is_some() {
            return Err(CliError::Usage("--format parquet: name a file with --output".into()));
        }
        let columns = self.options.columns()?;
        let needs = columns.needs();
        let mut sink = ParquetSink::new(open(self.options)?, &columns)?;
        for target in &self.targets {
            let columns = columns.clone();
            let render = move |batch: &RowBatch| parquet::render(batch, &columns);
            run(target, &mut self.report, needs, render, |parts| sink.add(parts)).await?;
        }
        Ok(sink.finish()?)
    }

    async fn summary(&mut self) -> Result<(), CliError> {
        let now_s = (self.session.runtime().unix_time_ns() / 1_000_000_000).cast_signed();
        let options = SummaryOptions { depth: self.options.top, now_s };
        let needs = ScanNeeds { hashes: self.options.hash, ..ScanNeeds::default() };
        let mut total = Summary::default();
        for target in &self.targets {
            let sink = |part| {
                total.merge(part);
                Ok(())
            };
            run(target, &mut self.report, needs, move |batch| Summary::of(batch, options), sink).await?;
        }
        let text = match self.session.json() {
            true => summary::json(&total)?,
            false => summary::text(&total, self.targets.len()),
        };
        let mut out = open(self.options)?;
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(CliError::io(output_name(self.options)))
    }
}
