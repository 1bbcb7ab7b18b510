//! `job_run engine|fio JOBFILE FILE-OR-FOLDER`: runs a job file on the lab's engine or on the real
//! fio, and prints the outcome as JSON.
//!
//! `bench/engine` uses it to compare the two. It overwrites the named file or device.

#![allow(clippy::print_stdout, reason = "a program that only prints")]

use std::error::Error;
use std::path::PathBuf;

use cenote_lab::control::Control;
use cenote_lab::engine::{self, WorkFiles};
use cenote_lab::fio;
use cenote_lab::job::Jobs;
use cenote_lab::measurement::Outcome;
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tool, file, place] = arguments.as_slice() else {
        return Err("job_run engine|fio JOBFILE FILE-OR-FOLDER".into());
    };
    let jobs = Jobs::parse(&std::fs::read_to_string(file)?, file)?;
    let place = match PathBuf::from(place) {
        path if path.is_dir() => WorkFiles::Folder(path),
        path => WorkFiles::File(path),
    };
    let outcome = match tool.as_str() {
        "engine" => engine::run(&jobs, &place, &Control::default())?,
        "fio" => fio::run(&jobs, &place, &Control::default())?,
        other => return Err(format!("{other}: must be `engine` or `fio`").into()),
    };
    println!("{}", shown(&outcome));
    Ok(())
}

/// Figures by name, and the processor time for a million operations, in seconds.
fn shown(outcome: &Outcome) -> Value {
    let operations: u64 = outcome.streams.iter().map(|stream| stream.operations).sum();
    let mut figures: serde_json::Map<_, _> =
        outcome.figures().into_iter().map(|figure| (figure.name, json!(figure.value))).collect();
    if let Some(cpu) = outcome.cpu.filter(|_| operations > 0) {
        figures.insert("cpu_s_per_million".into(), json!(cpu.total_ns() as f64 / operations as f64 / 1e3));
    }
    json!({ "tool": outcome.tool, "streams": outcome.streams, "figures": figures, "notes": outcome.notes })
}
