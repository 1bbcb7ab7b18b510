//! Sorts more rows than fit in memory: runs are sorted, spilled to a temporary file, and merged.
//!
//! Records, a key and a line each, are collected up to a budget, sorted and written as a run. At the end all
//! runs are merged through small buffers. One pass handles budget times (budget / buffer) bytes: with 64 MiB
//! and 64 KiB, 64 GiB of names.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;

/// Bytes collected before a run is written.
const RUN_BYTES: usize = 64 << 20;
/// Read-ahead of each run in the merge.
const MERGE_BUFFER_BYTES: usize = 64 << 10;

/// Collects records and returns them in key order.
#[derive(Debug, Default)]
pub struct Sorter {
    bytes: Vec<u8>,
    records: Vec<(Range<usize>, Range<usize>)>,
    spilled: Option<File>,
    runs: Vec<Range<u64>>,
    run_bytes: Option<usize>,
}

impl Sorter {
    /// With a budget other than the default, for tests.
    pub fn with_budget(run_bytes: usize) -> Sorter {
        Sorter { run_bytes: Some(run_bytes), ..Sorter::default() }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The temporary file can't be written.
    pub fn push(&mut self, key: &[u8], line: &[u8]) -> io::Result<()> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(line);
        self.records.push((start..middle, middle..self.bytes.len()));
        let record_bytes = size_of::<(Range<usize>, Range<usize>)>();
        if self.bytes.len() + self.records.len() * record_bytes >= self.run_bytes.unwrap_or(RUN_BYTES) {
            self.spill()?;
        }
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.records.sort_by(|a, b| bytes[a.0.clone()].cmp(&bytes[b.0.clone()]));
    }

    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let file = match &mut self.spilled {
            Some(file) => file,
            None => self.spilled.insert(tempfile::tempfile()?),
        };
        let start = file.seek(SeekFrom::End(0))?;
        let mut out = BufWriter::with_capacity(1 << 20, &mut *file);
        for (key, line) in self.records.drain(..) {
            out.write_all(&(key.len() as u32).to_le_bytes())?;
            out.write_all(&(line.len() as u32).to_le_bytes())?;
            out.write_all(&self.bytes[key])?;
            out.write_all(&self.bytes[line])?;
        }
        out.flush()?;
        drop(out);
        self.runs.push(start..file.stream_position()?);
        self.bytes.clear();
        Ok(())
    }

    /// Passes every line to `each`, in key order.
    ///
    /// # Errors
    /// The temporary file can't be read, or `each` failed.
    pub fn finish<E: From<io::Error>>(
        mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.sort();
        let Some(file) = self.spilled.take() else {
            return self.records.iter().try_for_each(|(_, line)| each(&self.bytes[line.clone()]));
        };
        // The records still in memory are spilled as one more run, so that only files are merged.
        self.spilled = Some(file);
        self.spill()?;
        let Some(file) = self.spilled.take() else { return Ok(()) };
        let mut runs: Vec<Run> = self.runs.iter().map(|range| Run::new(&file, range.clone())).collect();
        let mut heap = BinaryHeap::new();
        for (index, run) in runs.iter_mut().enumerate() {
            if let Some((key, line)) = run.next()? {
                heap.push(Reverse((key, index, line)));
            }
        }
        while let Some(Reverse((_, index, line))) = heap.pop() {
            each(&line)?;
            if let Some((key, line)) = runs[index].next()? {
                heap.push(Reverse((key, index, line)));
            }
        }
        Ok(())
    }
}

/// One sorted run, read from its own range of the shared file.
struct Run<'a> {
    reader: BufReader<At<'a>>,
}

impl<'a> Run<'a> {
    fn new(file: &'a File, range: Range<u64>) -> Run<'a> {
        Run { reader: BufReader::with_capacity(MERGE_BUFFER_BYTES, At { file, range }) }
    }

    fn next(&mut self) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut lengths = [0; 8];
        match self.reader.read_exact(&mut lengths) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let [a, b, c, d, e, f, g, h] = lengths;
        let mut key = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
        let mut line = vec![0; u32::from_le_bytes([e, f, g, h]) as usize];
        self.reader.read_exact(&mut key)?;
        self.reader.read_exact(&mut line)?;
        Ok(Some((key, line)))
    }
}

struct At<'a> {
    file: &'a File,
    range: Range<u64>,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let most = buffer.len().min((self.range.end - self.range.start) as usize);
        let got = self.file.read_at(&mut buffer[..most], self.range.start)?;
        self.range.start += got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_runs_come_out_in_order() {
        for budget in [300, 1 << 20] {
            let mut sorter = Sorter::with_budget(budget);
            let mut number = 7u64;
            let mut expected = Vec::new();
            for _ in 0..2000 {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = format!("{:03}", number >> 40 & 511).into_bytes();
                let line = [&key[..], b" line"].concat();
                sorter.push(&key, &line).unwrap();
                expected.push(line);
            }
            expected.sort();
            let mut got = Vec::new();
            sorter
                .finish::<io::Error>(|line| {
                    got.push(line.to_vec());
                    Ok(())
                })
                .unwrap();
            assert_eq!(got, expected, "budget {budget}");
        }
    }
}
