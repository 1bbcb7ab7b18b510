//! Counters in the names and format of OpenZFS's `/proc/spl/kstat/zfs`.
//!
//! ```text
//!   arcstats, zfetchstats, dmu_tx, zil      sums over all pools
//!   POOL/state                              ONLINE, DEGRADED ...
//!   POOL/txgs                               the last hundred txgs
//!   POOL/objset-0xID                        an open dataset
//! ```
//!
//! Idea: all of OpenZFS's names in its order, with 0 for counters that Cenote lacks, so that programs that
//! read these files find every name.
//!
//! Source: OpenZFS `dmu_zfetch.c`, `dataset_kstats.c`, `spa_stats.c`; `spl-kstat.c` for the text.

mod arcstats;
pub mod files;

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_engine::{Kstats, TxgRecord};
use cenote_format::units::DatasetId;
use cenote_object::Traffic;

use crate::pools::{OpenPool, Pools};

/// `sizeof (kstat_named_t)`.
const NAMED_BYTES: usize = 272;
/// `KSTAT_DATA_UINT64`.
const UINT64: u32 = 4;
/// `KSTAT_DATA_STRING`.
const STRING: u32 = 7;
const OF_ALL: [&str; 4] = ["arcstats", "dmu_tx", "zfetchstats", "zil"];

const OF_POOL: [&str; 2] = ["state", "txgs"];

/// Names of all current kstats.
pub fn names(pools: &Pools) -> Vec<String> {
    let mut names: Vec<String> = OF_ALL.iter().map(|name| (*name).to_owned()).collect();
    for pool in pools.all() {
        names.extend(OF_POOL.map(|name| format!("{}/{name}", pool.name)));
        let datasets = pool.engine.traffic().into_iter();
        names.extend(datasets.map(|(id, _)| format!("{}/objset-{:#x}", pool.name, id.0)));
    }
    names
}

/// A kstat's text, if it exists.
#[boxed]
pub async fn text(pools: &Pools, name: &str) -> Option<String> {
    let Some((pool, name)) = name.split_once('/') else { return of_all(pools, name) };
    let pool = pools.get(pool)?;
    let Some(id) = name.strip_prefix("objset-0x") else { return of_pool(&pool, name) };
    let id = u64::from_str_radix(id, 16).ok()?;
    let datasets = datasets(&pool).await;
    datasets.iter().find(|dataset| dataset.id.0 == id).map(|dataset| dataset.text(&pool))
}

/// The counters of a kstat over all pools.
pub fn counts(pools: &Pools, name: &str) -> Option<Vec<(&'static str, u64)>> {
    let sum = |of: fn(&Kstats) -> Vec<(&'static str, u64)>| {
        let mut sum = of(&Kstats::default());
        for pool in pools.all() {
            sum.iter_mut().zip(of(pool.engine.kstats())).for_each(|(sum, (_, count))| sum.1 += count);
        }
        sum
    };
    Some(match name {
        "arcstats" => arcstats::of(pools),
        "zfetchstats" => arcstats::zfetch(pools),
        "dmu_tx" => sum(Kstats::dmu_tx),
        "zil" => sum(Kstats::zil),
        _ => return None,
    })
}

/// An open dataset's counters.
pub struct DatasetCounts {
    /// Its object in the MOS.
    pub id: DatasetId,
    /// Its name.
    pub name: String,
    /// Names and counts.
    pub counts: Vec<(&'static str, u64)>,
    /// Latencies of its users' operations.
    pub traffic: Arc<Traffic>,
}

/// A pool's open datasets.
pub async fn datasets(pool: &OpenPool) -> Vec<DatasetCounts> {
    let Ok(mos) = pool.engine.mos().await else { return Vec::new() };
    let mut datasets = Vec::new();
    for (id, traffic) in pool.engine.traffic() {
        // Omit a dataset destroyed meanwhile.
        if let Ok(dataset) = mos.dataset_by_id(id).await {
            let name = dataset.name().to_string();
            datasets.push(DatasetCounts { id, name, counts: traffic.all(), traffic });
        }
    }
    datasets
}

impl DatasetCounts {
    fn file(&self, pool: &OpenPool) -> String {
        format!("{}/objset-{:#x}", pool.name, self.id.0)
    }

    fn text(&self, pool: &OpenPool) -> String {
        let text = line("dataset_name", STRING, &self.name) + &lines(&self.counts);
        header(pool.engine.runtime().now().as_ns(), self.counts.len() + 1) + &text
    }
}

/// Names and texts of all current kstats.
#[boxed]
pub async fn texts(pools: &Pools) -> Vec<(String, String)> {
    let of_all = OF_ALL.iter().filter_map(|name| Some(((*name).to_owned(), of_all(pools, name)?)));
    let mut texts: Vec<_> = of_all.collect();
    for pool in pools.all() {
        for name in OF_POOL {
            texts.extend(of_pool(&pool, name).map(|text| (format!("{}/{name}", pool.name), text)));
        }
        let datasets = datasets(&pool).await;
        texts.extend(datasets.iter().map(|dataset| (dataset.file(&pool), dataset.text(&pool))));
    }
    texts
}

fn of_all(pools: &Pools, name: &str) -> Option<String> {
    counts(pools, name).map(|counts| named(pools, counts.len(), &lines(&counts)))
}

fn of_pool(pool: &OpenPool, name: &str) -> Option<String> {
    match name {
        "state" => Some(format!("{}\n", pool.engine.pool().status().shown_state())),
        "txgs" => Some(txgs(&pool.engine.kstats().txgs())),
        _ => None,
    }
}

fn named(pools: &Pools, count: usize, lines: &str) -> String {
    // Without a pool there is no clock, and nothing to compute rates of.
    let now_ns = pools.all().first().map_or(0, |pool| pool.engine.runtime().now().as_ns());
    header(now_ns, count) + lines
}

fn header(now_ns: u64, count: usize) -> String {
    // Number, type, flags, lines, bytes, creation time, and now.
    let first = format!("0 1 0x01 {count} {} 0 {now_ns}\n", count * NAMED_BYTES);
    first + &format!("{:<31} {:<4} data\n", "name", "type")
}

fn lines(counts: &[(&'static str, u64)]) -> String {
    counts.iter().map(|(name, count)| line(name, UINT64, count)).collect()
}

fn line(name: &str, kind: u32, value: impl Display) -> String {
    format!("{name:<31} {kind:<4} {value}\n")
}

fn txgs(records: &[TxgRecord]) -> String {
    let mut text = format!(
        "{:<8} {:<16} {:<5} {:<12} {:<12} {:<12} ",
        "txg", "birth", "state", "ndirty", "nread", "nwritten"
    );
    let _ = writeln!(
        text,
        "{:<8} {:<8} {:<12} {:<12} {:<12} {:<12}",
        "reads", "writes", "otime", "qtime", "wtime", "stime"
    );
    for TxgRecord { txg, birth_ns, dirty_bytes, moved: [read, written], open_ns, quiesce_ns, sync_ns } in
        records
    {
        // Writing to a string can't fail. All txgs are committed, with no wait before syncing.
        let _ = write!(text, "{:<8} {birth_ns:<16} {:<5} {dirty_bytes:<12} ", txg.0, 'C');
        let _ = write!(
            text,
            "{:<12} {:<12} {:<8} {:<8} ",
            read.bytes, written.bytes, read.operations, written.operations
        );
        let _ = writeln!(text, "{open_ns:<12} {quiesce_ns:<12} {:<12} {sync_ns:<12}", 0);
    }
    text
}
