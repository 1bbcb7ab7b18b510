//! `zdb`, OpenZFS's own checker, asked about pools that tests made.
//!
//! Idea: at its end, `zdb` frees its ARC in thousands of rounds, each with a read of `/dev/urandom` and a
//! yield: four seconds of processor time for an empty pool, two thirds of the time of whole suites. So a
//! library with an empty `kernel_fini` (the function that frees) is compiled, and loaded before libzpool.
//! Output and exit status stay the same; without a C compiler, only the time differs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Runs `zdb -e -p FOLDER WORDS`; `None`, with a message, if not installed.
///
/// # Panics
/// It is not installed although `CENOTE_REQUIRE_ZDB` is set.
pub fn zdb<W: AsRef<OsStr>>(folder: &Path, words: &[W]) -> Option<Output> {
    static AT_EXIT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let mut zdb = Command::new("zdb");
    if let Some(library) = AT_EXIT.get_or_init(without_freeing) {
        zdb.env("LD_PRELOAD", library);
    }
    match zdb.args(["-e", "-p"]).arg(folder).args(words).output() {
        Ok(output) => Some(output),
        Err(error) => {
            assert!(std::env::var_os("CENOTE_REQUIRE_ZDB").is_none(), "zdb: {error}");
            eprintln!("zdb is not installed: not compared");
            None
        }
    }
}

/// Whether `zdb -bcc` reads every block and finds as much allocated as referenced; if not, its output.
///
/// # Errors
/// It found a difference.
pub fn zdb_verdict(folder: &Path, pool: &str) -> Result<(), String> {
    let Some(output) = zdb(folder, &["-bcc", pool]) else { return Ok(()) };
    let said = all_said(&output);
    if output.status.success() && said.contains("No leaks") { Ok(()) } else { Err(said) }
}

/// [`zdb_verdict`] as an assertion.
///
/// # Panics
/// It found a difference.
pub fn zdb_finds_nothing(folder: &Path, pool: &str) {
    if let Err(said) = zdb_verdict(folder, pool) {
        panic!("zdb -bcc {pool}: {said}");
    }
}

/// Everything a program printed.
pub fn all_said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// The library, beside the running test; it appears only when complete, as many tests may make it at once.
fn without_freeing() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?;
    let (source, library) = (beside.with_file_name("zdb-exit.c"), beside.with_file_name("zdb-exit.so"));
    if library.is_file() {
        return Some(library);
    }
    let unfinished = beside.with_file_name(format!("zdb-exit.{}.so", std::process::id()));
    std::fs::write(&source, "void kernel_fini(void) {}\n").ok()?;
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&unfinished).arg(&source).output();
    made.ok().filter(|made| made.status.success())?;
    std::fs::rename(&unfinished, &library).ok()?;
    Some(library)
}
