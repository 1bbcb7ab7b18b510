//! A workload description: what one job does, as plain values.
//!
//! Source: fio's job files, of which this is the part that storage people use; the words are fio's, and mean what its HOWTO says.

mod file;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Some jobs, and in which order: jobs run together until one has `stonewall`, which waits for those before it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Jobs(pub Vec<Job>);

/// Which operations, in which order (`rw`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// Random offsets instead of one after the other.
    pub random: bool,
    /// Reads among all operations, in percent: 100 reads only, 0 writes only (`rwmixread`).
    pub read_percent: u8,
}

/// Sizes of operations (`bs`, `bsrange`, `bssplit`): (bytes, weight) pairs; a range has each multiple of its step once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSizes(pub Vec<(u32, u32)>);

/// Where random operations go (`random_distribution`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Everywhere alike; each block once a pass unless `norandommap`.
    Random,
    /// Zipf, with its theta.
    Zipf(f64),
    /// Pareto, with its h.
    Pareto(f64),
    /// Normal, with its deviation in percent.
    Normal(f64),
}

/// How operations reach the system (`ioengine`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// io_uring, as many operations at once as `iodepth` says (fio's `io_uring` and `libaio`).
    IoUring,
    /// One `pread`/`pwrite` at a time a job (fio's `psync`, `sync`).
    Threads,
}

/// How each write is made durable as it is made (`sync`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// It is not.
    #[default]
    None,
    /// `O_SYNC`.
    Sync,
    /// `O_DSYNC`.
    Dsync,
}

/// What writes write (`refill_buffers`, `scramble_buffers`, `zero_buffers`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Buffers are filled once with random data, and each write changes a few bytes of each 512, so that no two are equal.
    #[default]
    Stamped,
    /// Buffers are filled once with random data and then written again and again (`scramble_buffers=0`).
    Reused,
    /// Each write has new data (`refill_buffers`; also where compression, copies or verification ask for it).
    Fresh,
    /// Zeros (`zero_buffers`).
    Zeros,
}

/// One value for reads, one for writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadWrite<T> {
    /// For reads.
    pub read: T,
    /// For writes.
    pub write: T,
}

/// One job: `numjobs` workers that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its name: the section's.
    pub name: String,
    /// Which operations (`rw`, `rwmixread`, `rwmixwrite`).
    pub pattern: Pattern,
    /// Sizes of operations (`bs`, `bsrange`, `bssplit`).
    pub block_sizes: ReadWrite<BlockSizes>,
    /// File or device, if not chosen by whoever runs it (`filename`).
    pub filename: Option<PathBuf>,
    /// Bytes of the file (or of the part of the device) of each worker (`size`).
    pub size_bytes: u64,
    /// Bytes that each worker moves, if not `size_bytes` (`io_size`).
    pub io_size_bytes: Option<u64>,
    /// Where the worker's part begins (`offset`).
    pub offset_bytes: u64,
    /// Operations at once (`iodepth`).
    pub queue_depth: u32,
    /// Workers (`numjobs`).
    pub workers: u32,
    /// How operations reach the system (`ioengine`).
    pub method: Method,
    /// Past the page cache (`direct`).
    pub direct: bool,
    /// What the page cache has of the file is dropped before it begins (`invalidate`).
    pub invalidate: bool,
    /// How each write is made durable (`sync`).
    pub sync: SyncMode,
    /// `fsync` after so many writes; 0 never (`fsync`).
    pub fsync_every: u32,
    /// `fdatasync` after so many writes; 0 never (`fdatasync`).
    pub fdatasync_every: u32,
    /// `fsync` at the end (`end_fsync`).
    pub end_fsync: bool,
    /// At most so long, in nanoseconds (`runtime`).
    pub runtime_ns: Option<u64>,
    /// Begins again when all is done, until `runtime_ns` (`time_based`).
    pub time_based: bool,
    /// So long before it counts (`ramp_time`).
    pub ramp_ns: u64,
    /// So long before it begins (`startdelay`).
    pub start_delay_ns: u64,
    /// At most so many bytes a second a worker (`rate`).
    pub rate_bytes: ReadWrite<Option<u64>>,
    /// At most so many operations a second a worker (`rate_iops`).
    pub rate_iops: ReadWrite<Option<u64>>,
    /// Pause, in nanoseconds, after each `think_blocks` operations (`thinktime`).
    pub think_ns: u64,
    /// How many operations between pauses (`thinktime_blocks`).
    pub think_blocks: u32,
    /// Where random operations go (`random_distribution`).
    pub distribution: Distribution,
    /// Random offsets may repeat before all blocks were met (`norandommap`).
    pub no_random_map: bool,
    /// Seed of all that is random in it (`randseed`).
    pub seed: u64,
    /// What writes write (`refill_buffers`, `scramble_buffers`, `zero_buffers`).
    pub content: Content,
    /// How much of each buffer compresses away, in percent (`buffer_compress_percentage`).
    pub compress_percent: u8,
    /// How many buffers are copies of others, in percent (`dedupe_percentage`).
    pub dedupe_percent: u8,
    /// What is written can be told apart when it is read, and is verified then (`verify`).
    pub verify: bool,
    /// Workers are one line in reports (`group_reporting`).
    pub group: bool,
    /// Waits for all jobs before it (`stonewall`).
    pub stonewall: bool,
}

impl BlockSizes {
    /// All of one size.
    pub fn of(bytes: u32) -> BlockSizes {
        BlockSizes(vec![(bytes, 1)])
    }

    /// The largest.
    pub fn largest(&self) -> u32 {
        self.0.iter().map(|size| size.0).max().unwrap_or(0)
    }
}

impl Job {
    /// What excludes each other in it, in words, if anything does.
    pub fn contradiction(&self) -> Option<&'static str> {
        let sizes = [&self.block_sizes.read.0, &self.block_sizes.write.0];
        if sizes
            .iter()
            .any(|sizes| sizes.iter().all(|size| size.1 == 0) || sizes.iter().any(|size| size.0 == 0))
        {
            return Some("each block size must be above 0, and one of them come");
        }
        if self.time_based && self.runtime_ns.is_none() {
            return Some("time_based needs a runtime");
        }
        if self.verify && self.dedupe_percent > 0 {
            return Some(
                "verified blocks each carry their place, so none is a copy: drop verify or dedupe_percentage",
            );
        }
        if self.verify && sizes[1].iter().any(|size| !size.0.is_multiple_of(512)) {
            return Some("verify needs block sizes that are multiples of 512");
        }
        None
    }
}

impl Default for Job {
    /// fio's defaults: 4 KiB reads one after the other, one worker, one at a time, buffered.
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
