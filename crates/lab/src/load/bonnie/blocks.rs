//! The phases on the large file: its blocks in order.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Instant;

use super::Bonnie;
use crate::load::control::Control;
use crate::load::machine::caches;
use crate::load::measurement::Tally;
use crate::load::workload::content::Content;
use crate::{LabError, Result};

#[derive(Debug)]
pub struct Blocks<'a> {
    pub path: PathBuf,
    pub bonnie: &'a Bonnie,
    pub control: &'a Control,
}

impl Blocks<'_> {
    pub fn bytes(&self) -> u64 {
        u64::from(self.bonnie.block_bytes.max(1))
    }

    pub fn count(&self) -> u64 {
        self.bonnie.size_bytes / self.bytes()
    }

    pub fn buffer(&self) -> Vec<u8> {
        vec![0; self.bonnie.block_bytes.max(1) as usize]
    }

    pub fn failed(&self) -> impl FnOnce(io::Error) -> LabError {
        LabError::io(self.path.display().to_string())
    }

    /// Opens the file afresh.
    pub fn open(&self) -> Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.path).map_err(self.failed())
    }

    pub fn write(&self, begun: Instant) -> Result<Tally> {
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&self.path).map_err(self.failed())?;
        let mut content = Content::new(self.bonnie.block_bytes as usize, self.bonnie.seed, 0)?;
        let tally = self.each(begun, || file.write_all(content.next(self.bytes())))?;
        file.sync_all().map_err(self.failed())?;
        Ok(tally)
    }

    /// Reads each block, changes it, and writes it back.
    pub fn rewrite(&self, begun: Instant) -> Result<Tally> {
        let (mut file, mut block) = (self.open()?, self.buffer());
        let back = -i64::from(self.bonnie.block_bytes);
        let tally = self.each(begun, || {
            file.read_exact(&mut block)?;
            block[0] = block[0].wrapping_add(1);
            file.seek(SeekFrom::Current(back))?;
            file.write_all(&block)
        })?;
        file.sync_all().map_err(self.failed())?;
        Ok(tally)
    }

    pub fn read(&self, begun: Instant) -> Result<Tally> {
        let (mut file, mut block) = (self.open()?, self.buffer());
        self.each(begun, || file.read_exact(&mut block))
    }

    /// Drops as much of the file from memory as possible; returns the reason if not permitted.
    pub fn forget(&self) -> Result<Option<String>> {
        let file = self.open()?;
        file.sync_all().map_err(self.failed())?;
        caches::drop_pages(&file);
        Ok(caches::drop_all().err().map(|error| {
            format!(
                "caches could not be dropped ({error}; requires root): data cached outside the page cache \
                 (ARC) were read from memory"
            )
        }))
    }

    fn each(&self, begun: Instant, mut one: impl FnMut() -> io::Result<()>) -> Result<Tally> {
        let mut tally = Tally::new(begun);
        for number in 0..self.count() {
            self.control.check()?;
            tally.time(self.bytes(), &mut one).map_err(self.failed())?;
            self.control.count(1, self.bytes());
            self.control.done(number, self.count());
        }
        Ok(tally)
    }
}
