//! Suite `recovery`: how long does recovery take, by layout and fill of the pool? (report 003)
//!
//! One test per layout and fill. Each gives the duration of a scrub after a zeroed range, of a
//! scrub after scattered corruption, of the resilver of a wiped disk, and, for comparison, of a
//! copy of a whole disk.

use std::path::PathBuf;

use super::{Options, Plan, Test, Work};
use crate::recovery::Recovery;
use crate::unit::Unit;

/// Layouts and their number of disks: two for data each, except for the mirror.
const LAYOUTS: [(&str, usize); 4] = [("mirror", 2), ("raidz1", 3), ("raidz2", 4), ("raidz3", 5)];
const FILLS: [u8; 3] = [25, 50, 75];
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
    let (layouts, fills) = if quick { (&LAYOUTS[..2], &FILLS[1..2]) } else { (&LAYOUTS[..], &FILLS[..]) };
    let fits = |disks: usize| devices.is_empty() || devices.len() >= disks;
    let mut tests = Vec::new();
    for &(layout, disks) in layouts.iter().filter(|&&(_, disks)| fits(disks)) {
        for &fill_percent in fills {
            tests.push(Test {
                name: format!("{layout}-{fill_percent}"),
                about: format!(
                    "{layout} of {disks} disks, {fill_percent} % full: zeroed range and scrub, scattered \
                     corruption and scrub, wiped disk and resilver, copy of a disk"
                ),
                work: Work::Recovery(Recovery {
                    layout: layout.into(),
                    disks,
                    disk_bytes,
                    devices: devices.to_vec(),
                    fill_percent,
                    zero_percent: ZERO_PERCENT,
                    scattered: SCATTERED,
                }),
            });
        }
    }
    let on = if devices.is_empty() {
        format!("files of {}", Unit::Bytes.show(disk_bytes as f64))
    } else {
        "the given devices".into()
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
            "How long does recovery take? Pools are created on {on}, filled with incompressible data (AES in \
             counter mode), damaged and repaired. Times run from the command until the module reports \
             completion.{short}"
        ),
        options: options.clone(),
        repeats,
        tests,
    }
}
