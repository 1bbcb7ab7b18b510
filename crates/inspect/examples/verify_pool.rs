//! Verifies a pool and prints the findings: `verify_pool FOLDER [POOL] [--json] [--metadata] [--threads N]`.
//!
//! Replaces `cenote verify` in the benchmark `bench/verify`.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that only prints")]

use cenote_dataset::{ImportOptions, import};
use cenote_inspect::verify::{VerifyOptions, VerifyReport, verify};
use cenote_pool::discover;
use cenote_runtime::Runtime;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let mut plain = arguments.iter().filter(|argument| !argument.starts_with("--"));
    let Some(folder) = plain.next() else {
        eprintln!("usage: verify_pool FOLDER [POOL] [--json] [--metadata]");
        return ExitCode::from(2);
    };
    let runtime = Runtime::real(None);
    let name = plain.next().map(String::as_str);
    match runtime.block_on(run(&runtime, folder.into(), name, !flag("--metadata"))) {
        Ok(report) if flag("--json") => println!("{}", serde_json::json!(report)),
        Ok(report) => print(&report),
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

async fn run(
    runtime: &Runtime,
    folder: PathBuf,
    name: Option<&str>,
    data: bool,
) -> Result<VerifyReport, String> {
    let found = discover(runtime, &[folder]).await;
    let pool = found.pools.iter().find(|pool| name.is_none_or(|name| pool.name() == name));
    let pool = pool.ok_or("no such pool there")?;
    let mos = import(runtime, pool, &ImportOptions::default()).await.map_err(|e| e.to_string())?;
    let options = VerifyOptions { data, ..VerifyOptions::default() };
    verify(&mos, options, |_| {}).await.map_err(|e| e.to_string())
}

fn print(report: &VerifyReport) {
    let total = &report.counts.total;
    println!("pool {} txg {}: complete {}", report.pool, report.txg, report.complete);
    println!("bp count {} ganged {}", total.count, total.ganged);
    println!(
        "logical {} physical {} allocated {}",
        total.logical_bytes, total.physical_bytes, total.allocated_bytes
    );
    println!("deduped {:?} cloned {:?}", report.counts.deduped, report.counts.cloned);
    println!("embedded {:?} dittoed on same vdev {}", report.counts.embedded, total.ditto_same_vdev);
    println!("space {:?}", report.space);
    println!("verified {} blocks, {} bytes", report.verified_blocks, report.verified_bytes);
    println!("lost {} repairable {}", report.lost_blocks, report.repairable_blocks);
    report.devices.iter().for_each(|device| println!("{device:?}"));
    report.findings.iter().for_each(|finding| println!("{:?}: {finding}", finding.severity()));
    let seconds = report.elapsed_ns as f64 / 1e9;
    println!("{seconds:.3} s, {:.0} MB/s", report.verified_bytes as f64 / 1e6 / seconds);
}
