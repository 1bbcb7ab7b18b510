//! Has the macros expanded again when the material that they look for comes or goes.
//!
//! Cargo can't watch a folder that does not exist. If `../shared` appears later, `cenote_testkit::shared`
//! fails and says what to do.
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
