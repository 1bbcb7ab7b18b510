//! `arcstat`: activity of the caches of the daemon's pools, a line per interval.
//!
//! Source: OpenZFS's `arcstat` (its default columns).

mod report;

use cenote_control::running::arcstat::{ClassStats, L2Stats, PrefetchStats, Sample};
use cenote_control::text::date;
use serde_json::{Map, Value, json};

use crate::json::document;
use crate::numbers::{Numbers, hit_percent};
use crate::table::{Align, Table};

/// Content and form of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// Each pool, and the values that its policy adapts.
    pub verbose: bool,
    /// How numbers are printed.
    pub numbers: Numbers,
    /// No header, tabs between columns.
    pub script: bool,
}

/// Reports about the cache of each pool, with advice.
pub fn reports(samples: &[Sample]) -> String {
    samples.iter().map(report::text).collect::<Vec<_>>().join("\n")
}

/// The same as JSON.
pub fn reports_json(samples: &[Sample]) -> Value {
    let entries = samples.iter().map(|of| (of.pool.clone(), report::as_json(of)));
    document("arcstat", "caches", entries.collect())
}

impl Layout {
    /// As text. `is_first`: nothing was printed before.
    pub fn text(&self, shown: &[Sample], unix_seconds: i64, is_first: bool) -> String {
        const COLUMNS: [&str; 13] = [
            "read", "h%", "ddread", "ddh%", "dmread", "dmh%", "pread", "ph%", "used%", "evicted", "blocks",
            "size", "c",
        ];
        let head = [("time", Align::Left)].into_iter().chain(self.verbose.then_some(("pool", Align::Left)));
        let has_second = shown.iter().any(|sample| sample.second.devices > 0);
        let second: &[&str] =
            if has_second { &["l2read", "l2h%", "l2bytes", "l2asize", "l2hdr"] } else { &[] };
        let columns = COLUMNS.iter().chain(second);
        let mut table = Table::new(head.chain(columns.map(|name| (*name, Align::Right))));
        let now = date(unix_seconds);
        let time = now.split_whitespace().find(|word| word.contains(':')).unwrap_or(&now).to_owned();
        let (count, bytes) = (|count| self.numbers.count(count), |bytes| self.numbers.bytes(bytes));
        let mut gauges = String::new();
        for Sample { pool, stats, second, .. } in shown {
            let (data, metadata) = (&stats.data, &stats.metadata);
            let both = ClassStats { hits: stats.hits(), misses: stats.misses(), content_bytes: 0 };
            let reads = [&both, data, metadata]
                .into_iter()
                .flat_map(|class| [count(class.hits + class.misses), hit_percent(class.hits, class.misses)]);
            let PrefetchStats { io_issued, found, used, iohits, .. } = stats.prefetch;
            // Some blocks used in an interval were read before it.
            let used = (used + iohits).min(io_issued);
            let (ahead, useful) = (hit_percent(found, io_issued), hit_percent(used, io_issued - used));
            let reads = reads.chain([count(found + io_issued), ahead, useful]);
            let rest =
                [count(stats.evictions), count(stats.blocks), bytes(stats.bytes), bytes(stats.budget_bytes)];
            let pool_cell = self.verbose.then(|| pool.clone());
            let L2Stats { hits, misses, read_bytes, asize, hdr_size, .. } = *second;
            let second = [
                count(hits + misses),
                hit_percent(hits, misses),
                bytes(read_bytes),
                bytes(asize),
                bytes(hdr_size),
            ];
            let second = second.into_iter().filter(|_| has_second);
            table.row([time.clone()].into_iter().chain(pool_cell).chain(reads).chain(rest).chain(second));
            if let Some(policy) = stats.policy {
                let adapted: Vec<String> =
                    stats.gauges.iter().map(|(name, value)| format!("{name} {}", bytes(*value))).collect();
                gauges += &format!("  {pool}: {policy}: {}\n", adapted.join(", "));
            }
        }
        let text = match (self.script, is_first || self.verbose) {
            (true, _) => table.text(true),
            (false, true) => table.aligned(),
            (false, false) => table.aligned_rows(),
        };
        if self.script { text } else { text + &gauges }
    }
}

fn prefetch(stats: &PrefetchStats) -> Value {
    json!({
        "hits": stats.hits,
        "future": stats.future,
        "stride": stats.stride,
        "past": stats.past,
        "misses": stats.misses,
        "max_streams": stats.max_streams,
        "io_issued": stats.io_issued,
        "active_bytes": stats.active_bytes,
        "found": stats.found,
        "used": stats.used,
        "iohits": stats.iohits,
        "wasted": stats.wasted,
    })
}

/// As JSON.
pub fn json(shown: &[Sample]) -> Value {
    let class = |class: &ClassStats| {
        let ClassStats { hits, misses, content_bytes } = class;
        json!({"hits": hits, "misses": misses, "content_bytes": content_bytes})
    };
    let entry = |Sample { pool, stats, second, .. }: &Sample| {
        let second: Map<String, Value> =
            second.all().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let gauges: Map<String, Value> =
            stats.gauges.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let entry = json!({
            "data": class(&stats.data),
            "metadata": class(&stats.metadata),
            "evictions": stats.evictions,
            "evict_l2_eligible": stats.evicted_l2_eligible_bytes,
            "evict_l2_ineligible": stats.evicted_l2_ineligible_bytes,
            "prefetch": prefetch(&stats.prefetch),
            "blocks": stats.blocks,
            "bytes": stats.bytes,
            "budget_bytes": stats.budget_bytes,
            "policy": stats.policy.map(|policy| policy.name()),
            "gauges": gauges,
            "l2": second,
        });
        (pool.clone(), entry)
    };
    document("arcstat", "caches", shown.iter().map(entry).collect())
}
