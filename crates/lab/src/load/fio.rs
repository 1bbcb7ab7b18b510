//! Runs the same jobs on the real fio and converts its output to the same [`Outcome`].
//!
//! ```text
//! Jobs ──> job file (to_fio) ──> fio ──┬─> JSON: totals, latency histograms ──┐
//!                                      └─> logs: averages second by second ───┴─> worker streams ──> Lines
//! ```
//!
//! fio is never given `group_reporting`, which would sum all jobs that run together. Workers are summed here,
//! as for the engine.
//!
//! Two figures are coarser than the engine's: latencies are in fio's buckets (up to 1.6 % wide), and the
//! longest latency of each second is unknown; the mean is shown instead, with a note.

mod log;
mod report;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::load::control::Control;
use crate::load::engine::WorkFiles;
use crate::load::engine::lines::Lines;
use crate::load::job::Jobs;
use crate::load::measurement::{Outcome, Tool};
use crate::load::program;
use crate::load::target::Scratch;
use crate::{LabError, Result};
use report::{Report, failed};

/// Runs `jobs` at `place` with fio.
///
/// # Errors
/// fio is not installed, fails, or prints unexpected output; a job names a file outside the place; or
/// `control` requested a stop.
pub fn run(jobs: &Jobs, place: &WorkFiles, control: &Control) -> Result<Outcome> {
    let folder = match place {
        WorkFiles::Folder(folder) => folder.clone(),
        WorkFiles::File(_) => std::env::temp_dir(),
    };
    let fio = program::find(&["fio"])
        .ok_or_else(|| failed("is not installed: install it (apt install fio), or omit --real"))?;
    let scratch = Scratch::new(&folder)?;
    let text = job_file(jobs, place)?;
    let [file, output, logs] = ["job.fio", "output.json", "log"].map(|name| scratch.path().join(name));
    fs::write(&file, for_us(&text, &logs)).map_err(LabError::io(file.display().to_string()))?;
    let began_unix_ms = unix_ms();
    let mut command = Command::new(fio);
    command.arg("--output-format=json+").arg(&file).current_dir(&folder);
    program::run(&mut command, &output, control)?;
    let report = Report::read(&output)?;
    let workers = workers(jobs);
    let seconds = log::read_all(&logs, &workers, began_unix_ms)?;
    let cpu = report.cpu();
    let tool = Tool { name: "fio".into(), version: report.version(), command: Some(by_hand(&text)) };
    let mut lines = Lines::new(jobs);
    for ((index, number), (done, seconds)) in
        workers.into_iter().zip(report.into_workers()?.into_iter().zip(seconds))
    {
        lines.add(index, number, done.into_streams(&jobs.0[index], seconds));
    }
    let notes =
        vec!["fio does not report the longest latency of each second; the mean is shown instead".to_owned()];
    Ok(Outcome { tool, cpu: Some(cpu), streams: lines.into_streams(), others: Vec::new(), notes })
}

/// (job, worker) pairs in fio's numbering order.
fn workers(jobs: &Jobs) -> Vec<(usize, u32)> {
    let of_job = |(index, job): (usize, &crate::load::job::Job)| {
        (0..job.workers.max(1)).map(move |number| (index, number))
    };
    jobs.0.iter().enumerate().flat_map(of_job).collect()
}

/// Job file, with files at the place, and workers separate.
fn job_file(jobs: &Jobs, place: &WorkFiles) -> Result<String> {
    let mut jobs = jobs.clone();
    for job in &mut jobs.0 {
        job.group = false;
        let path = place.path(job, 0)?;
        match place {
            WorkFiles::File(_) => job.filename = Some(path),
            WorkFiles::Folder(folder) if job.filename.is_some() => {
                job.filename = path.strip_prefix(folder).ok().map(Path::to_owned);
            }
            WorkFiles::Folder(_) => {}
        }
    }
    let global = match place {
        WorkFiles::Folder(folder) => format!("[global]\ndirectory={}\n\n", escaped(folder)),
        WorkFiles::File(_) => String::new(),
    };
    Ok(global + &jobs.to_fio()?)
}

/// fio separates names with colons, so escape them.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(':', "\\:")
}

/// Adds logs, and threads for workers: processes would survive if fio is killed.
fn for_us(text: &str, logs: &Path) -> String {
    let logs = escaped(logs);
    let options = ["thread", "log_avg_msec=1000", "log_unix_epoch=1"];
    let logs = ["bw", "iops", "lat"].map(|kind| format!("write_{kind}_log={logs}"));
    format!("[global]\n{}\n{}\n\n{text}", options.join("\n"), logs.join("\n"))
}

fn by_hand(text: &str) -> String {
    format!("fio --output-format=json+ - <<'END'\n{}\nEND", text.trim_end())
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests;
