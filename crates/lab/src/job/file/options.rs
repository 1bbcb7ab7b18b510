//! What each option does to a job, one a line.

use std::path::PathBuf;

use super::draft::{Direction, Draft};
use super::unsupported::{IGNORED, REFUSED};
use super::value::{self, Base, Result};
use crate::job::{Method, SyncMode};

const SECONDS: u64 = 1_000_000_000;
const MICROSECONDS: u64 = 1_000;

/// Sets an option of a draft from its value.
enum Setter {
    /// Needs a value.
    Value(fn(&mut Draft, &str) -> Result<()>),
    /// 0 or 1, or bare, which is 1.
    Flag(fn(&mut Draft, bool)),
}

use Setter::{Flag, Value};

/// Its names, and what it does.
type Option_ = (&'static [&'static str], Setter);

#[rustfmt::skip]
const OPTIONS: &[Option_] = &[
    // What
    (&["name"], Value(|d, v| put(&mut d.job.name, Ok(v.to_owned())))),
    (&["rw", "readwrite"], Value(pattern)),
    (&["rwmixread"], Value(|d, v| put(&mut d.mix_percent, value::number(v, 0, 100)))),
    (&["rwmixwrite"], Value(|d, v| put(&mut d.mix_percent, value::number::<u8>(v, 0, 100).map(|w| 100 - w)))),
    (&["bs", "blocksize"], Value(|d, v| { let base = d.base; value::each(&mut d.job.block_sizes, v, |v| value::block_size(base, v)) })),
    (&["bsrange", "blocksize_range"], Value(|d, v| { let base = d.base; value::each(&mut d.job.block_sizes, v, |v| value::block_range(base, v)) })),
    (&["bssplit"], Value(|d, v| { let base = d.base; value::each(&mut d.job.block_sizes, v, |v| value::block_split(base, v)) })),
    (&["random_distribution"], Value(|d, v| put(&mut d.job.distribution, value::distribution(v)))),
    (&["norandommap"], Flag(|d, on| d.job.no_random_map = on)),
    (&["randseed"], Value(|d, v| put(&mut d.job.seed, value::number(v, 0, u64::MAX)))),
    // Where
    (&["filename"], Value(filename)),
    (&["size"], Value(|d, v| put(&mut d.job.size_bytes, value::size(d.base, v)))),
    (&["io_size", "io_limit"], Value(|d, v| put(&mut d.job.io_size_bytes, value::size(d.base, v).map(Some)))),
    (&["offset"], Value(|d, v| put(&mut d.job.offset_bytes, value::size(d.base, v)))),
    (&["kb_base"], Value(base)),
    // How
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
    // When
    (&["runtime", "timeout"], Value(|d, v| put(&mut d.job.runtime_ns, value::time(SECONDS, v).map(|ns| (ns > 0).then_some(ns))))),
    (&["time_based"], Flag(|d, on| d.job.time_based = on)),
    (&["ramp_time"], Value(|d, v| put(&mut d.job.ramp_ns, value::time(SECONDS, v)))),
    (&["startdelay"], Value(|d, v| put(&mut d.job.start_delay_ns, value::time(SECONDS, v)))),
    (&["stonewall", "wait_for_previous"], Flag(|d, on| d.job.stonewall = on)),
    (&["rate"], Value(|d, v| { let base = d.base; value::each(&mut d.job.rate_bytes, v, |v| limit(value::size(base, v))) })),
    (&["rate_iops"], Value(|d, v| value::each(&mut d.job.rate_iops, v, |v| limit(value::number(v, 0, u32::MAX.into()))))),
    (&["thinktime"], Value(|d, v| put(&mut d.job.think_ns, value::time(MICROSECONDS, v)))),
    (&["thinktime_blocks"], Value(|d, v| put(&mut d.job.think_blocks, value::number(v, 1, u32::MAX.into())))),
    // With which content
    (&["zero_buffers"], Flag(|d, on| d.zero_buffers = on)),
    (&["refill_buffers"], Flag(|d, on| d.refill_buffers = on)),
    (&["scramble_buffers"], Flag(|d, on| d.scramble_buffers = on)),
    (&["buffer_compress_percentage"], Value(|d, v| put(&mut d.job.compress_percent, value::number(v, 0, 100)))),
    (&["dedupe_percentage"], Value(|d, v| put(&mut d.job.dedupe_percent, value::number(v, 0, 100)))),
    (&["verify"], Value(verify)),
    // Told how
    (&["group_reporting"], Flag(|d, on| d.job.group = on)),
];

/// Does what the option says, or says why not.
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
        // What changes nothing is no reason to refuse a file.
        Some((_, _, Some(neutral))) if value.is_some_and(|value| neutral.contains(&value)) => Ok(()),
        Some((_, instead, _)) => Err(format!("`{name}` is not done here: {instead}")),
        None => Err(match nearest(name) {
            Some(near) => format!("`{name}` is unknown; did you mean `{near}`?"),
            None => format!("`{name}` is unknown, or an option of fio that is not done here"),
        }),
    }
}

/// The name most like this one, if it is like it at all.
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

/// fio replaces `${VARIABLE}` and `$ncpus`; a value with them would not be what it seems.
fn substituted(value: &str) -> Result<&str> {
    if value.contains('$') {
        return Err(format!("`{value}`: variables aren't replaced here: write the value itself"));
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
        _ if text.contains("trim") => return Err(format!("`{text}`: trims aren't done here")),
        _ if text.contains(':') => {
            return Err(format!("`{text}`: steps and repeats after the colon aren't done here"));
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
                "`{text}` is not done here: io_uring (or libaio, posixaio) keeps iodepth operations at once under way, \
                 psync (or sync, vsync, pvsync) one a job"
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

/// Our verification finds more than any of these checksums would; which one was asked for makes no difference.
fn verify(draft: &mut Draft, text: &str) -> Result<()> {
    draft.job.verify = match text {
        "0" => false,
        "md5" | "crc64" | "crc32c" | "crc32c-intel" | "crc32" | "crc16" | "crc7" | "xxhash" | "sha1"
        | "sha256" | "sha512" | "sha3-224" | "sha3-256" | "sha3-384" | "sha3-512" | "meta" => true,
        _ => {
            return Err(format!(
                "`{text}` is not done here: any checksum, such as crc32c, gives our own verification"
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

/// Colons stand between several files, unless escaped.
fn filename(draft: &mut Draft, text: &str) -> Result<()> {
    let plain = text.replace("\\:", "\0");
    if plain.contains(':') {
        return Err(format!(
            "`{text}`: one file a job; several jobs can have one each (a colon in a name is \\:)"
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
