//! `cenote arcstat --report`: the wording of facts about a pool's cache, and of advice.

use std::fmt::Write as _;

use cenote_control::running::arcstat::outlook::{Advice, Sized, hit_ratio, hit_ratio_of_all};
use cenote_control::running::arcstat::{ClassStats, Sample};
use cenote_control::text::{nice_bytes, nice_number};
use serde_json::{Value, json};

use crate::numbers::percent;

/// As text.
pub fn text(sample: &Sample) -> String {
    let Sample { pool, stats, second, .. } = sample;
    let sizes = sizes(sample);
    let mut out = format!("{pool}\n");
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
        line(name, format!("{all}, {} hits", percent(hit_ratio(class))));
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
    if !sizes.is_empty() {
        line("Hit rate of other sizes", String::new());
        for size in sizes {
            line(&format!("  {}", nice_bytes(size.bytes)), range(size));
        }
    }
    line("Advice", String::new());
    for sentence in sentences(sample) {
        _ = writeln!(out, "  - {sentence}");
    }
    out
}

/// As JSON.
pub fn as_json(sample: &Sample) -> Value {
    let size = |size: &Sized| json!({"bytes": size.bytes, "hit_ratio": size.ratio, "error": size.error});
    let stats = &sample.stats;
    json!({
        "bytes": stats.bytes,
        "budget_bytes": stats.budget_bytes,
        "hit_ratio": hit_ratio_of_all(stats),
        "data_hit_ratio": hit_ratio(&stats.data),
        "metadata_hit_ratio": hit_ratio(&stats.metadata),
        "sizes": sizes(sample).iter().map(size).collect::<Vec<_>>(),
        "advice": sentences(sample),
    })
}

fn sizes(sample: &Sample) -> &[Sized] {
    sample.outlook.as_ref().map_or(&[], |outlook| &outlook.sizes)
}

fn sentences(sample: &Sample) -> Vec<String> {
    sample.outlook.iter().flat_map(|outlook| &outlook.advice).map(sentence).collect()
}

/// The command that follows from a piece of advice, and why.
fn sentence(advice: &Advice) -> String {
    match advice {
        Advice::Wait => "Too little was read yet to say anything.".into(),
        Advice::More { bytes, size, now } => format!(
            "With {} more the hit rate would be {} instead of {}: `cenote tunable zfs_arc_max={}` for one \
             pool, if the machine has it.",
            nice_bytes(*bytes),
            range(size),
            percent(*now),
            nice_bytes(size.bytes)
        ),
        Advice::Less(size) => {
            format!("{} would do: the hit rate would be {}.", nice_bytes(size.bytes), range(size))
        }
        Advice::ReadAheadLess { wanted } => format!(
            "Of the blocks that were read ahead, {} were wanted: `zfs set prefetch=metadata` for datasets \
             that are read at random.",
            percent(*wanted)
        ),
        Advice::CacheDevicesHelpLittle { answered } => format!(
            "Cache devices answer {} of what memory lacks: they help little with this load.",
            percent(*answered)
        ),
        Advice::Special { metadata } => format!(
            "{} of the misses are metadata: a special vdev would take them (`zpool add POOL special mirror \
             ...`).",
            percent(*metadata)
        ),
        Advice::Nothing => "Nothing to change.".into(),
    }
}

/// `91 to 93 %`; one number if both are equal.
fn range(size: &Sized) -> String {
    let [low, high] = [size.ratio - size.error, size.ratio + size.error].map(|part| part.clamp(0.0, 1.0));
    let [low, high] = [low, high].map(|part| format!("{:.1}", part * 100.0));
    if low == high { format!("{low} %") } else { format!("{low} to {high} %") }
}
