//! The effect of each option on a job, one per line.

use std::path::PathBuf;

use super::draft::{Direction, Draft};
use super::unsupported::{IGNORED, REFUSED};
use super::value::{self, Base, Result};
use crate::load::job::{Method, SyncMode};

const SECONDS: u64 = 1_000_000_000;
const MICROSECONDS: u64 = 1_000;

enum Setter {
    /// Takes a value.
    Value(fn(&mut Draft, &str) -> Result<()>),
    /// 0 or 1; without a value, 1.
    Flag(fn(&mut Draft, bool)),
}

use Setter::{Flag, Value};

/// Names and its setter.
type Option_ = (&'static [&'static str], Setter);

#[rustfmt::skip]
const OPTIONS: &[Option_] = &[
    // Operations
    (&["name"], Value(|d, v| put(&mut d.job.name, Ok(v.to_owned())))),
    (&["rw", "readwrite"], Value(pattern)),
    (&["rwmixread"], Value(|d, v| put(&mut d.mix_percent, value::number(v, 0, 100)))),
    (&["rwmixwrite"], Value(|d, v| put(&mut d.mix_percent, value::number::<u8>(v, 0, 100).map(|w| 100 - w)))),
    (&["bs", "blocksize"], Value(block_size)),
    (&["bsrange", "blocksize_range"], Value(block_range)),
    (&["bssplit"], Value(block_split)),
    (&["random_distribution"], Value(|d, v| put(&mut d.job.distribution, value::distribution(v)))),
    (&["norandommap"], Flag(|d, on| d.job.no_random_map = on)),
    (&["randseed"], Value(|d, v| put(&mut d.job.seed, value::number(v, 0, u64::MAX)))),
    // Files
    (&["filename"], Value(filename)),
    (&["size"], Value(|d, v| put(&mut d.job.size_bytes, value::size(d.base, v)))),
    (&["io_size", "io_limit"], Value(|d, v| put(&mut d.job.io_size_bytes, value::size(d.base, v).map(Some)))),
    (&["offset"], Value(|d, v| put(&mut d.job.offset_bytes, value::size(d.base, v)))),
    (&["kb_base"], Value(base)),
    // Submission
    (&["ioengine"], Value(engine)),
    (&["iodepth"], Value(|d, v| put(&mut d.job.queue_depth, value::number(v, 1, 65_536)))),
    (&["numjobs"], Value(|d, v| put(&mut d.job.workers, value::number(v, 1, 65_536)))),
    (&["direct"], Flag(|d, on| d.job.direct = on)),
    (&["buffered"], Flag(|d, on| d.job.direct = !on)),
    (&["invalidate"], Flag(|d, on| d.job.invalidate = on)),
    (&["sync"], Value(sync)),
    (&["fsync"], Value(|d, v| put(&mut d.job.fsync_every, value::number(v, 0, u32::MAX.into())))),
    (&["fdatasync"], Value(|d, v| put(&mut d.job.fdatasync_every, value::number(v, 0, u32::MAX.into())))),
    (&["end_fsync"], Flag(|d, on| d.job.end_fsync = on)),
    // Time
    (&["runtime", "timeout"], Value(runtime)),
    (&["time_based"], Flag(|d, on| d.job.time_based = on)),
    (&["ramp_time"], Value(|d, v| put(&mut d.job.ramp_ns, value::time(SECONDS, v)))),
    (&["startdelay"], Value(|d, v| put(&mut d.job.start_delay_ns, value::time(SECONDS, v)))),
    (&["stonewall", "wait_for_previous"], Flag(|d, on| d.job.stonewall = on)),
    (&["rate"], Value(rate)),
    (&["rate_iops"], Value(rate_iops)),
    (&["thinktime"], Value(|d, v| put(&mut d.job.think_ns, value::time(MICROSECONDS, v)))),
    (&["thinktime_blocks"], Value(|d, v| put(&mut d.job.think_blocks, value::number(v, 1, u32::MAX.into())))),
    // Content
    (&["zero_buffers"], Flag(|d, on| d.zero_buffers = on)),
    (&["refill_buffers"], Flag(|d, on| d.refill_buffers = on)),
    (&["scramble_buffers"], Flag(|d, on| d.scramble_buffers = on)),
    (&["buffer_compress_percentage"], Value(compress_percent)),
    (&["dedupe_percentage"], Value(|d, v| put(&mut d.job.dedupe_percent, value::number(v, 0, 100)))),
    (&["verify"], Value(verify)),
    // Reporting
    (&["group_reporting"], Flag(|d, on| d.job.group = on)),
];

/// Applies the option; an error gives the reason.
pub(super) fn set(draft: &mut Draft, name: &str, value: Option<&str>) -> Result<()> {
    if let Some((_, setter)) = OPTIONS.iter().find(|option| option.0.contains(&name)) {
        let done = match (setter, value) {
            (Value(_), None) => Err("needs a value".into()),
            (Value(set), Some(value)) => set(draft, substituted(value)?),
            (Flag(set), value) => value::flag(value.unwrap_or("1")).map(|on| set(draft, on)),
        };
        return done.map_err(|what: String| format!("{name}: {what}"));
    }
    if IGNORED.iter().any(|ignored| ignored.0.contains(&name)) {
        return Ok(());
    }
    match REFUSED.iter().find(|refused| refused.0.contains(&name)) {
        // A value that changes nothing is no reason to reject a file.
        Some((_, _, Some(neutral))) if value.is_some_and(|value| neutral.contains(&value)) => Ok(()),
        Some((_, instead, _)) => Err(format!("`{name}` is not supported: {instead}")),
        None => Err(match nearest(name) {
            Some(near) => format!("`{name}` is unknown; did you mean `{near}`?"),
            None => format!("`{name}` is unknown, or an unsupported fio option"),
        }),
    }
}

/// Most similar name, if any is similar.
fn nearest(name: &str) -> Option<&'static str> {
    let taken = OPTIONS.iter().flat_map(|option| option.0);
    let ignored = IGNORED.iter().flat_map(|ignored| ignored.0);
    let refused = REFUSED.iter().flat_map(|refused| refused.0);
    taken
        .chain(ignored)
        .chain(refused)
        .map(|&known| (strsim::jaro_winkler(name, known), known))
        .filter(|(alike, _)| *alike > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

fn put<T>(to: &mut T, value: Result<T>) -> Result<()> {
    *to = value?;
    Ok(())
}

fn block_size(draft: &mut Draft, text: &str) -> Result<()> {
    let base = draft.base;
    value::each(&mut draft.job.block_sizes, text, |size| value::block_size(base, size))
}

fn block_range(draft: &mut Draft, text: &str) -> Result<()> {
    let base = draft.base;
    value::each(&mut draft.job.block_sizes, text, |range| value::block_range(base, range))
}

fn block_split(draft: &mut Draft, text: &str) -> Result<()> {
    let base = draft.base;
    value::each(&mut draft.job.block_sizes, text, |split| value::block_split(base, split))
}

fn runtime(draft: &mut Draft, text: &str) -> Result<()> {
    put(&mut draft.job.runtime_ns, value::time(SECONDS, text).map(|ns| (ns > 0).then_some(ns)))
}

fn rate(draft: &mut Draft, text: &str) -> Result<()> {
    let base = draft.base;
    value::each(&mut draft.job.rate_bytes, text, |rate| limit(value::size(base, rate)))
}

fn rate_iops(draft: &mut Draft, text: &str) -> Result<()> {
    value::each(&mut draft.job.rate_iops, text, |rate| limit(value::number(rate, 0, u32::MAX.into())))
}

fn compress_percent(draft: &mut Draft, text: &str) -> Result<()> {
    put(&mut draft.job.compress_percent, value::number(text, 0, 100))
}

/// fio replaces `${VARIABLE}` and `$ncpus`; taken literally, such a value would be wrong.
fn substituted(value: &str) -> Result<&str> {
    if value.contains('$') {
        return Err(format!("`{value}`: variables are not supported: write the value itself"));
    }
    Ok(value)
}

fn limit(value: Result<u64>) -> Result<Option<u64>> {
    value.map(|value| (value > 0).then_some(value))
}

fn pattern(draft: &mut Draft, text: &str) -> Result<()> {
    (draft.random, draft.direction) = match text {
        "read" => (false, Direction::Read),
        "write" => (false, Direction::Write),
        "rw" | "readwrite" => (false, Direction::Mixed),
        "randread" => (true, Direction::Read),
        "randwrite" => (true, Direction::Write),
        "randrw" => (true, Direction::Mixed),
        _ if text.contains("trim") => return Err(format!("`{text}`: trims are not supported")),
        _ if text.contains(':') => {
            return Err(format!("`{text}`: steps and repeats after the colon are not supported"));
        }
        _ => {
            return Err(format!("`{text}` is not one of read, write, rw, randread, randwrite, randrw"));
        }
    };
    Ok(())
}

fn engine(draft: &mut Draft, text: &str) -> Result<()> {
    draft.job.method = match text {
        "io_uring" | "libaio" | "posixaio" => Method::IoUring,
        "psync" | "sync" | "pvsync" | "pvsync2" | "vsync" => Method::Threads,
        _ => {
            return Err(format!(
                "`{text}` is not supported: io_uring (or libaio, posixaio) keeps iodepth operations in \
                 flight, psync (or sync, vsync, pvsync) one per job"
            ));
        }
    };
    Ok(())
}

fn sync(draft: &mut Draft, text: &str) -> Result<()> {
    draft.job.sync = match text {
        "none" | "0" => SyncMode::None,
        "sync" | "1" => SyncMode::Sync,
        "dsync" => SyncMode::Dsync,
        _ => return Err(format!("`{text}` is not one of none, sync, dsync")),
    };
    Ok(())
}

/// The lab's verification finds more errors than any of these checksums, so the choice makes no difference.
fn verify(draft: &mut Draft, text: &str) -> Result<()> {
    draft.job.verify = match text {
        "0" => false,
        "md5" | "crc64" | "crc32c" | "crc32c-intel" | "crc32" | "crc16" | "crc7" | "xxhash" | "sha1"
        | "sha256" | "sha512" | "sha3-224" | "sha3-256" | "sha3-384" | "sha3-512" | "meta" => true,
        _ => {
            return Err(format!(
                "`{text}` is not supported: any checksum, such as crc32c, selects the lab's own verification"
            ));
        }
    };
    Ok(())
}

fn base(draft: &mut Draft, text: &str) -> Result<()> {
    draft.base = match text {
        "1000" => Base::Powers1000,
        "1024" => Base::Powers1024,
        _ => return Err(format!("`{text}` is neither 1000 nor 1024")),
    };
    Ok(())
}

/// Colons separate several files, unless escaped.
fn filename(draft: &mut Draft, text: &str) -> Result<()> {
    let plain = text.replace("\\:", "\0");
    if plain.contains(':') {
        return Err(format!(
            "`{text}`: only one file per job; use several jobs for several files (write a colon in a name as \
             \\:)"
        ));
    }
    draft.job.filename = Some(PathBuf::from(plain.replace('\0', ":")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_meaning() {
        let taken = OPTIONS.iter().flat_map(|option| option.0);
        let ignored = IGNORED.iter().flat_map(|ignored| ignored.0);
        let refused = REFUSED.iter().flat_map(|refused| refused.0);
        let mut names: Vec<_> = taken.chain(ignored).chain(refused).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}
