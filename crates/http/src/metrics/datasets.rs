//! `cenote_dataset_*`: wait times of dataset users, through mounts or disk protocols.
//!
//! Bound: histograms only for the [`DATASETS_MAX`] datasets with the most requests so far. So a pool of
//! thousands adds one megabyte, not a hundred. A metric counts the omitted datasets.

use std::cmp::Reverse;

use cenote_host::kstat::DatasetCounts;
use cenote_object::{Wait, Waited};

use super::families::{Families, Histogram, Kind};

/// Datasets with histograms, about 9 KB each.
const DATASETS_MAX: usize = 100;

/// Wait classes and their labels.
const WAITS: [(Wait, &str); 3] = [(Wait::Read, "read"), (Wait::Write, "write"), (Wait::Commit, "commit")];

/// Adds metrics of open datasets, given with their pools' names.
pub fn add(datasets: &[(String, DatasetCounts)], families: &mut Families) {
    let waited = |dataset: &DatasetCounts| WAITS.map(|(wait, _)| dataset.traffic.waited(wait));
    let mut used: Vec<_> = datasets
        .iter()
        .map(|(pool, dataset)| (pool, &dataset.name, waited(dataset)))
        .map(|(pool, name, waited)| (waited.iter().map(requests).sum::<u64>(), pool, name, waited))
        .filter(|(requests, ..)| *requests > 0)
        .collect();
    // Ties are broken by name, so that the selection is stable.
    used.sort_by_key(|(requests, pool, name, _)| (Reverse(*requests), *pool, *name));
    let omitted = used.len().saturating_sub(DATASETS_MAX);
    let family = (Kind::Gauge, "Datasets in use that are too many to be shown with their latencies.");
    families.add("cenote_dataset_latency_omitted", family, &[], omitted as f64);
    for (_, pool, name, waited) in used.iter().take(DATASETS_MAX) {
        for ((_, wait), waited) in WAITS.iter().zip(waited).filter(|(_, waited)| requests(waited) > 0) {
            let labels = [("pool", pool.as_str()), ("dataset", name.as_str()), ("operation", wait)];
            let (family, help) = ("cenote_dataset_latency_seconds", "How long users of a dataset waited.");
            let times = Histogram::of_times(&waited.times, waited.sum_ns as f64 / 1e9);
            families.add_histogram(family, help, &labels, &times);
        }
    }
}

fn requests(waited: &Waited) -> u64 {
    waited.times.iter().sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cenote_format::units::DatasetId;
    use cenote_object::Traffic;
    use cenote_runtime::{Runtime, SimConfig};

    use super::*;
    use crate::metrics::families::Format;

    #[test]
    fn the_busiest_datasets_are_shown_and_the_others_counted() {
        let work = |runtime: Runtime| async move {
            let mut datasets = Vec::new();
            for number in 0..DATASETS_MAX + 20 {
                let traffic = Arc::new(Traffic::default());
                // The last ten are unused.
                let requests = (DATASETS_MAX + 10).saturating_sub(number);
                for _ in 0..requests {
                    traffic
                        .timed(&runtime, Wait::Read, runtime.sleep(std::time::Duration::from_millis(3)))
                        .await;
                }
                let name = format!("tank/{number}");
                let counts = DatasetCounts { id: DatasetId(1), name, counts: Vec::new(), traffic };
                datasets.push(("tank".to_owned(), counts));
            }
            let mut families = Families::new(Format::Text);
            add(&datasets, &mut families);
            String::from_utf8(families.written()).unwrap()
        };
        let (text, _) = Runtime::simulate(SimConfig::default(), work);
        assert!(text.contains("cenote_dataset_latency_omitted 10\n"), "{text}");
        let of = |number: usize| {
            let labels = format!("pool=\"tank\",dataset=\"tank/{number}\",operation=\"read\"");
            format!("cenote_dataset_latency_seconds_count{{{labels}}} ")
        };
        assert!(text.contains(&(of(0) + "110\n")), "{text}");
        assert!(text.contains(&of(DATASETS_MAX - 1)) && !text.contains(&of(DATASETS_MAX)), "{text}");
        assert!(!text.contains("operation=\"write\""), "nobody wrote: {text}");
        // 3 ms lies between 2^21 and 2^22 ns.
        assert!(text.contains("tank/0\",operation=\"read\",le=\"0.004194304\"} 110\n"), "{text}");
        assert!(text.contains("tank/0\",operation=\"read\",le=\"0.002097152\"} 0\n"), "{text}");
        assert!(text.len() < 10_000 * DATASETS_MAX, "{}", text.len());
    }
}
