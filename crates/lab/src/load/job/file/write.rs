//! Writes jobs as a job file for the real fio.
//!
//! Only differences from fio's defaults are written. Anything a job file cannot express is an error, never
//! left out.

use std::fmt::{Display, Write};

use super::GLOBAL;
use crate::load::job::{BlockSizes, Content, Distribution, Job, Jobs, Method, ReadWrite, SyncMode};
use crate::{LabError, Result};

/// Characters that end a value or have a meaning in it, and cannot be escaped.
const UNWRITABLE: [char; 3] = [';', '#', '$'];

impl Jobs {
    /// A job file with the same meaning to fio 3.33 and to [`Jobs::parse`].
    ///
    /// # Errors
    /// A name, a time below a microsecond, or sizes that a job file cannot express.
    pub fn to_fio(&self) -> Result<String> {
        let sections: Result<Vec<String>> = self.0.iter().map(section).collect();
        Ok(sections?.join("\n"))
    }
}

fn section(job: &Job) -> Result<String> {
    let default = Job::default();
    let mut out = Section(String::new());
    let name = writable(job, "its name", &job.name)?;
    if name.starts_with(GLOBAL) {
        out.0 += "[job]\n";
        out.line("name", name);
    } else {
        out.0 += &format!("[{name}]\n");
    }
    out.line("rw", direction(job));
    if let 1..=99 = job.pattern.read_percent {
        out.line("rwmixread", job.pattern.read_percent);
    }
    sizes(&mut out, job)?;
    if let Some(path) = &job.filename {
        let text = path.to_str().unwrap_or("\u{fffd}#");
        out.line("filename", writable(job, "its file name", text)?.replace(':', "\\:"));
    }
    out.changed("size", job.size_bytes, 0);
    out.some("io_size", job.io_size_bytes);
    out.changed("offset", job.offset_bytes, 0);
    out.line("ioengine", if job.method == Method::IoUring { "io_uring" } else { "psync" });
    out.changed("iodepth", job.queue_depth, default.queue_depth);
    out.changed("numjobs", job.workers, default.workers);
    out.changed("direct", u8::from(job.direct), 0);
    out.changed("invalidate", u8::from(job.invalidate), 1);
    match job.sync {
        SyncMode::None => {}
        SyncMode::Sync => out.line("sync", "sync"),
        SyncMode::Dsync => out.line("sync", "dsync"),
    }
    out.changed("fsync", job.fsync_every, 0);
    out.changed("fdatasync", job.fdatasync_every, 0);
    out.changed("end_fsync", u8::from(job.end_fsync), 0);
    times(&mut out, job)?;
    out.limits("rate", job.rate_bytes);
    out.limits("rate_iops", job.rate_iops);
    match job.distribution {
        Distribution::Random => {}
        Distribution::Zipf(theta) => out.line("random_distribution", format_args!("zipf:{theta}")),
        Distribution::Pareto(h) => out.line("random_distribution", format_args!("pareto:{h}")),
        Distribution::Normal(percent) => out.line("random_distribution", format_args!("normal:{percent}")),
    }
    out.changed("norandommap", u8::from(job.no_random_map), 0);
    if i64::try_from(job.seed).is_err() {
        return Err(unwritable(job, format!("a seed of {} (the maximum is 2^63 - 1)", job.seed)));
    }
    out.line("randseed", job.seed);
    content(&mut out, job);
    out.changed("group_reporting", u8::from(job.group), 0);
    out.changed("stonewall", u8::from(job.stonewall), 0);
    Ok(out.0)
}

struct Section(String);

impl Section {
    fn line(&mut self, name: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{name}={value}");
    }

    fn changed<T: Display + PartialEq>(&mut self, name: &str, value: T, default: T) {
        if value != default {
            self.line(name, value);
        }
    }

    fn some(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.line(name, value);
        }
    }

    /// `reads,writes`; an omitted side has no limit.
    fn limits(&mut self, name: &str, limits: ReadWrite<Option<u64>>) {
        let text = |limit: Option<u64>| limit.map(|limit| limit.to_string()).unwrap_or_default();
        if limits != ReadWrite::default() {
            self.line(name, format_args!("{},{}", text(limits.read), text(limits.write)));
        }
    }
}

fn direction(job: &Job) -> &'static str {
    match (job.pattern.random, job.pattern.read_percent) {
        (false, 0) => "write",
        (false, 100..) => "read",
        (false, _) => "rw",
        (true, 0) => "randwrite",
        (true, 100..) => "randread",
        (true, _) => "randrw",
    }
}

fn times(out: &mut Section, job: &Job) -> Result<()> {
    if let Some(ns) = job.runtime_ns {
        out.line("runtime", time(job, ns)?);
    }
    out.changed("time_based", u8::from(job.time_based), 0);
    for (name, ns) in
        [("ramp_time", job.ramp_ns), ("startdelay", job.start_delay_ns), ("thinktime", job.think_ns)]
    {
        if ns > 0 {
            out.line(name, time(job, ns)?);
        }
    }
    if job.think_ns > 0 {
        out.changed("thinktime_blocks", job.think_blocks, 1);
    }
    Ok(())
}

fn content(out: &mut Section, job: &Job) {
    match job.content {
        Content::Stamped => {}
        Content::Reused => out.line("scramble_buffers", 0),
        Content::Fresh => out.line("refill_buffers", 1),
        Content::Zeros => out.line("zero_buffers", 1),
    }
    out.changed("buffer_compress_percentage", job.compress_percent, 0);
    out.changed("dedupe_percentage", job.dedupe_percent, 0);
    if job.verify {
        out.line("verify", "crc32c");
    }
}

fn time(job: &Job, ns: u64) -> Result<String> {
    match ns {
        ns if ns.is_multiple_of(1_000_000_000) => Ok(format!("{}s", ns / 1_000_000_000)),
        ns if ns.is_multiple_of(1_000_000) => Ok(format!("{}ms", ns / 1_000_000)),
        ns if ns.is_multiple_of(1_000) => Ok(format!("{}us", ns / 1_000)),
        _ => Err(unwritable(job, format!("a time of {ns} ns (only whole microseconds can)"))),
    }
}

/// Three ways a job file can express sizes.
enum Form {
    One(u32),
    Range(u32, u32),
    Split(String),
}

fn sizes(out: &mut Section, job: &Job) -> Result<()> {
    let ReadWrite { read, write } = &job.block_sizes;
    match (form(read), form(write)) {
        (Form::One(read), Form::One(write)) if read == write => out.line("bs", read),
        (Form::One(read), Form::One(write)) => out.line("bs", format_args!("{read},{write}")),
        (Form::Split(read), Form::Split(write)) => out.line("bssplit", format_args!("{read},{write}")),
        (Form::Split(read), Form::One(write)) => out.line("bssplit", format_args!("{read},{write}/100")),
        (Form::One(read), Form::Split(write)) => out.line("bssplit", format_args!("{read}/100,{write}")),
        (Form::Range(a, b), Form::Range(c, d)) => out.line("bsrange", format_args!("{a}-{b},{c}-{d}")),
        (Form::Range(a, b), Form::One(c)) => out.line("bsrange", format_args!("{a}-{b},{c}-{c}")),
        (Form::One(a), Form::Range(c, d)) => out.line("bsrange", format_args!("{a}-{a},{c}-{d}")),
        (Form::Range(..), Form::Split(_)) | (Form::Split(_), Form::Range(..)) => {
            return Err(unwritable(job, "a range of sizes together with a split".into()));
        }
    }
    Ok(())
}

fn form(sizes: &BlockSizes) -> Form {
    let step = sizes.0.first().map_or(0, |size| size.0);
    let is_range =
        |(index, &size): (usize, &(u32, u32))| size == ((index as u32 + 1).saturating_mul(step), 1);
    match sizes.0[..] {
        [(bytes, _)] => Form::One(bytes),
        [.., (last, _)] if sizes.0.iter().enumerate().all(is_range) => Form::Range(step, last),
        _ => Form::Split(split(&sizes.0)),
    }
}

/// Weights as integer percentages that add up to 100: the remainder from rounding down goes to the first
/// ones.
fn split(sizes: &[(u32, u32)]) -> String {
    let all = sizes.iter().map(|size| u64::from(size.1)).sum::<u64>().max(1);
    let percent = |weight: u32| u64::from(weight) * 100 / all;
    let mut left = 100 - sizes.iter().map(|size| percent(size.1)).sum::<u64>().min(100);
    let parts = sizes.iter().map(|&(bytes, weight)| {
        let more = u64::from(left > 0);
        left -= more;
        format!("{bytes}/{}", percent(weight) + more)
    });
    parts.collect::<Vec<_>>().join(":")
}

fn writable<'a>(job: &Job, what: &str, text: &'a str) -> Result<&'a str> {
    let bad = |c: char| c.is_control() || UNWRITABLE.contains(&c);
    if text.is_empty() || text.trim() != text || text.contains(bad) {
        return Err(unwritable(job, format!("{what}, {text:?}")));
    }
    Ok(text)
}

fn unwritable(job: &Job, what: String) -> LabError {
    LabError::Refused(format!("job {}: {what} cannot be written to a job file", job.name))
}
