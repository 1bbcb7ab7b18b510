//! Counters in the names and format of OpenZFS's `/proc/spl/kstat/zfs`.
//!
//! ```text
//!   arcstats, zfetchstats, dmu_tx, zil      sums over all pools
//!   POOL/state                              ONLINE, DEGRADED ...
//!   POOL/txgs                               the last hundred txgs
//!   POOL/multihost                          the last hundred heartbeats
//!   POOL/objset-0xID                        an open dataset
//! ```
//!
//! Idea: all of OpenZFS's names in its order, with 0 for counters that Cenote lacks, so programs find every
//! name.
//!
//! Source: OpenZFS `dmu_zfetch.c`, `dataset_kstats.c`, `spa_stats.c`; `spl-kstat.c` for the text.

mod arcstats;
pub mod files;

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_engine::{BeatRecord, Kstats, TxgRecord};
use cenote_format::units::DatasetId;
use cenote_object::Traffic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pools::{OpenPool, Pools};

/// `sizeof (kstat_named_t)`.
const NAMED_BYTES: usize = 272;
/// `KSTAT_DATA_UINT64`.
const UINT64: u32 = 4;
/// `KSTAT_DATA_STRING`.
const STRING: u32 = 7;
const OF_ALL: [&str; 4] = ["arcstats", "dmu_tx", "zfetchstats", "zil"];

const OF_POOL: [&str; 3] = ["state", "txgs", "multihost"];

/// Names of all current kstats.
pub fn names(pools: &Pools) -> Vec<String> {
    let mut names: Vec<String> = OF_ALL.iter().map(|name| (*name).to_owned()).collect();
    for pool in pools.all() {
        names.extend(OF_POOL.map(|name| format!("{}/{name}", pool.name)));
        let datasets = pool.engine.load().traffic().into_iter();
        names.extend(datasets.map(|(id, _)| format!("{}/objset-{:#x}", pool.name, id.0)));
    }
    names
}

/// One of them at some moment. It shows itself as OpenZFS's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kstat {
    /// Counts by their names.
    Counts {
        /// When, in nanoseconds since the daemon began.
        now_ns: u64,
        /// Of a dataset: its name.
        dataset: Option<String>,
        /// Names and counts.
        counts: Vec<(String, u64)>,
    },
    /// The state of a pool.
    State(String),
    /// The last txgs of a pool, the oldest first.
    Txgs(Vec<TxgRecord>),
    /// The last heartbeats of a pool, the oldest first.
    Multihost(Vec<Beat>),
}

/// A heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Beat {
    /// Its leaf, time, result.
    pub record: BeatRecord,
    /// Path of the leaf.
    pub path: Option<String>,
}

impl Beat {
    /// EIO of one that failed, `MMP_FAIL_NOT_WRITABLE` of one skipped; 0: none.
    pub fn error(&self) -> u64 {
        const EIO: u64 = 5;
        if self.record.failed { EIO } else { u64::from(self.record.leaf.is_none()) }
    }
}

/// That of a name; `None`: there is none of this name.
#[boxed]
pub async fn of(pools: &Pools, name: &str) -> Option<Kstat> {
    let Some((pool, name)) = name.split_once('/') else { return of_all(pools, name) };
    let pool = pools.get(pool)?;
    let Some(id) = name.strip_prefix("objset-0x") else { return of_pool(&pool, name) };
    let id = u64::from_str_radix(id, 16).ok()?;
    let datasets = datasets(&pool).await;
    datasets.into_iter().find(|dataset| dataset.id.0 == id).map(|dataset| dataset.kstat(&pool))
}

/// The counters of a kstat over all pools.
pub fn counts(pools: &Pools, name: &str) -> Option<Vec<(&'static str, u64)>> {
    let sum = |of: fn(&Kstats) -> Vec<(&'static str, u64)>| {
        let mut sum = of(&Kstats::default());
        for pool in pools.all() {
            sum.iter_mut().zip(of(pool.engine.load().kstats())).for_each(|(sum, (_, count))| sum.1 += count);
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
    for (id, traffic) in pool.engine.load().traffic() {
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

    fn kstat(self, pool: &OpenPool) -> Kstat {
        let now_ns = pool.engine.runtime().now().as_ns();
        Kstat::Counts { now_ns, dataset: Some(self.name), counts: owned(self.counts) }
    }
}

/// All names and texts now.
pub async fn texts(pools: &Pools) -> Vec<(String, String)> {
    all(pools).await.into_iter().map(|(name, kstat)| (name, kstat.to_string())).collect()
}

/// All current ones, by name.
#[boxed]
pub async fn all(pools: &Pools) -> Vec<(String, Kstat)> {
    let of_all = OF_ALL.iter().filter_map(|name| Some(((*name).to_owned(), of_all(pools, name)?)));
    let mut all: Vec<_> = of_all.collect();
    for pool in pools.all() {
        for name in OF_POOL {
            all.extend(of_pool(&pool, name).map(|kstat| (format!("{}/{name}", pool.name), kstat)));
        }
        let datasets = datasets(&pool).await.into_iter();
        all.extend(datasets.map(|dataset| (dataset.file(&pool), dataset.kstat(&pool))));
    }
    all
}

fn of_all(pools: &Pools, name: &str) -> Option<Kstat> {
    // Without a pool no time has passed that anything could be a rate of.
    let now_ns = pools.all().first().map_or(0, |pool| pool.engine.runtime().now().as_ns());
    Some(Kstat::Counts { now_ns, dataset: None, counts: owned(counts(pools, name)?) })
}

fn of_pool(pool: &OpenPool, name: &str) -> Option<Kstat> {
    match name {
        "state" => Some(Kstat::State(pool.engine.pool().status().shown_state().to_owned())),
        "txgs" => Some(Kstat::Txgs(pool.engine.load().kstats().txgs())),
        "multihost" => Some(Kstat::Multihost(beats(pool))),
        _ => None,
    }
}

fn beats(pool: &OpenPool) -> Vec<Beat> {
    let view = pool.engine.pool();
    let path = |leaf| view.tree().device(leaf).map(|device| device.path);
    let history = pool.engine.multihost().history().into_iter();
    history.map(|record| Beat { record, path: record.leaf.and_then(path) }).collect()
}

fn owned(counts: Vec<(&'static str, u64)>) -> Vec<(String, u64)> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

impl Display for Kstat {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (now_ns, dataset, counts) = match self {
            Kstat::Counts { now_ns, dataset, counts } => (now_ns, dataset, counts),
            Kstat::State(state) => return writeln!(f, "{state}"),
            Kstat::Txgs(records) => return txgs(f, records),
            Kstat::Multihost(beats) => return multihost(f, beats),
        };
        let count = counts.len() + usize::from(dataset.is_some());
        // Number, type, flags, lines, bytes, when made, and now.
        writeln!(f, "0 1 0x01 {count} {} 0 {now_ns}", count * NAMED_BYTES)?;
        writeln!(f, "{:<31} {:<4} data", "name", "type")?;
        let mut line = |name: &str, kind, value: &dyn Display| writeln!(f, "{name:<31} {kind:<4} {value}");
        if let Some(dataset) = dataset {
            line("dataset_name", STRING, dataset)?;
        }
        counts.iter().try_for_each(|(name, count)| line(name, UINT64, count))
    }
}

fn txgs(f: &mut Formatter<'_>, records: &[TxgRecord]) -> fmt::Result {
    write!(
        f,
        "{:<8} {:<16} {:<5} {:<12} {:<12} {:<12} ",
        "txg", "birth", "state", "ndirty", "nread", "nwritten"
    )?;
    writeln!(
        f,
        "{:<8} {:<8} {:<12} {:<12} {:<12} {:<12}",
        "reads", "writes", "otime", "qtime", "wtime", "stime"
    )?;
    for TxgRecord { txg, birth_ns, dirty_bytes, moved: [read, written], open_ns, quiesce_ns, sync_ns } in
        records
    {
        // All are committed, and none waits to be written.
        write!(f, "{:<8} {birth_ns:<16} {:<5} {dirty_bytes:<12} ", txg.0, 'C')?;
        write!(
            f,
            "{:<12} {:<12} {:<8} {:<8} ",
            read.bytes, written.bytes, read.operations, written.operations
        )?;
        writeln!(f, "{open_ns:<12} {quiesce_ns:<12} {:<12} {sync_ns:<12}", 0)?;
    }
    Ok(())
}

/// The label is not recorded: it is random.
fn multihost(f: &mut Formatter<'_>, beats: &[Beat]) -> fmt::Result {
    write!(f, "{:<10} {:<10} {:<10} {:<6} {:<10} ", "id", "txg", "timestamp", "error", "duration")?;
    writeln!(f, "{:<12} {:<24} {:<10} vdev_path", "mmp_delay", "vdev_guid", "vdev_label")?;
    for beat in beats {
        let Beat { record, path } = beat;
        let duration = record.duration_ns.unwrap_or(0);
        // In place of a guid, the number of skipped heartbeats.
        let guid = record.leaf.map_or(record.skipped, |leaf| leaf.0);
        let (id, txg, time_s, error) = (record.id, record.txg.0, record.timestamp_s, beat.error());
        write!(f, "{id:<10} {txg:<10} {time_s:>10} {error:>6} {duration:>10} ")?;
        writeln!(f, "{:>12} {guid:<24} {:<10} {}", record.delay_ns, "-", path.as_deref().unwrap_or("-"))?;
    }
    Ok(())
}
