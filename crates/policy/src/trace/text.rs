//! Text formats.

use std::path::Path;

use super::{Requests, TraceError};
use crate::policy::Class;

enum Format {
    /// `first_block count 0 number`
    Arc,
    Blocks,
    Msr,
    Csv(Columns),
    Fio,
    Blktrace,
}

struct Columns {
    id: usize,
    /// The id is a byte offset on a disk.
    is_offset: bool,
    time: Option<usize>,
    bytes: Option<usize>,
    class: Option<usize>,
    op: Option<usize>,
    hit: Option<usize>,
    dataset: Option<usize>,
}

pub(super) fn read(path: &Path, content: &[u8], requests: &mut Requests) -> Result<(), TraceError> {
    let mut lines = content.split(|&byte| byte == b'\n').enumerate();
    let text = |line: &[u8]| String::from_utf8_lossy(line).trim().to_owned();
    let mut first = None;
    for (number, line) in lines.by_ref() {
        let line = text(line);
        if !line.is_empty() && !line.starts_with('#') {
            first = Some((number, line));
            break;
        }
    }
    let Some((number, first)) = first else { return Ok(()) };
    let format = recognise(&first).ok_or_else(|| TraceError::Unknown {
        path: path.to_owned(),
        line: first.chars().take(60).collect(),
    })?;
    let has_header = matches!(format, Format::Csv(_) | Format::Fio);
    let rest = lines.map(|(number, line)| (number, text(line)));
    let begin = (!has_header).then_some((number, first));
    for (number, line) in begin.into_iter().chain(rest) {
        if let Some((dataset, name)) = line.strip_prefix("# dataset ").and_then(|rest| rest.split_once(' ')) {
            dataset.parse().into_iter().for_each(|dataset| requests.parts.name(dataset, name));
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        format.read(&line, requests).map_err(|what| TraceError::Line {
            path: path.to_owned(),
            line: number + 1,
            what,
        })?;
    }
    Ok(())
}

fn recognise(line: &str) -> Option<Format> {
    if line.starts_with("fio version") {
        return Some(Format::Fio);
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let are_numbers = |words: &[&str]| words.iter().all(|word| word.parse::<u64>().is_ok());
    if words.len() == 4 && are_numbers(&words) {
        return Some(Format::Arc);
    }
    if words.len() == 1 && are_numbers(&words) {
        return Some(Format::Blocks);
    }
    let is_device = |word: &&str| word.split_once(',').is_some_and(|(a, b)| are_numbers(&[a, b]));
    if words.len() > 6 && words.first().is_some_and(is_device) {
        return Some(Format::Blktrace);
    }
    let columns: Vec<String> = line.split(',').map(|column| column.trim().to_lowercase()).collect();
    if columns.len() == 7 && matches!(columns[3].as_str(), "read" | "write") {
        return Some(Format::Msr);
    }
    let find = |names: &[&str]| columns.iter().position(|column| names.contains(&column.as_str()));
    let by_id = find(&["id", "key", "obj_id", "object", "block", "lbn", "lba"]).map(|id| (id, false));
    let (id, is_offset) = by_id.or_else(|| find(&["offset"]).map(|id| (id, true)))?;
    let time = find(&["time", "timestamp", "ts"]);
    let bytes = find(&["size", "bytes", "length", "len"]);
    let [class, op, hit, dataset] = ["class", "op", "hit", "dataset"].map(|name| find(&[name]));
    Some(Format::Csv(Columns { id, is_offset, time, bytes, class, op, hit, dataset }))
}

fn number(word: Option<&str>, what: &str) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("no {what}"))?.trim();
    word.parse().map_err(|_| format!("{what} {word:?} is no number"))
}

fn seconds(word: &str) -> Option<u64> {
    let seconds: f64 = word.trim().parse().ok()?;
    (seconds >= 0.0).then_some((seconds * 1e9) as u64)
}

impl Format {
    fn read(&self, line: &str, requests: &mut Requests) -> Result<(), String> {
        let mut words = line.split_whitespace();
        match self {
            Format::Arc => {
                let first = number(words.next(), "first block")?;
                requests.push_blocks(first, number(words.next(), "count")?, None)
            }
            // LIRS's traces separate phases by `*`.
            Format::Blocks if line == "*" => Ok(()),
            Format::Blocks => requests.push(number(words.next(), "block")?, super::BLOCK_BYTES, None),
            Format::Msr => {
                let columns: Vec<&str> = line.split(',').collect();
                let column = |index: usize, what| number(columns.get(index).copied(), what);
                // Windows file time: units of 100 ns.
                let now_ns = column(0, "time")?.wrapping_mul(100);
                requests.push_range(column(4, "offset")?, column(5, "size")?, Some(now_ns))
            }
            Format::Csv(columns) => columns.read(line, requests),
            Format::Fio => read_fio(&words.collect::<Vec<_>>(), requests),
            Format::Blktrace => read_blktrace(&words.collect::<Vec<_>>(), requests),
        }
    }
}

impl Columns {
    fn read(&self, line: &str, requests: &mut Requests) -> Result<(), String> {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |index: usize, what| number(cells.get(index).copied(), what);
        let bytes = self.bytes.map(|bytes| cell(bytes, "size")).transpose()?;
        let op = self.op.and_then(|op| cells.get(op)).map(|op| op.trim());
        if let Some(op @ ("device_read" | "device_write")) = op {
            requests.moved(op == "device_write", bytes.unwrap_or(0));
            return Ok(());
        }
        requests.is_write = op.is_some_and(|op| op.eq_ignore_ascii_case("write"));
        let now_ns = self.time.and_then(|time| seconds(cells.get(time)?));
        requests.class = match self.class.and_then(|class| cells.get(class)) {
            Some(cell) if cell.trim() == Class::Metadata.name() => Class::Metadata,
            _ => Class::Data,
        };
        let text = |index: Option<usize>| cells.get(index?).map(|cell| cell.trim());
        if let (false, Some(hit @ ("0" | "1")), Some(dataset)) =
            (requests.is_write, text(self.hit), text(self.dataset))
        {
            let (class, bytes) = (requests.class, bytes.unwrap_or(0));
            dataset
                .parse()
                .into_iter()
                .for_each(|dataset| requests.parts.add(dataset, class, hit == "1", bytes));
        }
        let id = cell(self.id, "id")?;
        if self.is_offset {
            return requests.push_range(id, bytes.unwrap_or(super::BLOCK_BYTES.into()), now_ns);
        }
        let bytes = bytes.map_or(Ok(super::BLOCK_BYTES), u32::try_from);
        requests.push(id, bytes.map_err(|_| "a size beyond 4 GiB")?, now_ns)
    }
}

/// `[time_ms] FILE action [offset bytes]`: version 3 begins with a time.
fn read_fio(words: &[&str], requests: &mut Requests) -> Result<(), String> {
    let is_timed = words.first().is_some_and(|word| word.parse::<u64>().is_ok());
    let now_ns =
        is_timed.then(|| words[0].parse::<u64>().ok()).flatten().map(|ms| ms.wrapping_mul(1_000_000));
    let words = &words[usize::from(is_timed)..];
    match words.get(1) {
        Some(&"read" | &"write") => {
            let offset = number(words.get(2).copied(), "offset")?;
            requests.push_range(offset, number(words.get(3).copied(), "size")?, now_ns)
        }
        _ => Ok(()),
    }
}

/// `8,0 CPU NUMBER SECONDS PID ACTION RWBS SECTOR + SECTORS [PROCESS]`
fn read_blktrace(words: &[&str], requests: &mut Requests) -> Result<(), String> {
    const SECTOR_BYTES: u64 = 512;
    if words.get(5) != Some(&"Q") || words.get(8) != Some(&"+") {
        return Ok(());
    }
    let now_ns = words.get(3).and_then(|word| seconds(word));
    let bytes = |index: usize, what| {
        number(words.get(index).copied(), what)?.checked_mul(SECTOR_BYTES).ok_or("beyond any disk".to_owned())
    };
    requests.push_range(bytes(7, "sector")?, bytes(9, "sectors")?, now_ns)
}
