//! The text of a look: a table of pools, then vdevs, classes and the cache of each.

use cenote_control::answers::{Counts, IoClass, Traffic};
use cenote_control::running::arcstat::{CacheStats, ClassStats};
use cenote_control::text::{date, nice_bytes, nice_number, time_span, visible};

use super::look::{Look, PoolLook, percentile_ns};
use crate::numbers::hit_percent;
use crate::table::{Align, Table};
use crate::zpool::iostat::sample::Line;

/// A look as lines of text.
pub fn text(look: &Look) -> String {
    if look.pools.is_empty() {
        return format!("{}\nno pools available\n", date(look.unix_seconds));
    }
    let mut out = format!("{}\n\n{}", date(look.unix_seconds), pools(look));
    for pool in &look.pools {
        out += &format!("\n{}\n{}\n{}", vdevs(pool), classes(pool), cache(pool));
    }
    out
}

/// The same for a terminal of this size: drawn from the top left corner, over the previous look.
pub fn fitted(text: &str, columns: usize, rows: usize) -> String {
    let lines = text.lines().take(rows.saturating_sub(1).max(1));
    let fitted = lines.map(|line| visible(line).chars().take(columns.max(1)).collect::<String>());
    let lines: String = fitted.map(|line| format!("{line}\x1b[K\r\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}

fn table(head: &[&'static str]) -> Table {
    let align = |(at, name)| (name, if at == 0 { Align::Left } else { Align::Right });
    Table::new(head.iter().copied().enumerate().map(align))
}

fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".into(), time_span)
}

fn pools(look: &Look) -> String {
    let head = ["POOL", "HEALTH", "ALLOC", "FREE", "DIRTY", "READ/S", "WRITE/S", "READ", "WRITE", "HIT%"];
    let mut table = table(&head);
    for pool in &look.pools {
        let (line, stats) = (pool.whole(), &pool.cache);
        let (allocated, free) = line.space.unwrap_or_default();
        let traffic = line.traffic.clone().unwrap_or_default();
        let rate = |count| pool.sample.per_second(count);
        let cells = [
            line.name.clone(),
            pool.health.clone(),
            nice_bytes(allocated),
            nice_bytes(free),
            nice_bytes(pool.dirty_bytes),
            nice_number(rate(traffic.read.operations)),
            nice_number(rate(traffic.write.operations)),
            nice_bytes(rate(traffic.read.bytes)),
            nice_bytes(rate(traffic.write.bytes)),
            hit_percent(stats.hits(), stats.misses()),
        ];
        table.row(cells);
    }
    table.aligned()
}

fn vdevs(pool: &PoolLook) -> String {
    let head =
        ["VDEV", "READ/S", "WRITE/S", "READ", "WRITE", "rwait", "rp99", "wwait", "wp99", "PEND", "ACTIV"];
    let mut table = table(&head);
    for line in &pool.sample.lines {
        table.row(vdev(pool, line));
    }
    table.aligned()
}

fn vdev(pool: &PoolLook, line: &Line) -> Vec<String> {
    let Some(Traffic { read, write, queues, .. }) = &line.traffic else { return vec![line.shown()] };
    let rate = |count| pool.sample.per_second(count);
    let waits = |counts: &Counts| [time(counts.average_ns()), time(percentile_ns(counts, 99))];
    let counted = [
        line.shown(),
        nice_number(rate(read.operations)),
        nice_number(rate(write.operations)),
        nice_bytes(rate(read.bytes)),
        nice_bytes(rate(write.bytes)),
    ];
    let load = [
        nice_number(queues.iter().map(|load| load.waiting).sum()),
        nice_number(queues.iter().map(|load| load.active).sum()),
    ];
    counted.into_iter().chain(waits(read)).chain(waits(write)).chain(load).collect()
}

/// The classes with operations, past or current.
fn classes(pool: &PoolLook) -> String {
    let mut table = table(&["CLASS", "OPS/S", "queued", "PEND", "ACTIV"]);
    let queues =
        pool.whole().traffic.iter().flat_map(|traffic| IoClass::ALL.into_iter().zip(&traffic.queues));
    let mut is_idle = true;
    for (class, load) in queues.filter(|(_, load)| load.begun + load.waiting + load.active > 0) {
        is_idle = false;
        table.row([
            class.name().to_owned(),
            nice_number(pool.sample.per_second(load.begun)),
            time(load.average_wait_ns()),
            nice_number(load.waiting),
            nice_number(load.active),
        ]);
    }
    if is_idle { "no operations\n".into() } else { table.aligned() }
}

fn cache(pool: &PoolLook) -> String {
    let CacheStats { data, metadata, bytes, budget_bytes, policy, prefetch, .. } = &pool.cache;
    let policy = policy.map(|policy| format!(", {policy}")).unwrap_or_default();
    let mut out = format!("cache     {} of {}{policy}\n", nice_bytes(*bytes), nice_bytes(*budget_bytes));
    for (name, class) in [("data", data), ("metadata", metadata)] {
        let ClassStats { hits, misses, content_bytes } = *class;
        let held = nice_bytes(content_bytes);
        let looked = nice_number(pool.sample.per_second(hits + misses));
        out += &format!("{name:<9} {held} held, {looked} look-ups/s, {} % hits\n", hit_percent(hits, misses));
    }
    if prefetch.io_issued > 0 {
        let used = (prefetch.used + prefetch.iohits).min(prefetch.io_issued);
        let read = nice_number(pool.sample.per_second(prefetch.io_issued));
        out += &format!(
            "prefetch  {read} blocks/s, {} % wanted\n",
            hit_percent(used, prefetch.io_issued - used)
        );
    }
    if pool.second.devices > 0 {
        let (hits, misses) = (pool.second.hits, pool.second.misses);
        out += &format!(
            "l2arc     {} held, {} % hits\n",
            nice_bytes(pool.second.asize),
            hit_percent(hits, misses)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_never_leaves_the_terminal() {
        let shown = fitted("one line\nanother\nthird\x1b[2J\nfourth\n", 5, 4);
        assert_eq!(shown, "\x1b[Hone l\x1b[K\r\nanoth\x1b[K\r\nthird\x1b[K\r\n\x1b[J");
    }
}
