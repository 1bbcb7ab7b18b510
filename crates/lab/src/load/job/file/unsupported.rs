//! fio options that change nothing here, and those that would change the measurement and are therefore
//! refused.

/// Names, and why they make no difference.
pub(super) const IGNORED: &[(&[&str], &str)] = &[
    (&["description"], "words"),
    (&["thread"], "workers are always threads"),
    (
        &["directory", "filename_format", "unique_filename", "allow_file_create", "allow_mounted_write"],
        "the caller decides where to work and what may be overwritten",
    ),
    (&["unlink"], "test files are always removed"),
    (
        &["randrepeat", "allrandrepeat", "random_generator", "softrandommap"],
        "random orders derive from the seed and need no map",
    ),
    (
        &["fallocate", "create_serialize", "create_fsync", "create_on_open"],
        "the engine lays files out in its own way",
    ),
    (&["fadvise_hint"], "the engine gives advice that suits the pattern"),
    (
        &["mem", "iomem", "iomem_align", "mem_align", "lockmem", "hugepage-size"],
        "the engine allocates buffers, aligned for direct I/O",
    ),
    (&["registerfiles", "fixedbufs", "nonvectored"], "the engine sets the ring up in its own way"),
    (&["buffer_compress_chunk"], "compressible parts alternate every 4 KiB"),
    (
        &[
            "verify_async",
            "verify_backlog",
            "verify_backlog_batch",
            "verify_dump",
            "verify_fatal",
            "verify_interval",
            "verifysort",
        ],
        "verification has one form: all written data in units of 512 bytes, up to the first error",
    ),
    (
        &[
            "new_group",
            "unified_rw_reporting",
            "per_job_logs",
            "write_bw_log",
            "write_lat_log",
            "write_iops_log",
            "write_hist_log",
            "log_avg_msec",
            "log_hist_msec",
            "log_hist_coarseness",
            "log_offset",
            "log_max_value",
            "log_window_value",
            "log_compression",
            "log_store_compressed",
            "log_unix_epoch",
            "bwavgtime",
            "iopsavgtime",
            "clat_percentiles",
            "lat_percentiles",
            "slat_percentiles",
            "percentile_list",
            "significant_figures",
            "disk_util",
            "gtod_reduce",
            "disable_lat",
            "disable_clat",
            "disable_slat",
            "disable_bw_measurement",
            "disable_bw",
            "clocksource",
            "unit_base",
        ],
        "everything is recorded, for each job separately",
    ),
];

/// Values that change nothing.
type Neutral = Option<&'static [&'static str]>;

/// Names, the alternative, and values that change nothing.
pub(super) const REFUSED: &[(&[&str], &str, Neutral)] = &[
    (&["include"], "copy the file's lines here", None),
    (&["loops"], "set the total amount with io_size", Some(&["1"])),
    (&["number_ios"], "set the total amount with io_size", None),
    (
        &["nrfiles", "nr_files", "openfiles", "file_service_type"],
        "each worker has one file; for many files use the suite `metadata`",
        Some(&["1"]),
    ),
    (&["filesize"], "each worker has one file, so use `size`", None),
    (&["offset_increment"], "each worker already has its own region", Some(&["0"])),
    (
        &["blockalign", "ba", "blocksize_unaligned", "bs_unaligned", "bs_is_seq_rand"],
        "offsets are multiples of the smallest block size",
        Some(&["0"]),
    ),
    (&["fill_device", "fill_fs"], "give a size", Some(&["0"])),
    (&["overwrite"], "write the file in an earlier job, and put a stonewall before this one", Some(&["0"])),
    (
        &[
            "do_verify",
            "verify_only",
            "verify_pattern",
            "verify_offset",
            "experimental_verify",
            "verify_state_load",
            "verify_state_save",
        ],
        "verification reads back what the same job wrote",
        Some(&["1"]),
    ),
    (
        &["percentage_random", "percentage_sequential"],
        "make it two jobs, one random and one sequential",
        None,
    ),
    (&["rw_sequencer", "rwmixcycle"], "the mix is exact in every 100 operations", None),
    (
        &["exitall", "exitall_on_error", "exit_what", "flow", "flow_id", "flow_sleep", "wait_for"],
        "give each job its runtime, and order jobs with stonewall",
        Some(&["0"]),
    ),
    (
        &["continue_on_error", "ignore_error", "max_latency"],
        "errors are counted and shown with the result",
        Some(&["none"]),
    ),
    (
        &["latency_target", "latency_window", "latency_percentile"],
        "run a job for each queue depth and compare",
        None,
    ),
    (
        &["rate_min", "ratemin", "rate_iops_min", "rate_cycle", "rate_process", "rate_ignore_thinktime"],
        "rate and rate_iops are upper limits",
        Some(&["linear"]),
    ),
    (
        &["thinktime_spin", "thinktime_blocks_type", "thinktime_iotime", "thinkcycles"],
        "thinktime sleeps after thinktime_blocks operations",
        Some(&["0", "complete"]),
    ),
    (
        &["fsync_on_close", "sync_file_range", "write_barrier"],
        "use fsync, fdatasync or end_fsync",
        Some(&["0"]),
    ),
    (
        &[
            "iodepth_batch",
            "iodepth_batch_submit",
            "iodepth_batch_complete",
            "iodepth_batch_complete_min",
            "iodepth_batch_complete_max",
            "iodepth_low",
            "io_submit_mode",
            "serialize_overlap",
        ],
        "operations are submitted as soon as a slot is free",
        Some(&["inline", "0"]),
    ),
    (
        &["hipri", "sqthread_poll", "sqthread_poll_cpu", "uncached", "nowait", "atomic", "rwf_dsync"],
        "the ring waits for interrupts",
        Some(&["0"]),
    ),
    (
        &["cpus_allowed", "cpumask", "cpus_allowed_policy", "numa_cpu_nodes", "numa_mem_policy"],
        "pin the whole program with taskset or numactl",
        None,
    ),
    (
        &["prio", "prioclass", "nice", "cgroup", "cgroup_weight", "ioscheduler", "uid", "gid"],
        "set it for the whole program with ionice, nice or systemd-run",
        None,
    ),
    (
        &["zonemode", "zonesize", "zonerange", "zonecapacity", "zoneskip", "max_open_zones"],
        "zones are not supported",
        Some(&["none"]),
    ),
    (&["read_iolog", "write_iolog", "replay_no_stall", "replay_redirect"], "traces are not replayed", None),
    (
        &["buffer_pattern", "dedupe_mode", "dedupe_working_set_percentage", "dedupe_global"],
        "content is random, zeros (zero_buffers), or set by buffer_compress_percentage and dedupe_percentage",
        Some(&["0"]),
    ),
    (&["trim_percentage", "trim_verify_zero", "trim_backlog"], "trims are not supported", Some(&["0"])),
    (&["exec_prerun", "exec_postrun", "profile"], "job files cannot run programs here", None),
    (
        &["steadystate", "steadystate_duration", "steadystate_ramp_time", "ss", "ss_dur", "ss_ramp"],
        "set a runtime; the report flags unstable results",
        None,
    ),
    (
        &["pre_read", "create_only"],
        "read or write the file in an earlier job, and put a stonewall before this one",
        Some(&["0"]),
    ),
    (
        &["unlink_each_loop", "lockfile", "opendir", "file_append", "readonly"],
        "each worker has one file, created for the run and removed",
        Some(&["0", "none"]),
    ),
];
