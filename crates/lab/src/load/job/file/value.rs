//! Values of options: sizes, times, flags, and pairs for reads and writes.
//!
//! Sizes: to fio, `k`, `kb`, `m`... are powers of 1024, and, unless `kb_base=1000` is set, `ki`, `kib`... are
//! powers of **1000**. Nobody means 4000 bytes by `4KiB`, but differing from fio would be wrong, too: that
//! form is an error that shows the alternative. With `kb_base=1000` both follow the standards. Times: a bare
//! number has the option's own unit; `d`, `h`, `m`, `s`, `ms`, `us` override it.

use crate::load::job::{BlockSizes, Distribution, ReadWrite};

/// Results with an error sentence for the author of the file.
pub(super) type Result<T> = std::result::Result<T, String>;

/// More sizes than this would be a table, not a job.
const MAX_RANGE_SIZES: u64 = 65_536;

/// fio's limit.
const MAX_SPLIT_SIZES: usize = 64;

/// Meaning of `k` (`kb_base`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// 1024 for `k`.
    Powers1024,
    /// 1000 for `k`, and 1024 for `ki`.
    Powers1000,
}

pub(super) fn size(base: Base, text: &str) -> Result<u64> {
    if text.ends_with('%') {
        return Err(format!("`{text}`: percentages of a file are not supported: give the size itself"));
    }
    let (number, suffix) = number_and_suffix(text).ok_or_else(|| not_a(text, "size, such as 4k or 10g"))?;
    let short = suffix.strip_suffix('b').unwrap_or(&suffix);
    let binary = short.strip_suffix('i').filter(|prefix| !prefix.is_empty());
    let power = match binary.unwrap_or(short) {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(not_a(text, "size, such as 4k or 10g")),
    };
    let factor: u64 = match (base, binary) {
        (Base::Powers1024, None) | (Base::Powers1000, Some(_)) => 1024,
        (Base::Powers1000, None) => 1000,
        (Base::Powers1024, Some(prefix)) => {
            return Err(format!(
                "fio reads `{text}` as a power of 1000: write {number}{prefix} for 1024, or set kb_base=1000 \
                 first"
            ));
        }
    };
    number.checked_mul(factor.pow(power)).ok_or_else(|| format!("`{text}` is too large"))
}

/// A time in nanoseconds; bare numbers have the unit `unit_ns`.
pub(super) fn time(unit_ns: u64, text: &str) -> Result<u64> {
    let wrong = || not_a(text, "time, such as 30s, 5m or 200us");
    let (number, suffix) = number_and_suffix(text).ok_or_else(wrong)?;
    let unit_ns = match suffix.as_str() {
        "" => unit_ns,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit_ns).ok_or_else(|| format!("`{text}` is too long"))
}

pub(super) fn flag(text: &str) -> Result<bool> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(not_a(text, "flag: 0 or 1")),
    }
}

pub(super) fn number<T: TryFrom<u64>>(text: &str, least: u64, most: u64) -> Result<T> {
    let wrong = || format!("`{text}` is not a number from {least} to {most}");
    let (number, suffix) = number_and_suffix(text).ok_or_else(wrong)?;
    let fits = suffix.is_empty() && (least..=most).contains(&number);
    T::try_from(number).ok().filter(|_| fits).ok_or_else(wrong)
}

/// Assigns `reads`, `reads,writes`, `reads,` or `,writes`; a third value, for trims, is an error.
pub(super) fn each<T: Clone>(
    to: &mut ReadWrite<T>,
    text: &str,
    parse: impl Fn(&str) -> Result<T>,
) -> Result<()> {
    let mut parts = text.split(',').map(str::trim);
    let read = parts.next().unwrap_or("");
    let Some(write) = parts.next() else {
        to.read = parse(read)?;
        to.write = to.read.clone();
        return Ok(());
    };
    if !read.is_empty() {
        to.read = parse(read)?;
    }
    if !write.is_empty() {
        to.write = parse(write)?;
    }
    Ok(())
}

pub(super) fn block_size(base: Base, text: &str) -> Result<BlockSizes> {
    Ok(BlockSizes::of(block_bytes(base, text)?))
}

/// `least-most`: all multiples of the smallest size.
pub(super) fn block_range(base: Base, text: &str) -> Result<BlockSizes> {
    let (least, most) =
        text.split_once(['-', ':']).ok_or_else(|| not_a(text, "range of sizes, such as 4k-64k"))?;
    let (least, most) = (block_bytes(base, least.trim())?, block_bytes(base, most.trim())?);
    if least > most {
        return Err(format!("`{text}`: the smaller size comes first"));
    }
    if u64::from(most / least) > MAX_RANGE_SIZES {
        return Err(format!("`{text}` has more than {MAX_RANGE_SIZES} sizes: raise the smallest one"));
    }
    Ok(BlockSizes((1..=most / least).map(|times| (times * least, 1)).collect()))
}

/// `size/percent:size/percent`; sizes without a percentage share the rest.
pub(super) fn block_split(base: Base, text: &str) -> Result<BlockSizes> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (bytes, percent) = part.split_once('/').unwrap_or((part, ""));
        let percent = match percent.trim() {
            "" => None,
            percent => Some(number::<u32>(percent, 0, 100)?),
        };
        sizes.push((block_bytes(base, bytes.trim())?, percent));
    }
    if sizes.len() > MAX_SPLIT_SIZES {
        return Err(format!("a split has at most {MAX_SPLIT_SIZES} sizes, not {}", sizes.len()));
    }
    let given: u32 = sizes.iter().filter_map(|size| size.1).sum();
    let open = sizes.iter().filter(|size| size.1.is_none()).count() as u32;
    if given > 100 || (open == 0 && given != 100) {
        return Err(format!("`{text}`: the percentages add up to {given}, not to 100"));
    }
    let mut left = 100 - given;
    let mut still_open = open;
    let mut share = |percent: Option<u32>| {
        percent.unwrap_or_else(|| {
            let share = left / still_open;
            (left, still_open) = (left - share, still_open - 1);
            share
        })
    };
    let sizes: Vec<(u32, u32)> = sizes.into_iter().map(|(bytes, percent)| (bytes, share(percent))).collect();
    Ok(match sizes[..] {
        [(bytes, _)] => BlockSizes::of(bytes),
        _ => BlockSizes(sizes),
    })
}

/// `random`, `zipf:theta`, `pareto:h` or `normal:percent`.
pub(super) fn distribution(text: &str) -> Result<Distribution> {
    let (name, parameter) = text.split_once(':').map_or((text, None), |(name, p)| (name, Some(p)));
    let number = |fallback: Option<f64>, ok: fn(f64) -> bool, about: &str| match parameter {
        None => fallback.ok_or_else(|| format!("`{text}` lacks its parameter: {about}")),
        Some(p) => {
            let number = p.parse().ok().filter(|&p: &f64| p.is_finite() && ok(p));
            number.ok_or_else(|| format!("`{p}` is not a valid parameter of {name}: {about}"))
        }
    };
    match name {
        "random" if parameter.is_none() => Ok(Distribution::Random),
        "zipf" => {
            let about = "one number above 0 other than 1, such as zipf:1.2";
            Ok(Distribution::Zipf(number(Some(1.1), |p| p > 0.0 && p != 1.0, about)?))
        }
        "pareto" => {
            let about = "one number between 0 and 1, such as pareto:0.2";
            Ok(Distribution::Pareto(number(Some(0.2), |p| p > 0.0 && p < 1.0, about)?))
        }
        "normal" => {
            let about = "one number above 0 and up to 100, in percent of the file, such as normal:10";
            Ok(Distribution::Normal(number(None, |p| p > 0.0 && p <= 100.0, about)?))
        }
        _ => Err(format!("`{text}` is not one of random, zipf:theta, pareto:h, normal:percent")),
    }
}

fn block_bytes(base: Base, text: &str) -> Result<u32> {
    let bytes = size(base, text)?;
    match u32::try_from(bytes) {
        Ok(bytes @ 1..) if bytes <= 1 << 30 => Ok(bytes),
        _ => Err(format!("`{text}`: a block size is from 1 byte to 1 GiB")),
    }
}

/// `12k` is 12 and "k", with the suffix in lower case.
fn number_and_suffix(text: &str) -> Option<(u64, String)> {
    if let Some(digits) = text.strip_prefix("0x") {
        return Some((u64::from_str_radix(digits, 16).ok()?, String::new()));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].to_ascii_lowercase()))
}

fn not_a(text: &str, what: &str) -> String {
    format!("`{text}` is not a {what}")
}
