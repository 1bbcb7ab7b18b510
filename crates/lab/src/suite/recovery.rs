//! Suite `recovery`: how long does recovery take, by layout and fill of the pool? (report 003)
//!
//! One test per layout and fill, and some for the width and the records' size. Each gives the duration of a
//! scrub after a zeroed range, of a scrub after scattered corruption, of the resilver of a wiped disk (and of
//! its sequential rebuild, where the layout allows it), with Cenote of a disk's evacuation, and, for
//! comparison, of a copy of a whole disk.

use std::path::PathBuf;

use super::{Options, Plan, Test, Work};
use crate::recovery::{Engine, RECORD_BYTES, Recovery};
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

/// The plan; on `devices` if there are any, otherwise on files.
pub fn plan(options: &Options, devices: &[PathBuf]) -> Plan {
    let quick = options.quick;
    let disk_bytes = options.size_bytes.unwrap_or(if quick { QUICK_DISK_BYTES } else { DISK_BYTES });
    let repeats = options.repeats.unwrap_or(if quick { 1 } else { REPEATS }).max(1);
    let fits = |disks: usize| devices.is_empty() || devices.len() >= disks;
    let tests = shapes(quick).into_iter().filter(|shape| fits(shape.disks)).map(|shape| {
        let Shape { layout, disks, fill_percent, record_bytes } = shape;
        Test {
            name: shape.name(),
            about: format!(
                "{layout} of {disks} disks, records of {}, {fill_percent} % full: zeroed range and scrub, \
                 scattered corruption and scrub, wiped disk and resilver, copy of a disk",
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
             until its completion is reported.{short}"
        ),
        options: options.clone(),
        repeats,
        tests,
    }
}

/// The pool of one test.
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
