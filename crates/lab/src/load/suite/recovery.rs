//! Suite `recovery`: how long does recovery take, by layout and fill of the pool? (report 003)
//!
//! One test per layout and fill, and some for the width and the record size. Each measures a scrub after a
//! zeroed range, a scrub after scattered corruption, the resilver of a wiped disk (and its sequential
//! rebuild, where the layout allows it), and, for comparison, a copy of a whole disk. With Cenote on files,
//! disks are also exchanged for new ones after a loss, while they work, and while they fail, with and without
//! users at work.

use std::path::PathBuf;

use super::{Options, Plan, Test, Work};
use crate::load::recovery::{Engine, RECORD_BYTES, Recovery, UNREADABLE_PERCENT};
use crate::unit::Unit;

/// Layouts and their number of disks: two for data each, except for the mirror.
const LAYOUTS: [(&str, usize); 5] =
    [("mirror", 2), ("raidz1", 3), ("raidz2", 4), ("raidz3", 5), ("draid1:2d:4c:1s", 4)];
const FILLS: [u8; 3] = [25, 50, 75];
/// Wider vdevs, half full.
const WIDTHS: [(&str, usize); 2] = [("raidz2", 6), ("raidz2", 10)];
/// Smaller records, on the first and the third layout, half full.
const RECORDS: [u64; 2] = [128 << 10, 16 << 10];
const HALF: u8 = 50;
const DISK_BYTES: u64 = 4 << 30;
const QUICK_DISK_BYTES: u64 = 256 << 20;
const ZERO_PERCENT: u8 = 10;
const SCATTERED: u32 = 1000;
/// Fewer than four repeats cannot support any difference.
const REPEATS: u32 = 5;

/// The plan; on `devices` if any, otherwise on files.
pub fn plan(options: &Options, devices: &[PathBuf]) -> Plan {
    let quick = options.quick;
    let disk_bytes = options.size_bytes.unwrap_or(if quick { QUICK_DISK_BYTES } else { DISK_BYTES });
    let repeats = options.repeats.unwrap_or(if quick { 1 } else { REPEATS }).max(1);
    let exchanges = options.engine == Engine::Cenote && devices.is_empty();
    let more = if exchanges { "; disks lost and resilvered, evacuated while they work or fail" } else { "" };
    let fits = |disks: usize| devices.is_empty() || devices.len() >= disks;
    let tests = shapes(quick).into_iter().filter(|shape| fits(shape.disks)).map(|shape| {
        let Shape { layout, disks, fill_percent, record_bytes } = shape;
        Test {
            name: shape.name(),
            about: format!(
                "{layout} of {disks} disks, records of {}, {fill_percent} % full: zeroed range and scrub, \
                 scattered corruption and scrub, wiped disk and resilver, copy of a disk{more}",
                Unit::Bytes.show(record_bytes as f64)
            ),
            work: Work::Recovery(Recovery {
                engine: options.engine,
                layout: layout.into(),
                record_bytes,
                disks,
                disk_bytes,
                devices: devices.to_vec(),
                fill_percent,
                zero_percent: ZERO_PERCENT,
                scattered: SCATTERED,
            }),
        }
    });
    let tests = tests.collect();
    let on = if devices.is_empty() {
        format!("files of {}", Unit::Bytes.show(disk_bytes as f64))
    } else {
        "the given devices".into()
    };
    let holder = match options.engine {
        Engine::Module => "OpenZFS's kernel module",
        Engine::Cenote => "a daemon of Cenote",
    };
    let exchanged = match exchanges {
        true => format!(
            " Exchanges of a disk for a new one: `lost resilver` takes the disk out of use first; `well \
             evacuate` copies from it while it works; `failing evacuate` does so while {UNREADABLE_PERCENT} \
             % of its sectors (512 bytes, at random) can't be read. What was read and written is the sum \
             over all disks, users included. `may fail` is how many more disks the pool could have lost at \
             its worst moment, by the state of the disk, and `less redundant` how long it could lose fewer \
             than usual. `busy` is with users at work: 50 operations of 64 KiB a second at random, a quarter \
             of them writes, in files that no cache holds."
        ),
        false => String::new(),
    };
    let short = if quick {
        " This is a quick run: small disks, two layouts, one fill level, one repeat."
    } else {
        ""
    };
    Plan {
        suite: "recovery".into(),
        title: "Recovery of damaged pools".into(),
        method: format!(
            "How long does recovery take? Pools are created on {on}, held by {holder}, filled with \
             incompressible data (AES in counter mode), damaged and repaired. Times run from the command \
             until its completion is reported. Scans read the disks themselves, so cache devices don't make \
             them faster; targets on other media are compared by the same tests.{exchanged}{short}"
        ),
        options: options.clone(),
        repeats,
        tests,
    }
}

struct Shape {
    layout: &'static str,
    disks: usize,
    fill_percent: u8,
    record_bytes: u64,
}

impl Shape {
    /// `raidz2-50`, `raidz2-6w-50`, `mirror-50-16k`.
    fn name(&self) -> String {
        let kind = self.layout.split(':').next().unwrap_or_default();
        let is_usual = LAYOUTS.contains(&(self.layout, self.disks));
        let width = if is_usual { String::new() } else { format!("-{}w", self.disks) };
        let records = match self.record_bytes {
            RECORD_BYTES => String::new(),
            bytes => format!("-{}k", bytes >> 10),
        };
        format!("{kind}{width}-{}{records}", self.fill_percent)
    }
}

fn shapes(quick: bool) -> Vec<Shape> {
    let usual = |(layout, disks): (&'static str, usize), fill_percent| Shape {
        layout,
        disks,
        fill_percent,
        record_bytes: RECORD_BYTES,
    };
    if quick {
        return LAYOUTS[..2].iter().map(|&layout| usual(layout, HALF)).collect();
    }
    let mut shapes: Vec<Shape> =
        LAYOUTS.iter().flat_map(|&layout| FILLS.map(|fill| usual(layout, fill))).collect();
    shapes.extend(WIDTHS.map(|layout| usual(layout, HALF)));
    for layout in [LAYOUTS[0], LAYOUTS[2]] {
        shapes.extend(RECORDS.map(|record_bytes| Shape { record_bytes, ..usual(layout, HALF) }));
    }
    shapes
}
