//! Golden pools for tests: locations, unpacked images, and content as the OpenZFS kernel module reports it.
//!
//! A golden pool is a folder of compressed images with a `pool.json` (see the README in `shared/pools`). The
//! most needed ones ship in `golden/pools`. Tests of others are marked, and ignored where `../shared` is
//! missing:
//!
//! ```text
//! use cenote_testkit::{golden, needs};
//!
//! #[needs("raidz1")]
//! #[test]
//! fn a_pool_is_read() {
//!     let pool = golden("raidz1");
//!     let folder = pool.images();      // diskN.img, read-only, unpacked once and kept
//!     assert_eq!(pool.facts().pool, "graidz1");
//! }
//! ```
//!
//! `CENOTE_SHARED` replaces `../shared`. Images are unpacked to `CENOTE_IMAGES/NAME` if set (existing ones
//! are used as they are), else to `target/golden`.
//!
//! Locking: none. Tests in many processes may request the same image, which appears only when complete.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that can't prepare itself must stop")]
#![allow(clippy::print_stderr, reason = "a test says that it skips")]

mod bytes;
mod facts;
pub mod image;
mod unpack;
mod zdb;

pub use bytes::{noise, places_of};
pub use cenote_testkit_macros::needs;
pub use facts::{DatasetFacts, DiskFacts, KeyFacts, PoolFacts, PropertyRow};
pub use unpack::{copy_image, decompress, unpack_bzip2, unpack_image};
pub use zdb::{all_said, zdb, zdb_finds_nothing, zdb_verdict};

use std::path::{Path, PathBuf};

const SHARED_WHEN_COMPILED: bool = cenote_testkit_macros::shared_when_compiled!();

/// Root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/testkit lies two folders deep")
        .into()
}

/// Folder of large test material, if present.
///
/// # Panics
/// If it appeared after compilation: marked tests would still be ignored.
pub fn shared() -> Option<PathBuf> {
    let folder = match std::env::var_os("CENOTE_SHARED") {
        Some(set) => PathBuf::from(set),
        None => workspace().parent()?.join("shared"),
    };
    let found = folder.is_dir();
    assert!(
        !found || SHARED_WHEN_COMPILED,
        "{} appeared after the tests were compiled: touch crates/testkit-macros/build.rs and run them again",
        folder.display()
    );
    found.then_some(folder)
}

/// A path below [`shared`], for tests marked with [`needs`].
///
/// # Panics
/// If missing.
pub fn shared_path(relative: &str) -> PathBuf {
    let found = shared().map(|shared| shared.join(relative)).filter(|path| path.exists());
    found.unwrap_or_else(|| panic!("no {relative} in ../shared (CENOTE_SHARED names another folder)"))
}

/// Folder with unpacked images of OpenZFS's own pools (`fixtures/FOLDER/blockfiles/*.dat`).
///
/// # Panics
/// If missing.
pub fn fixture_images(folder: &str) -> PathBuf {
    let packed = shared_path(&format!("fixtures/{folder}/blockfiles"));
    let images = workspace().join("target/fixtures").join(folder);
    for file in packed.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let image = images.join(file.file_stem().expect("a file name"));
        if !image.exists() {
            unpack_bzip2(&file, &image);
        }
    }
    images
}

/// Name prefix of pools made by OpenZFS 2.4.
const OF_2_4: &str = "24-";

fn pool_folders() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let own = Some(("", workspace().join("golden/pools")));
    let shared = |prefix, folder| shared().map(|shared| (prefix, shared.join(folder)));
    [own, shared("", "pools"), shared(OF_2_4, "pools24")].into_iter().flatten()
}

/// Finds a golden pool by folder name, with the prefix `24-` if OpenZFS 2.4 made it. Pools in `../shared`
/// require [`needs`].
///
/// # Panics
/// If missing.
pub fn golden(name: &str) -> Golden {
    let folder = pool_folders()
        .filter_map(|(prefix, pools)| Some(pools.join(name.strip_prefix(prefix)?)))
        .find(|pool| pool.join("pool.json").exists());
    let folder = folder.unwrap_or_else(|| panic!("no golden pool {name}: it needs ../shared/pools/{name}"));
    Golden { name: name.into(), folder }
}

/// Sorted names of all golden pools here.
///
/// # Panics
/// If there are none, as such a test would check nothing.
pub fn golden_names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (prefix, pools) in pool_folders() {
        let entries = pools.read_dir().into_iter().flatten().filter_map(|entry| entry.ok());
        let pools = entries.filter(|entry| entry.path().join("pool.json").exists());
        names.extend(pools.filter_map(|pool| Some(format!("{prefix}{}", pool.file_name().to_str()?))));
    }
    names.sort();
    names.dedup();
    assert!(!names.is_empty(), "no golden pools in {}", workspace().join("golden/pools").display());
    names
}

/// All golden pools here, by name.
pub fn golden_pools() -> impl Iterator<Item = Golden> {
    golden_names().into_iter().map(|name| golden(&name))
}

/// A golden pool.
#[derive(Debug, Clone)]
pub struct Golden {
    name: String,
    folder: PathBuf,
}

impl Golden {
    /// Folder name. [`Golden::facts`] has the pool's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Folder of `pool.json`, compressed images and expectations.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether OpenZFS 2.4 made it: 2.3 may be unable to open it.
    pub fn is_of_2_4(&self) -> bool {
        self.name.starts_with(OF_2_4)
    }

    /// Reads `pool.json`.
    pub fn facts(&self) -> PoolFacts {
        let text = std::fs::read(self.folder.join("pool.json")).expect("pool.json");
        serde_json::from_slice(&text).expect("pool.json is what this crate knows")
    }

    /// Folder of unpacked, read-only images. The first call may take seconds.
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

    /// Reads a text file (`history.txt`), decompressed if necessary.
    pub fn text(&self, file: &str) -> String {
        String::from_utf8(self.bytes(file)).expect("UTF-8")
    }

    /// Reads a file, decompressed if a `.zst` or only that exists.
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
