//! Suite `bonnie`: bonnie++'s tests, repeated (report 003).

use super::{Options, Plan, Test, Work};
use crate::load::bonnie::Bonnie;
use crate::unit::{Unit, times};

const REPEATS: u32 = 5;
const QUICK_REPEATS: u32 = 3;
const QUICK_BYTES: u64 = 1 << 30;
const BLOCK_BYTES: u32 = 8192;
/// bonnie++'s defaults.
const SEEKS: u64 = 8192;
const SEEKERS: u32 = 5;
const FILES: u64 = 16 * 1024;
const QUICK_FILES: u64 = 4 * 1024;

/// Plan for a number of targets.
pub fn plan(options: &Options, targets: usize) -> Plan {
    let quick = options.quick;
    let in_turn = if options.together { 1 } else { targets.max(1) as u64 };
    let own = if quick { QUICK_BYTES / in_turn } else { options.memory_bytes.saturating_mul(2) };
    // bonnie++ accepts only whole mebibytes.
    let size_bytes = options.size_bytes.unwrap_or(own).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX);
    let fits_in_memory = size_bytes < options.memory_bytes.saturating_mul(2);
    let repeats = options.repeats.unwrap_or(if quick { QUICK_REPEATS } else { REPEATS }).max(1);
    let files = if quick { QUICK_FILES } else { FILES };
    let work = Bonnie {
        size_bytes,
        block_bytes: BLOCK_BYTES,
        seeks: SEEKS,
        seekers: SEEKERS,
        files,
        seed: 1,
        fits_in_memory,
        real: options.real,
    };
    let size = Unit::Bytes.show(size_bytes as f64);
    let by = if options.real { "the real bonnie++" } else { "Cenote's own version of bonnie++" };
    let memory = match fits_in_memory {
        true => " The data set is smaller than twice the memory, so caches affect the figures.",
        false => " The data set is at least twice the memory, so caches cannot hold it.",
    };
    let short = if quick { " This is a quick run: a small data set, few files, few repeats." } else { "" };
    Plan {
        suite: "bonnie".into(),
        title: "bonnie".into(),
        method: format!(
            "How fast are blocks of {BLOCK_BYTES} bytes written, rewritten and read sequentially, and \
             visited at random by {SEEKERS} seekers? How fast are {files} files created, examined and \
             deleted, with ordered and with random names? Measured by {by}, {}, on {size}.{memory}{short}",
            times(repeats)
        ),
        options: options.clone(),
        repeats,
        tests: vec![Test {
            name: "bonnie".into(),
            about: format!("Blocks of {BLOCK_BYTES} bytes in {size}, and {files} small files, by {by}"),
            work: Work::Bonnie(work),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(options: &Options) -> Bonnie {
        match plan(options, 1).tests.remove(0).work {
            Work::Bonnie(bonnie) => bonnie,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_data_set_is_twice_the_memory_by_default() {
        let options = Options { memory_bytes: 8 << 30, ..Options::default() };
        let full = work(&options);
        assert_eq!((full.size_bytes, full.fits_in_memory), (16 << 30, false));
        assert_eq!(plan(&options, 1).repeats, 5);
        let quick = work(&Options { quick: true, ..options.clone() });
        assert!(quick.fits_in_memory);
        let chosen = work(&Options { size_bytes: Some((1 << 20) + 1), real: true, ..options });
        assert_eq!((chosen.size_bytes, chosen.real), (2 << 20, true));
    }
}
