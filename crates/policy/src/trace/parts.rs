//! Sums of requests by dataset and class, from traces that record them (`cenote trace record`).

use std::collections::BTreeMap;

use crate::policy::Class;

/// Most datasets kept apart; the rest share one sum.
const MOST_DATASETS: usize = 100_000;

/// Sums by dataset and class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    sums: BTreeMap<(u64, bool), Sum>,
    names: BTreeMap<u64, String>,
}

/// Requests of a dataset and class, without writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// All.
    pub requests: u64,
    /// Requests that missed the cache.
    pub missed: u64,
    /// Their bytes.
    pub missed_bytes: u64,
}

/// The sum of one dataset and class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The dataset's name, or else its number.
    pub dataset: String,
    /// The class.
    pub class: Class,
    /// Its requests.
    pub sum: Sum,
}

impl Parts {
    pub(super) fn add(&mut self, dataset: u64, class: Class, was_hit: bool, bytes: u64) {
        let key = (dataset, class == Class::Metadata);
        let key =
            if self.sums.len() < MOST_DATASETS || self.sums.contains_key(&key) { key } else { (0, key.1) };
        let sum = self.sums.entry(key).or_default();
        sum.requests += 1;
        if !was_hit {
            sum.missed += 1;
            sum.missed_bytes = sum.missed_bytes.saturating_add(bytes);
        }
    }

    pub(super) fn name(&mut self, dataset: u64, name: &str) {
        if self.names.len() < MOST_DATASETS {
            self.names.insert(dataset, name.to_owned());
        }
    }

    /// All sums, by missed bytes, descending.
    pub fn list(&self) -> Vec<Part> {
        let name = |dataset: &u64| match self.names.get(dataset) {
            Some(name) => name.clone(),
            None if *dataset == 0 => "MOS".to_owned(),
            None => format!("dataset {dataset}"),
        };
        let class = |is_metadata: bool| if is_metadata { Class::Metadata } else { Class::Data };
        let part = |((dataset, is_metadata), sum): (&(u64, bool), &Sum)| Part {
            dataset: name(dataset),
            class: class(*is_metadata),
            sum: *sum,
        };
        let mut parts: Vec<Part> = self.sums.iter().map(part).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.sum.missed_bytes));
        parts
    }

    /// Misses for metadata (the share of a special vdev), and in all.
    pub fn special(&self) -> Option<[Sum; 2]> {
        let mut sums = [Sum::default(); 2];
        for ((_, is_metadata), sum) in &self.sums {
            for total in sums.iter_mut().skip(usize::from(!is_metadata)) {
                total.requests += sum.requests;
                total.missed += sum.missed;
                total.missed_bytes = total.missed_bytes.saturating_add(sum.missed_bytes);
            }
        }
        (sums[1].missed > 0).then_some(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_summed_by_dataset_and_class() {
        let mut parts = Parts::default();
        assert_eq!(parts.special(), None);
        parts.add(54, Class::Data, true, 4096);
        parts.add(54, Class::Data, false, 4096);
        parts.add(54, Class::Metadata, false, 512);
        parts.add(7, Class::Data, false, 8192);
        parts.name(54, "tank/fs");
        let list = parts.list();
        let shown: Vec<(&str, Class, u64, u64)> = list
            .iter()
            .map(|part| (&*part.dataset, part.class, part.sum.requests, part.sum.missed))
            .collect();
        assert_eq!(
            shown,
            [
                ("dataset 7", Class::Data, 1, 1),
                ("tank/fs", Class::Data, 2, 1),
                ("tank/fs", Class::Metadata, 1, 1)
            ]
        );
        let [metadata, all] = parts.special().unwrap();
        assert_eq!(
            (metadata.missed, metadata.missed_bytes, all.missed, all.missed_bytes),
            (1, 512, 3, 12_800)
        );
    }
}
