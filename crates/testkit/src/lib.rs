//! Golden pools for tests: where they lie, unpacked images, and what the OpenZFS kernel module says they
//! hold.
//!
//! A golden pool is a folder of compressed images with a `pool.json` beside them (see the README in
//! `shared/pools`). Small ones may ship with the project (`golden/pools`); the others lie outside of it, and
//! a test that needs one says so and passes when it is not there:
//!
//! ```no_run
//! let Some(pool) = cenote_testkit::golden("snaps") else { return };
//! let folder = pool.images();          // diskN.img, read-only, unpacked once and kept
//! assert_eq!(pool.facts().pool, "gsnaps");
//! ```
//!
//! Where things are looked for: `CENOTE_SHARED`, else `../shared` beside the workspace. Unpacked images go to
//! `CENOTE_IMAGES/NAME` if that is set (images already there are used as they are), else to `target/golden`.
//! Many tests, in many processes, may ask at the same time: an image appears under its name only when it is
//! whole.
#![allow(clippy::print_stderr, reason = "tests say what they skip")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that can't prepare itself must stop")]

mod facts;
pub mod image;
mod unpack;

pub use facts::{DatasetFacts, DiskFacts, KeyFacts, PoolFacts, PropertyRow};
pub use unpack::{copy_image, decompress, unpack_bzip2, unpack_image};

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/testkit lies two folders deep")
        .into()
}

/// The folder with material for tests that is too large to ship, if this machine has it.
pub fn shared() -> Option<PathBuf> {
    let folder = match std::env::var_os("CENOTE_SHARED") {
        Some(set) => PathBuf::from(set),
        None => workspace().parent()?.join("shared"),
    };
    folder.is_dir().then_some(folder)
}

/// A file or folder below [`shared`]; says that the test is skipped if it is not there.
pub fn shared_path(relative: &str) -> Option<PathBuf> {
    let found = shared().map(|s| s.join(relative)).filter(|p| p.exists());
    if found.is_none() {
        eprintln!("skipped: no {relative} (set CENOTE_SHARED to the folder that holds it)");
    }
    found
}

/// A folder with the images of OpenZFS's own pools (`fixtures/FOLDER/blockfiles/*.dat`), unpacked once and
/// kept; says that the test is skipped if they are not there.
pub fn fixture_images(folder: &str) -> Option<PathBuf> {
    let packed = shared_path(&format!("fixtures/{folder}/blockfiles"))?;
    let images = workspace().join("target/fixtures").join(folder);
    for file in packed.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let image = images.join(file.file_stem().expect("a file name"));
        if !image.exists() {
            unpack_bzip2(&file, &image);
        }
    }
    Some(images)
}

/// The golden pool of this (folder) name; says that the test is skipped if it is not there.
pub fn golden(name: &str) -> Option<Golden> {
    let places = [Some(workspace().join("golden/pools")), shared().map(|s| s.join("pools"))];
    let folder = places.into_iter().flatten().map(|p| p.join(name)).find(|f| f.join("pool.json").exists());
    if folder.is_none() {
        eprintln!("skipped: no golden pool {name} (set CENOTE_SHARED to the folder that holds pools/{name})");
    }
    folder.map(|folder| Golden { name: name.into(), folder })
}

/// Names of all golden pools there are, sorted; empty (and said so) if there are none.
pub fn golden_names() -> Vec<String> {
    let places = [Some(workspace().join("golden/pools")), shared().map(|s| s.join("pools"))];
    let mut names: Vec<String> = places
        .into_iter()
        .flatten()
        .filter_map(|place| place.read_dir().ok())
        .flatten()
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.path().join("pool.json").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        eprintln!("skipped: no golden pools (set CENOTE_SHARED)");
    }
    names
}

/// One golden pool.
#[derive(Debug, Clone)]
pub struct Golden {
    name: String,
    folder: PathBuf,
}

impl Golden {
    /// The folder's name, which is not the pool's (that is in [`Golden::facts`]).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder that holds `pool.json`, the compressed images and the expectations.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the pool is and holds.
    pub fn facts(&self) -> PoolFacts {
        let text = std::fs::read(self.folder.join("pool.json")).expect("pool.json");
        serde_json::from_slice(&text).expect("pool.json is what this crate knows")
    }

    /// The folder with its images unpacked, read-only. The first call of all may take seconds.
    pub fn images(&self) -> PathBuf {
        let base = std::env::var_os("CENOTE_IMAGES").map(PathBuf::from);
        let folder = base.unwrap_or_else(|| workspace().join("target/golden")).join(&self.name);
        for disk in self.facts().disks {
            let image = folder.join(disk.file.trim_end_matches(".zst"));
            if !image.exists() {
                unpack_image(&self.folder.join(&disk.file), &image, &disk.sha256);
            }
        }
        folder
    }

    /// A text file of the golden pool (`history.txt`), decompressed if it is there only as `.zst`.
    pub fn text(&self, file: &str) -> String {
        String::from_utf8(self.bytes(file)).expect("UTF-8")
    }

    /// A file of the golden pool, decompressed if its name ends in `.zst` or only that form is there.
    pub fn bytes(&self, file: &str) -> Vec<u8> {
        let plain = self.folder.join(file);
        if plain.exists() && !file.ends_with(".zst") {
            return std::fs::read(plain).expect("readable");
        }
        let packed = self.folder.join(format!("{}.zst", file.trim_end_matches(".zst")));
        decompress(&std::fs::read(&packed).unwrap_or_else(|e| panic!("{}: {e}", packed.display())))
    }

    /// `zpool get -Hp all` and `zfs get -Hp -r -t all all`, in that order.
    pub fn properties(&self) -> Vec<PropertyRow> {
        facts::parse_properties(&self.text("props.tsv"))
    }
}
