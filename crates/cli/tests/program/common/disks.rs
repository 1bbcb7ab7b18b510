//! Pools in files that the built program changes and that must satisfy `zdb`.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub use cenote_testkit::noise;
use cenote_testkit::zdb_finds_nothing;

pub const POOL: &str = "tank";
pub const MIB: u64 = 1 << 20;

/// Files used as devices, in their own folder.
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

    /// The same with only some of the files as disks.
    pub fn run_on(&self, names: &[&str], command: &str) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.current_dir(self.path());
        names.iter().for_each(|name| _ = program.arg("--disks").arg(self.path().join(name)));
        program.args(command.split(' ')).output().unwrap()
    }

    /// The content of all disks.
    pub fn images(&self) -> Vec<(OsString, Vec<u8>)> {
        let files = std::fs::read_dir(self.path()).unwrap().map(Result::unwrap);
        let mut images: Vec<_> =
            files.map(|file| (file.file_name(), std::fs::read(file.path()).unwrap())).collect();
        images.sort();
        images
    }

    /// The same with this standard input.
    pub fn run_with(&self, command: &str, input: &[u8]) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.current_dir(self.path()).arg("--disks").arg(self.path()).args(command.split(' '));
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
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

    /// Writes a 3 MB file into the pool.
    pub fn fill(&self, seed: u64) {
        let file = self.path().join("content");
        std::fs::write(&file, noise(seed, 3_000_000)).unwrap();
        self.cenote("cp", &[&file, Path::new(&format!("tank:/file{seed}"))]);
        std::fs::remove_file(file).unwrap();
    }

    /// Checks that the content written by [`Disks::fill`] is there.
    pub fn assert_filled(&self, seed: u64) {
        let read = self.run(&format!("cat tank:/file{seed}"), &[]);
        assert!(read.stdout == noise(seed, 3_000_000), "{}", String::from_utf8_lossy(&read.stderr));
    }

    /// [`zdb_finds_nothing`] in the usual pool.
    pub fn zdb_is_content(&self) {
        self.zdb_is_content_with(POOL);
    }

    /// The same for another pool.
    pub fn zdb_is_content_with(&self, pool: &str) {
        zdb_finds_nothing(self.path(), pool);
    }
}
