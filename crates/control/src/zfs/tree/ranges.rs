//! Snapshots selected by names and ranges.

use std::collections::HashMap;
use std::ops::Range;

use cenote_dataset::Dataset;

/// Which of a dataset's snapshots, oldest first, a list of names and ranges selects; unknown names are
/// ignored.
pub fn meant_by(spec: &str, all: &[Dataset]) -> Vec<bool> {
    let names = all.iter().map(|snapshot| snapshot.snapshot_name().unwrap_or_default());
    let places: HashMap<&str, usize> = names.zip(0..).collect();
    let place = |name: &str| places.get(name).copied();
    let mut meant = vec![false; all.len()];
    for part in spec.split(',') {
        let range = match part.split_once('%') {
            None => place(part).map(|at| at..at + 1),
            Some((first, last)) => {
                let start = if first.is_empty() { Some(0) } else { place(first) };
                let end = if last.is_empty() { Some(all.len()) } else { place(last).map(|at| at + 1) };
                start.zip(end).filter(|(start, end)| start < end).map(|(start, end)| start..end)
            }
        };
        if let Some(range) = range {
            meant[range].fill(true);
        }
    }
    meant
}

/// Runs of consecutive snapshots.
pub fn runs(meant: &[bool]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in meant.iter().enumerate().filter(|(_, meant)| **meant) {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    #[test]
    fn neighbours_are_one_run() {
        assert_eq!(super::runs(&[true, true, false, true, false]), [0..2, 3..4]);
        assert_eq!(super::runs(&[false, false]), []);
    }
}
