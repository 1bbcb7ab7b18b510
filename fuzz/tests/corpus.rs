//! The corpus passes: every real structure and every input that ever failed, whole and cut short.

use cenote_fuzz::corpus;
use cenote_fuzz::targets::TARGETS;

/// Places at which each input is cut.
const CUTS: usize = 32;

#[test]
fn every_input_passes_whole_and_cut() {
    for target in TARGETS {
        for (name, data) in corpus::load(target.name) {
            println!("{}/{name}", target.name); // shown if it fails
            (target.run)(&data);
            for cut in 0..CUTS {
                (target.run)(&data[..data.len() * cut / CUTS]);
            }
        }
    }
}
