//! The total size of a copy, for its progress. Counted while the copy is running, and only if progress is
//! shown.
//!
//! Locking: one atomic number, zero until the count is complete. The counting task or thread stores it once;
//! the copy reads it at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_fs::FileKind;
use cenote_inspect::copy::CopySource;
use cenote_inspect::put::HostFile;
use cenote_inspect::scan::{RowBatch, ScanNeeds, ScanTarget, scan_below};
use cenote_runtime::{AbortOnDrop, Runtime};

/// The total size in bytes, once counted.
#[derive(Default)]
pub struct Total {
    bytes: Arc<AtomicU64>,
    _counting: Option<AbortOnDrop<()>>,
}

impl Total {
    /// Counts the bytes below sources in a pool.
    pub fn of_pool(runtime: &Runtime, sources: Vec<CopySource>) -> Total {
        let mut total = Total::default();
        let bytes = total.bytes.clone();
        let count = async move {
            let mut sum = 0u64;
            for source in sources {
                sum = sum.saturating_add(count_source(source).await);
            }
            bytes.store(sum, Ordering::Relaxed);
        };
        total._counting = Some(runtime.spawn(count).abort_on_drop());
        total
    }

    /// Counts the bytes below files of the machine, in a thread that may outlive the copy.
    pub fn of_host(sources: Vec<HostFile>) -> Total {
        let total = Total::default();
        let bytes = total.bytes.clone();
        let count = move || {
            let sum = sources.iter().map(HostFile::bytes_below).fold(0, u64::saturating_add);
            bytes.store(sum, Ordering::Relaxed);
        };
        // Without a thread the total stays unknown.
        std::thread::Builder::new().spawn(count).ok();
        total
    }

    /// The bytes; 0 until counted.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

async fn count_source(source: CopySource) -> u64 {
    let Ok(attr) = source.filesystem.attr(source.object).await else { return 0 };
    if !attr.is_dir() {
        return attr.size;
    }
    let target = ScanTarget { dataset: String::new(), snapshot: None, filesystem: source.filesystem };
    let mut sum = 0u64;
    let sizes = |batch: &RowBatch| {
        let files = batch.rows.iter().filter(|row| row.attr.kind() == FileKind::Regular);
        files.map(|row| row.attr.size).fold(0, u64::saturating_add)
    };
    let add = |bytes: u64| {
        sum = sum.saturating_add(bytes);
        Ok(())
    };
    // Unreadable files are not copied either.
    let _ = scan_below(&target, source.object, ScanNeeds::default(), sizes, add).await;
    sum
}
