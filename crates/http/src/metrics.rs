//! Counters for Prometheus, by the names that dashboards know.
//!
//! ```text
//!   node_zfs_*        as node_exporter makes them of /proc/spl/kstat/zfs
//!   zfs_pool_*        as zfs_exporter makes them of `zpool list`
//!   zfs_dataset_*     as zfs_exporter makes them of `zfs list`: file systems and volumes
//!   cenote_vdev_*     latencies, bytes, queues and errors of each vdev
//! ```
//!
//! Source: node_exporter `collector/zfs_linux.go`; pdf/zfs_exporter `collector/pool.go`, `dataset.go`;
//! Prometheus's text format 0.0.4.

mod families;
mod kstats;
mod properties;
mod vdevs;

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_serve::pools::Pools;
use cenote_serve::socket::Serving;

use families::Families;

/// All of them now.
#[boxed]
pub async fn text(pools: &Pools, commands: &Arc<dyn Serving>) -> String {
    let mut families = Families::default();
    kstats::add(pools, &mut families).await;
    vdevs::add(pools, &mut families);
    properties::add_pools(commands, &mut families).await;
    properties::add_datasets(commands, &mut families).await;
    families.text()
}
