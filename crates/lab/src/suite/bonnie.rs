//! Suite `bonnie`: bonnie++'s tests, repeated (report 003).

use super::{Options, Plan, Test, Work};
use crate::bonnie::Bonnie;
use crate::unit::{Unit, times};

const REPEATS: u32 = 5;
const QUICK_REPEATS: u32 = 3;
const QUICK_BYTES: u64 = 1 << 30;
const BLOCK_BYTES: u32 = 8192;
/// bonnie++'s own numbers.
const SEEKS: u64 = 8192;
const SEEKERS: u32 = 5;
const FILES: u64 = 16 * 1024;
const QUICK_FILES: u64 = 4 * 1024;

/// The plan for so many targets.
pub fn plan(options: &Options, targets: usize) -> Plan {
    let quick = options.quick;
    let in_turn = if options.together { 1 } else { targets.max(1) as u64 };
    let own = if quick { QUICK_BYTES / in_turn } else { options.memory_bytes.saturating_mul(2) };
    // Whole mebibytes: bonnie++ takes no less.
    let size_bytes = options.size_bytes.unwrap_or(own).next_multiple_of(1 << 20).max(1 << 20);
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
    let by = if options.real { "the real bonnie++" } else { "this program, in bonnie++'s way" };
    let memory = match fits_in_memory {
        true => " The data set is smaller than twice the memory, so caches take part.",
        false => " The data set is at least twice the memory, so that caches can't hold it.",
    };
    let short = if quick { " This is a quick run: a small data set, few files, few repeats." } else { "" };
    Plan {
        suite: "bonnie".into(),
        title: "bonnie".into(),
        method: format!(
            "How fast are blocks of {BLOCK_BYTES} bytes written one after the other, read and written again, read, and visited at random places by {SEEKERS} seekers, and how \
             fast are {files} files created, looked at and deleted, with names in order and with random names? Done by {by}, {}, on {size}.{memory}{short}",
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
    fn the_data_set_is_twice_the_memory_unless_chosen_otherwise() {
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
