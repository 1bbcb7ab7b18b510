//! Sizes as `zfs list` shows them: at most five characters, powers of 1024.
//!
//! Source: behaviour of OpenZFS `zfs_nicenum`: whole multiples print without a fraction, other values with as
//! many decimals as fit.

const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// A count: `1000`, `12.3K`, `4M`.
pub fn nice_number(value: u64) -> String {
    let unit = (value.max(1).ilog2() / 10) as usize;
    let scale = 1u64 << (10 * unit);
    if value.is_multiple_of(scale) {
        return format!("{}{}", value / scale, UNITS[unit]);
    }
    let scaled = value as f64 / scale as f64;
    (0..=2)
        .rev()
        .map(|digits| format!("{scaled:.digits$}{}", UNITS[unit]))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{scaled:.0}{}", UNITS[unit]))
}

/// Bytes: like `nice_number`, with a `B` below 1 KiB.
pub fn nice_bytes(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes}B") } else { nice_number(bytes) }
}

/// A span of time: `512ns`, `16us`, `2ms`, `1s`.
pub fn time_span(ns: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| ns >= *unit).unwrap_or((1, "ns"));
    format!("{}{name}", ns / unit)
}

/// Parses `4096`, `128K`, `1.5G`, `2TiB`; `None` if the text is no size, or has
/// spaces around it.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let suffix = suffix.to_ascii_uppercase();
    let suffix = suffix.strip_suffix("IB").or(suffix.strip_suffix('B')).unwrap_or(&suffix);
    let unit = UNITS.iter().position(|u| *u == suffix)?;
    let scale = 1u64 << (10 * unit);
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(scale),
        Err(_) => {
            let bytes = number.parse::<f64>().ok()? * scale as f64;
            (bytes >= 0.0 && bytes < u64::MAX as f64).then_some(bytes as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_as_zfs_list_prints_them() {
        for (bytes, text) in [
            (0, "0B"),
            (512, "512B"),
            (1023, "1023B"),
            (1024, "1K"),
            (24576, "24K"),
            (1536, "1.50K"),
            (15565, "15.2K"),
            (125952, "123K"),
            (1048575, "1024K"),
            (100663296, "96M"),
            (95944704, "91.5M"),
            (1 << 40, "1T"),
            (u64::MAX, "16.0E"),
        ] {
            assert_eq!(nice_bytes(bytes), text);
        }
    }

    #[test]
    fn sizes_are_read_back() {
        assert_eq!(parse_bytes("128K"), Some(131072));
        assert_eq!(parse_bytes("1.5g"), Some(3 << 29));
        assert_eq!(parse_bytes("2TiB"), Some(2 << 40));
        assert_eq!(parse_bytes("-1"), None);
        assert_eq!(parse_bytes("12 apples"), None);
        assert_eq!([" 1M", "1M ", "1 M", "1M\n"].map(parse_bytes), [None; 4]);
    }
}
