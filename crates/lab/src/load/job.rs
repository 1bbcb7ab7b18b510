//! Workload descriptions: jobs as plain values.
//!
//! Source: fio's job files. This is a commonly used subset, with fio's names and the meanings of its HOWTO.

mod file;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Jobs in order: they run together until one has `stonewall`, which waits for those before it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Jobs(pub Vec<Job>);

/// Kind and order of operations (`rw`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// Random offsets instead of sequential ones.
    pub random: bool,
    /// Share of reads in percent: 100 reads only, 0 writes only (`rwmixread`).
    pub read_percent: u8,
}

/// Sizes of operations (`bs`, `bsrange`, `bssplit`) as (bytes, weight) pairs; a range has each multiple of
/// its step once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSizes(pub Vec<(u32, u32)>);

/// Distribution of random offsets (`random_distribution`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Uniform; each block once per pass unless `norandommap`.
    Random,
    /// Zipf, with its theta.
    Zipf(f64),
    /// Pareto, with its h.
    Pareto(f64),
    /// Normal, with its standard deviation in percent.
    Normal(f64),
}

/// Submission of operations (`ioengine`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// io_uring with up to `iodepth` operations in flight (fio's `io_uring` and `libaio`).
    IoUring,
    /// One `pread`/`pwrite` at a time per job (fio's `psync`, `sync`).
    Threads,
}

/// Durability of each write (`sync`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// Not at all.
    #[default]
    None,
    /// `O_SYNC`.
    Sync,
    /// `O_DSYNC`.
    Dsync,
}

/// Content of writes (`refill_buffers`, `scramble_buffers`, `zero_buffers`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Buffers are filled once with random data; each write changes a few bytes in every 512, so that no two
    /// are equal.
    #[default]
    Stamped,
    /// Buffers are filled once with random data and written repeatedly (`scramble_buffers=0`).
    Reused,
    /// New data for each write (`refill_buffers`; also if compression, copies or verification require it).
    Fresh,
    /// Zeros (`zero_buffers`).
    Zeros,
}

/// A value for reads and one for writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadWrite<T> {
    /// For reads.
    pub read: T,
    /// For writes.
    pub write: T,
}

/// One job: `numjobs` identical workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Section header.
    pub name: String,
    /// Kind and order of operations (`rw`, `rwmixread`, `rwmixwrite`).
    pub pattern: Pattern,
    /// Sizes of operations (`bs`, `bsrange`, `bssplit`).
    pub block_sizes: ReadWrite<BlockSizes>,
    /// File or device named by the job (`filename`).
    pub filename: Option<PathBuf>,
    /// Bytes of each worker's file or region of the device (`size`).
    pub size_bytes: u64,
    /// Bytes that each worker transfers, if not `size_bytes` (`io_size`).
    pub io_size_bytes: Option<u64>,
    /// Start of the worker's region (`offset`).
    pub offset_bytes: u64,
    /// Operations in flight (`iodepth`).
    pub queue_depth: u32,
    /// Number of workers (`numjobs`).
    pub workers: u32,
    /// Submission of operations (`ioengine`).
    pub method: Method,
    /// Bypass the page cache (`direct`).
    pub direct: bool,
    /// Drop the file's cached pages before the start (`invalidate`).
    pub invalidate: bool,
    /// Durability of each write (`sync`).
    pub sync: SyncMode,
    /// `fsync` after this many writes; 0 means never (`fsync`).
    pub fsync_every: u32,
    /// `fdatasync` after this many writes; 0 means never (`fdatasync`).
    pub fdatasync_every: u32,
    /// `fsync` at the end (`end_fsync`).
    pub end_fsync: bool,
    /// Time limit in nanoseconds (`runtime`).
    pub runtime_ns: Option<u64>,
    /// Repeat until `runtime_ns` (`time_based`).
    pub time_based: bool,
    /// Warm-up before measuring (`ramp_time`).
    pub ramp_ns: u64,
    /// Delay before the start (`startdelay`).
    pub start_delay_ns: u64,
    /// Limit in bytes per second and worker (`rate`).
    pub rate_bytes: ReadWrite<Option<u64>>,
    /// Limit in operations per second and worker (`rate_iops`).
    pub rate_iops: ReadWrite<Option<u64>>,
    /// Pause in nanoseconds after each `think_blocks` operations (`thinktime`).
    pub think_ns: u64,
    /// Operations between pauses (`thinktime_blocks`).
    pub think_blocks: u32,
    /// Distribution of random offsets (`random_distribution`).
    pub distribution: Distribution,
    /// Random offsets may repeat before every block was visited (`norandommap`).
    pub no_random_map: bool,
    /// Seed of everything random (`randseed`).
    pub seed: u64,
    /// Content of writes (`refill_buffers`, `scramble_buffers`, `zero_buffers`).
    pub content: Content,
    /// Compressible share of each buffer, in percent (`buffer_compress_percentage`).
    pub compress_percent: u8,
    /// Share of buffers that are copies of others, in percent (`dedupe_percentage`).
    pub dedupe_percent: u8,
    /// Written data are marked, and verified when read (`verify`).
    pub verify: bool,
    /// Report all workers as one line (`group_reporting`).
    pub group: bool,
    /// Waits for all jobs before it (`stonewall`).
    pub stonewall: bool,
}

impl BlockSizes {
    /// All operations have this size.
    pub fn of(bytes: u32) -> BlockSizes {
        BlockSizes(vec![(bytes, 1)])
    }

    /// Largest size.
    pub fn largest(&self) -> u32 {
        self.0.iter().map(|size| size.0).max().unwrap_or(0)
    }
}

impl Job {
    /// Whether it reads.
    pub fn reads(&self) -> bool {
        self.pattern.read_percent > 0
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.pattern.read_percent < 100
    }

    /// Conflicting options, in words, if any.
    pub fn contradiction(&self) -> Option<&'static str> {
        let sizes = [&self.block_sizes.read.0, &self.block_sizes.write.0];
        if sizes
            .iter()
            .any(|sizes| sizes.iter().all(|size| size.1 == 0) || sizes.iter().any(|size| size.0 == 0))
        {
            return Some("block sizes must be above 0, and one must have a weight");
        }
        if self.time_based && self.runtime_ns.is_none() {
            return Some("time_based needs a runtime");
        }
        if self.verify && self.dedupe_percent > 0 {
            return Some(
                "verified blocks contain their offset, so none is a copy: drop verify or dedupe_percentage",
            );
        }
        if self.verify && sizes[1].iter().any(|size| !size.0.is_multiple_of(512)) {
            return Some("verify needs block sizes that are multiples of 512");
        }
        None
    }
}

impl Default for Job {
    /// fio's defaults: sequential 4 KiB reads, one worker, one at a time, buffered.
    fn default() -> Job {
        let each = |bytes| ReadWrite { read: BlockSizes::of(bytes), write: BlockSizes::of(bytes) };
        Job {
            name: "job".into(),
            pattern: Pattern { random: false, read_percent: 100 },
            block_sizes: each(4096),
            filename: None,
            size_bytes: 0,
            io_size_bytes: None,
            offset_bytes: 0,
            queue_depth: 1,
            workers: 1,
            method: Method::Threads,
            direct: false,
            invalidate: true,
            sync: SyncMode::None,
            fsync_every: 0,
            fdatasync_every: 0,
            end_fsync: false,
            runtime_ns: None,
            time_based: false,
            ramp_ns: 0,
            start_delay_ns: 0,
            rate_bytes: ReadWrite::default(),
            rate_iops: ReadWrite::default(),
            think_ns: 0,
            think_blocks: 1,
            distribution: Distribution::Random,
            no_random_map: false,
            seed: 1,
            content: Content::Stamped,
            compress_percent: 0,
            dedupe_percent: 0,
            verify: false,
            group: false,
            stonewall: false,
        }
    }
}
