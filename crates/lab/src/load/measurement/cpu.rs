//! Processor time of this process, its threads, and its child programs.
#![allow(unsafe_code)] // getrusage has no safe wrapper in the dependencies; it fills a plain struct

use super::CpuTime;

impl CpuTime {
    /// Processor time of this process so far, all threads included.
    pub fn of_process() -> CpuTime {
        usage(libc::RUSAGE_SELF)
    }

    /// Processor time of the calling thread so far, without kernel threads that work for it (io_uring's).
    pub fn of_thread() -> CpuTime {
        usage(libc::RUSAGE_THREAD)
    }

    /// Processor time of finished child programs and their children.
    pub fn of_children() -> CpuTime {
        usage(libc::RUSAGE_CHILDREN)
    }

    /// Time used since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    /// Adds time used elsewhere.
    pub fn add(&mut self, other: CpuTime) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
    }

    /// User space and kernel together, in nanoseconds.
    pub fn total_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }
}

fn usage(who: libc::c_int) -> CpuTime {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a local struct of the right type, for which all zeros is a valid value.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ns = |time: libc::timeval| u64::try_from(time.tv_sec * 1_000_000 + time.tv_usec).unwrap_or(0) * 1000;
    CpuTime { user_ns: ns(usage.ru_utime), system_ns: ns(usage.ru_stime) }
}
