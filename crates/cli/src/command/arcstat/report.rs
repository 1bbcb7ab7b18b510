//! `cenote arcstat --report`: what a pool's cache holds, how it does, what another size would bring, and what
//! should be changed.
//!
//! Idea: each finding is a rule over the same numbers that are shown, with the command that follows from it.
//! Hit ratios of other sizes come from a sample of the look-ups (`cenote_policy::live`) and have its error.
//!
//! Source: OpenZFS's `arc_summary` (what it shows).

use std::fmt::Write as _;

use cenote_cache::{BlockCache, CacheStats, ClassStats};
use cenote_engine::L2Stats;
use serde_json::{Value, json};

use crate::render::{nice_bytes, nice_number};

/// Sizes that are shown, as parts of the present one: numerator and denominator.
const SIZES: [(u64, u64); 7] = [(1, 4), (1, 2), (3, 4), (3, 2), (2, 1), (4, 1), (8, 1)];
/// A gain that is worth more memory, and a loss that is nothing to worry about.
const WORTH: f64 = 0.02;
const NOTHING: f64 = 0.005;
/// Look-ups before anything is advised.
const ENOUGH: u64 = 10_000;

/// What is known of a pool's cache.
pub struct Report {
    pub pool: String,
    stats: CacheStats,
    second: L2Stats,
    sizes: Vec<Sized>,
}

/// What a cache of another size would hit.
struct Sized {
    bytes: u64,
    ratio: f64,
    error: f64,
}

impl Report {
    /// Looks at a cache.
    pub fn of(pool: &str, cache: &BlockCache, second: L2Stats) -> Report {
        let stats = cache.stats();
        let sized = |(times, parts): (u64, u64)| {
            let bytes = stats.budget_bytes / parts * times;
            let estimate = cache.estimate(bytes)?;
            Some(Sized { bytes, ratio: estimate.ratio, error: estimate.error })
        };
        let sizes = SIZES.into_iter().filter_map(sized).collect();
        Report { pool: pool.to_owned(), stats, second, sizes }
    }

    fn hit_ratio(&self) -> f64 {
        self.stats.hits() as f64 / (self.stats.hits() + self.stats.misses()).max(1) as f64
    }

    /// What should be changed, and why: a sentence each.
    fn advice(&self) -> Vec<String> {
        let Report { stats, second, .. } = self;
        let mut advice = Vec::new();
        if stats.hits() + stats.misses() < ENOUGH {
            return vec!["Too little was read yet to say anything.".into()];
        }
        let now = self.hit_ratio();
        let is_full = stats.evictions > 0;
        let more = self.sizes.iter().find(|size| size.ratio - size.error - now >= WORTH);
        if let Some(more) = more.filter(|more| is_full && more.bytes > stats.budget_bytes) {
            advice.push(format!(
                "With {} more the hit rate would be {} instead of {}: `cenote tunable zfs_arc_max={}` for \
                 one pool, if the machine has it.",
                nice_bytes(more.bytes - stats.budget_bytes),
                range(more),
                percent(now),
                nice_bytes(more.bytes)
            ));
        }
        let less = self.sizes.iter().find(|size| now - size.ratio + size.error <= NOTHING);
        if let Some(less) = less.filter(|less| less.bytes < stats.budget_bytes) {
            advice.push(format!(
                "{} would do: the hit rate would be {}.",
                nice_bytes(less.bytes),
                range(less)
            ));
        }
        let ahead = &stats.prefetch;
        if ahead.io_issued > ENOUGH && (ahead.used + ahead.iohits) * 2 < ahead.io_issued {
            advice.push(format!(
                "Of the blocks that were read ahead, {} were wanted: `zfs set prefetch=metadata` for \
                 datasets that are read at random.",
                percent((ahead.used + ahead.iohits) as f64 / ahead.io_issued as f64)
            ));
        }
        let looked = second.hits + second.misses;
        if second.devices > 0 && looked > ENOUGH && second.hits * 20 < looked {
            advice.push(format!(
                "Cache devices answer {} of what memory lacks: they help little with this load.",
                percent(second.hits as f64 / looked as f64)
            ));
        }
        let metadata = &stats.metadata;
        let lacking = metadata.misses as f64 / (stats.misses()).max(1) as f64;
        if is_full && lacking > 0.5 && ratio(metadata) < 0.9 {
            advice.push(format!(
                "{} of the misses are metadata: a special vdev would take them (`zpool add POOL special \
                 mirror ...`).",
                percent(lacking)
            ));
        }
        if advice.is_empty() {
            advice.push("Nothing to change.".into());
        }
        advice
    }

    /// As text.
    pub fn text(&self) -> String {
        let Report { stats, second, .. } = self;
        let mut out = format!("{}\n", self.pool);
        let mut line = |name: &str, value: String| _ = writeln!(out, "  {name:<28} {value}");
        line("Size", format!("{} of {}", nice_bytes(stats.bytes), nice_bytes(stats.budget_bytes)));
        line("Policy", stats.policy.map_or_else(|| "-".into(), |policy| policy.to_string()));
        line("Blocks", nice_number(stats.blocks));
        line("  of files and volumes", nice_bytes(stats.data.content_bytes));
        line("  of metadata", nice_bytes(stats.metadata.content_bytes));
        for (name, value) in &stats.gauges {
            line(&format!("  {name}"), nice_bytes(*value));
        }
        line("Evicted blocks", nice_number(stats.evictions));
        let both = ClassStats { hits: stats.hits(), misses: stats.misses(), content_bytes: 0 };
        for (name, class) in
            [("Look-ups", &both), ("  of files and volumes", &stats.data), ("  of metadata", &stats.metadata)]
        {
            let all = nice_number(class.hits + class.misses);
            line(name, format!("{all}, {} hits", percent(ratio(class))));
        }
        let ahead = &stats.prefetch;
        let useful = (ahead.used + ahead.iohits) as f64 / ahead.io_issued.max(1) as f64;
        line("Read ahead", format!("{}, {} wanted", nice_number(ahead.io_issued), percent(useful.min(1.0))));
        if second.devices > 0 {
            let looked = second.hits + second.misses;
            let hits = percent(second.hits as f64 / looked.max(1) as f64);
            line("Cache devices", format!("{} hold {}", second.devices, nice_bytes(second.asize)));
            line("  look-ups", format!("{}, {hits} hits", nice_number(looked)));
            line("  memory", nice_bytes(second.hdr_size));
        }
        if !self.sizes.is_empty() {
            line("Hit rate of other sizes", String::new());
            for size in &self.sizes {
                line(&format!("  {}", nice_bytes(size.bytes)), range(size));
            }
        }
        line("Advice", String::new());
        for sentence in self.advice() {
            _ = writeln!(out, "  - {sentence}");
        }
        out
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let size = |size: &Sized| json!({"bytes": size.bytes, "hit_ratio": size.ratio, "error": size.error});
        json!({
            "bytes": self.stats.bytes,
            "budget_bytes": self.stats.budget_bytes,
            "hit_ratio": self.hit_ratio(),
            "data_hit_ratio": ratio(&self.stats.data),
            "metadata_hit_ratio": ratio(&self.stats.metadata),
            "sizes": self.sizes.iter().map(size).collect::<Vec<_>>(),
            "advice": self.advice(),
        })
    }
}

fn ratio(class: &ClassStats) -> f64 {
    class.hits as f64 / (class.hits + class.misses).max(1) as f64
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// `91 to 93 %`; one number where they are the same.
fn range(size: &Sized) -> String {
    let [low, high] = [size.ratio - size.error, size.ratio + size.error].map(|part| part.clamp(0.0, 1.0));
    let [low, high] = [low, high].map(|part| format!("{:.1}", part * 100.0));
    if low == high { format!("{low} %") } else { format!("{low} to {high} %") }
}
