//! Scans all targets and writes the files in the requested format.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use cenote_fs::manifest::{MANIFEST_HEADER, snapshot_root_ino};
use cenote_inspect::InspectError;
use cenote_inspect::scan::parquet::{self, ParquetSink};
use cenote_inspect::scan::sort::Sorter;
use cenote_inspect::scan::summary::{Summary, SummaryOptions};
use cenote_inspect::scan::{
    Columns, Jsonl, RowBatch, ScanNeeds, ScanProblem, ScanTarget, Tsv, manifest, scan,
};
use cenote_runtime::Instant;

use super::{Format, MOST_LEVELS, Scan, Separator};
use crate::caller::CountedFiles;
use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::text::quoted;

/// Problems listed; all are counted.
const MOST_PROBLEMS: usize = 100;
const TELL_INTERVAL: Duration = Duration::from_millis(100);

struct Work<'a> {
    session: &'a Session,
    options: &'a Scan,
    columns: Columns,
    targets: Vec<ScanTarget>,
    report: Report<'a>,
}

pub(super) async fn write(
    session: &Session,
    options: &Scan,
    columns: Columns,
    targets: Vec<ScanTarget>,
) -> Result<(Option<Summary>, Outcome), ControlError> {
    let caller = session.caller();
    let report = Report { session, told: None, problems: Vec::new(), files: 0, count: 0, damaged: false };
    let mut work = Work { session, options, columns, targets, report };
    let result = match options.output {
        None => work.write().await,
        Some(_) => caller.unless_interrupted(work.write(), || "nothing was left behind".into()).await,
    };
    caller.console.counted(None);
    let summary = match result {
        // A reader that has seen enough does not turn damage into success.
        Err(error) if error.is_broken_pipe() => None,
        other => other?,
    };
    Ok((summary, work.report.outcome()))
}

fn output_name(options: &Scan) -> String {
    options.output.clone().unwrap_or_else(|| "standard output".into())
}

/// The output: the request's file, or standard output.
fn open(session: &Session, options: &Scan) -> Result<Box<dyn Write + Send>, ControlError> {
    let caller = session.caller();
    let (file, bytes) = match options.output {
        None => (caller.console.output().map_err(ControlError::io("standard output"))?, 1 << 18),
        Some(_) => (File::from(caller.file(0)?), 1 << 20),
    };
    Ok(Box::new(io::BufWriter::with_capacity(bytes, file)))
}

/// Counts files and problems, and reports the problems at the end.
struct Report<'a> {
    session: &'a Session,
    /// Last report of the file count.
    told: Option<Instant>,
    problems: Vec<String>,
    files: u64,
    count: u64,
    damaged: bool,
}

impl Report<'_> {
    fn add(&mut self, target: &str, problems: &[ScanProblem], rows: usize) {
        self.files += rows as u64;
        let now = self.session.runtime().now();
        if self.told.is_none_or(|told| now.since(told) >= TELL_INTERVAL) {
            self.told = Some(now);
            let console = &self.session.caller().console;
            console.counted(Some(CountedFiles { what: target, files: self.files }));
        }
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
        let caller = self.session.caller();
        self.problems.iter().for_each(|problem| caller.note(problem));
        if self.count > self.problems.len() as u64 {
            caller.note(format!("and {} more", self.count - self.problems.len() as u64));
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

/// Scans `target`, records damage, and passes rendered batches to `sink`.
async fn run<T: Send + 'static>(
    target: &ScanTarget,
    report: &mut Report<'_>,
    needs: ScanNeeds,
    render: impl Fn(&RowBatch) -> T + Send + Sync + 'static,
    mut sink: impl FnMut(T) -> Result<(), InspectError>,
) -> Result<(), ControlError> {
    let name = name_of(target);
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
    async fn write(&mut self) -> Result<Option<Summary>, ControlError> {
        match self.options.format {
            Format::Summary { depth } => return self.summary(depth).await.map(Some),
            Format::Tsv { separator, has_header } => {
                let end = match separator {
                    Separator::Newline => b'\n',
                    Separator::Nul => 0,
                    Separator::Fs => 0x1c,
                };
                let needs = self.columns.needs();
                let tsv = Tsv::new(self.columns.clone(), end);
                let header = if has_header { tsv.header() } else { Vec::new() };
                self.rows(needs, header, move |batch| tsv.render(batch)).await?;
            }
            Format::Jsonl => {
                let needs = self.columns.needs();
                let jsonl = Jsonl::new(self.columns.clone());
                self.rows(needs, Vec::new(), move |batch| jsonl.render(batch)).await?;
            }
            Format::Manifest => self.manifest().await?,
            Format::Parquet => self.parquet().await?,
        }
        Ok(None)
    }

    async fn rows(
        &mut self,
        needs: ScanNeeds,
        header: Vec<u8>,
        render: impl Fn(&RowBatch) -> Vec<u8> + Clone + Send + Sync + 'static,
    ) -> Result<(), ControlError> {
        let name = output_name(self.options);
        let mut out = open(self.session, self.options)?;
        out.write_all(&header).map_err(ControlError::io(&name))?;
        for target in &self.targets {
            let sink = |text: Vec<u8>| out.write_all(&text).map_err(InspectError::io(&name));
            run(target, &mut self.report, needs, render.clone(), sink).await?;
        }
        out.flush().map_err(ControlError::io(name))
    }

    async fn manifest(&mut self) -> Result<(), ControlError> {
        let name = output_name(self.options);
        let needs = ScanNeeds { targets: true, xattrs: true, hashes: true };
        let mut out = open(self.session, self.options)?;
        for target in &self.targets {
            if self.targets.len() > 1 {
                writeln!(out, "# {}", name_of(target)).map_err(ControlError::io(&name))?;
            }
            out.write_all(MANIFEST_HEADER.as_bytes()).map_err(ControlError::io(&name))?;
            let mut sorter = Sorter::default();
            let dataset = target.filesystem.objset().dataset_id();
            let root_ino = target.snapshot.as_ref().map(|_| snapshot_root_ino(dataset));
            let render = move |batch: &RowBatch| manifest::render(batch, root_ino);
            let sink = |lines: Vec<(Vec<u8>, String)>| {
                let push = |(key, line): &(Vec<u8>, String)| sorter.push(key, line.as_bytes());
                lines.iter().try_for_each(push).map_err(InspectError::io("temporary file"))
            };
            run(target, &mut self.report, needs, render, sink).await?;
            sorter.finish(|line| out.write_all(line)).map_err(ControlError::io(&name))?;
        }
        out.flush().map_err(ControlError::io(name))
    }

    async fn parquet(&mut self) -> Result<(), ControlError> {
        let (columns, needs) = (self.columns.clone(), self.columns.needs());
        let mut sink = ParquetSink::new(open(self.session, self.options)?, &columns)?;
        for target in &self.targets {
            let columns = columns.clone();
            let render = move |batch: &RowBatch| parquet::render(batch, &columns);
            run(target, &mut self.report, needs, render, |parts| sink.add(parts)).await?;
        }
        Ok(sink.finish()?)
    }

    async fn summary(&mut self, depth: u32) -> Result<Summary, ControlError> {
        let now_s = (self.session.runtime().unix_time_ns() / 1_000_000_000).cast_signed();
        let options = SummaryOptions { depth: depth.min(MOST_LEVELS), now_s };
        let needs = ScanNeeds { hashes: self.options.hash, ..ScanNeeds::default() };
        let mut total = Summary::default();
        for target in &self.targets {
            let sink = |part| {
                total.merge(part);
                Ok(())
            };
            run(target, &mut self.report, needs, move |batch| Summary::of(batch, options), sink).await?;
        }
        Ok(total)
    }
}
