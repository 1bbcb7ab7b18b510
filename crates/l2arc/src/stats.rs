//! What cache devices count, by the names of `arcstats`.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Statistics of the cache devices of a pool (`arcstats`, those that begin with `l2_`).
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct L2Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct L2Counters {
            $(pub(crate) $name: Count,)*
        }

        impl L2Counters {
            pub(crate) fn stats(&self) -> L2Stats {
                L2Stats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }

        impl L2Stats {
            /// All of them, by their names in `arcstats`.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!("l2_", stringify!($name)), self.$name),)*]
            }

            /// What was counted after `before`; what devices hold is that of now.
            #[must_use]
            pub fn since(&self, before: &L2Stats) -> L2Stats {
                L2Stats {
                    asize: self.asize,
                    bufs: self.bufs,
                    hdr_size: self.hdr_size,
                    staged_size: self.staged_size,
                    log_blk_count: self.log_blk_count,
                    log_blk_asize: self.log_blk_asize,
                    devices: self.devices,
                    ..self.zip(before, u64::saturating_sub)
                }
            }

            /// Each count of this with that of `other`.
            #[must_use]
            pub fn zip(&self, other: &L2Stats, f: fn(u64, u64) -> u64) -> L2Stats {
                L2Stats { $($name: f(self.$name, other.$name),)* }
            }
        }
    };
}

counts! {
    /// Reads that a device answered.
    hits,
    /// Reads of what memory missed and no device had.
    misses,
    /// Reads of a block that was written over meanwhile.
    evict_reading,
    /// Bytes read from devices.
    read_bytes,
    /// Bytes written to devices, log blocks included.
    write_bytes,
    /// Rounds of feeding that wrote something.
    writes_sent,
    /// Those that were written whole.
    writes_done,
    /// Those that failed.
    writes_error,
    /// Blocks that did not match their pointer.
    cksum_bad,
    /// Reads that failed.
    io_error,
    /// Log blocks written.
    log_blk_writes,
    /// Devices whose content was known again after an import.
    rebuild_success,
    /// Headers that could not be read, or are of another pool or version.
    rebuild_unsupported,
    /// Chains of log blocks that ended at one that is not whole.
    rebuild_cksum_lb_errors,
    /// Rebuilds that ended early for want of memory.
    rebuild_lowmem,
    /// Log blocks found at rebuilds.
    rebuild_log_blks,
    /// Blocks found at rebuilds.
    rebuild_bufs,
    /// Their bytes on devices.
    rebuild_asize,
    /// Bytes that devices hold now, log blocks included.
    asize,
    /// Blocks on devices now.
    bufs,
    /// Memory for knowing where they are.
    hdr_size,
    /// Memory of blocks that wait for a place on a device.
    staged_size,
    /// Log blocks on devices now.
    log_blk_count,
    /// Their bytes.
    log_blk_asize,
    /// Devices in use.
    devices,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }
}
