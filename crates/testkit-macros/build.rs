//! Expands the macros again when test material appears or disappears.
//!
//! Cargo cannot watch a missing folder. If `../shared` appears later, `cenote_testkit::shared` panics with
//! instructions.
#![allow(clippy::print_stdout, reason = "a build script talks to cargo this way")]

use std::path::Path;

#[path = "src/shared.rs"]
mod shared;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-env-changed=CENOTE_SHARED");
    let golden = shared::workspace().join("golden/pools");
    let pools = shared::folder().map(|shared| shared.join("pools"));
    let watch = |path: &Path| println!("cargo::rerun-if-changed={}", path.display());
    [Some(golden), pools].into_iter().flatten().filter(|path| path.is_dir()).for_each(|path| watch(&path));
}
