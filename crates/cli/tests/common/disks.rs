//! Pools made of files, which the built program changes; and `zdb`, which must be content with them.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its own part")]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

pub const POOL: &str = "tank";
pub const MIB: u64 = 1 << 20;

/// Files as devices, in a folder of their own.
pub struct Disks(tempfile::TempDir);

impl Disks {
    pub fn new(sizes_mib: &[u64]) -> Disks {
        let folder = tempfile::tempdir().unwrap();
        for (name, size) in ["a", "b", "c", "d", "e", "f", "g"].iter().zip(sizes_mib) {
            File::create(folder.path().join(name)).unwrap().set_len(size * MIB).unwrap();
        }
        Disks(folder)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs `cenote COMMAND --disks FOLDER` in the folder.
    pub fn run(&self, command: &str, more: &[&Path]) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.current_dir(self.path()).arg("--disks").arg(self.path());
        program.args(command.split(' ')).args(more).output().unwrap()
    }

    pub fn cenote(&self, command: &str, more: &[&Path]) -> String {
        let output = self.run(command, more);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "cenote {command}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn fails(&self, command: &str, words: &str) {
        let output = self.run(command, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(words), "cenote {command}: {errors}");
    }

    /// `zdb` reads all blocks, and finds as much allocated as referenced.
    pub fn zdb_is_content(&self) {
        self.zdb_is_content_with(POOL);
    }

    pub fn zdb_is_content_with(&self, pool: &str) {
        let zdb = Command::new("zdb").args(["-e", "-bcc", "-p"]).arg(self.path()).arg(pool).output();
        let Ok(output) = zdb else {
            assert!(std::env::var_os("CENOTE_REQUIRE_ZDB").is_none(), "zdb is missing");
            println!("zdb is not installed: not compared");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("No leaks"), "{said}{errors}");
    }
}

/// Bytes that do not compress, from a seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}
