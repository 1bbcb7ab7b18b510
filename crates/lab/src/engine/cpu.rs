//! Processor time of a thread.
#![allow(unsafe_code)] // getrusage fills a structure of ours; no safe crate at hand knows RUSAGE_THREAD

use crate::measurement::CpuTime;

/// What the calling thread used so far. Threads of the kernel that work for it (io_uring's) are not in it; nor are they in what fio says.
pub(super) fn of_thread() -> CpuTime {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours, and of the size that the kernel fills.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) } != 0 {
        return CpuTime::default();
    }
    CpuTime { user_ns: ns(usage.ru_utime), system_ns: ns(usage.ru_stime) }
}

/// What was used from `before` on.
pub(super) fn since(before: CpuTime) -> CpuTime {
    let now = of_thread();
    CpuTime {
        user_ns: now.user_ns.saturating_sub(before.user_ns),
        system_ns: now.system_ns.saturating_sub(before.system_ns),
    }
}

fn ns(time: libc::timeval) -> u64 {
    (time.tv_sec.unsigned_abs()) * 1_000_000_000 + time.tv_usec.unsigned_abs() * 1_000
}
