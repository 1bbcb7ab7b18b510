//! Prometheus metrics, under the names that dashboards use.
//!
//! ```text
//!   node_zfs_*        as node_exporter derives them from /proc/spl/kstat/zfs
//!   zfs_pool_*        as zfs_exporter derives them from `zpool list`
//!   zfs_dataset_*     as zfs_exporter derives them from `zfs list`: file systems and volumes
//!   zpool_*           as zpool_influxdb derives them from `zpool iostat`; also as Telegraf lines
//!   cenote_pool_*     whether the pool is suspended or waits to be opened
//!   cenote_vdev_*     latencies, bytes, queues and errors of each vdev
//!   cenote_dataset_*  wait times of the busiest datasets
//!   cenote_bucket_*   requests to object stores, and their price
//!   cenote_replicate_*  copies that the agent keeps: their age, and whether the last run was a success
//!   cenote_ha_*       pools that move among machines: which are here, and the age of the witness's answer
//! ```
//!
//! Source: node_exporter `collector/zfs_linux.go`; pdf/zfs_exporter `collector/pool.go`, `dataset.go`;
//! OpenZFS `zpool_influxdb.c`; Prometheus's text format 0.0.4, and its protobuf format.

mod buckets;
mod copies;
mod datasets;
mod families;
mod ha;
mod kstats;
mod properties;
mod vdevs;
mod zpool;

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_host::kstat;
use cenote_host::pools::Pools;
use cenote_serve::socket::Serving;

use families::Families;
pub use families::Format;
use zpool::Figures;

/// All current metrics.
#[boxed]
pub async fn all(pools: &Pools, commands: &Arc<dyn Serving>, format: Format, now_s: u64) -> Vec<u8> {
    let mut families = Families::new(format);
    let mut open = Vec::new();
    for pool in pools.all() {
        let datasets = kstat::datasets(&pool).await.into_iter();
        open.extend(datasets.map(|dataset| (pool.name.clone(), dataset)));
    }
    kstats::add(pools, &open, &mut families);
    datasets::add(&open, &mut families);
    vdevs::add(pools, &mut families);
    buckets::add(&mut families);
    copies::add(pools, now_s, &mut families);
    ha::add(pools, &mut families);
    Figures::of(pools).await.add(&mut families);
    properties::add_pools(commands, &mut families).await;
    properties::add_datasets(commands, &mut families).await;
    families.written()
}

/// Output of `zpool_influxdb`. `now_ns`: nanoseconds since 1970.
#[boxed]
pub async fn influx(pools: &Pools, now_ns: u64) -> String {
    Figures::of(pools).await.lines(now_ns)
}
