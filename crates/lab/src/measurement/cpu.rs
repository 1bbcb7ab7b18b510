//! Processor time of this process, of one of its threads, and of programs that it ran.
#![allow(unsafe_code)] // getrusage has no safe wrapper among our libraries; it fills a plain struct

use super::CpuTime;

impl CpuTime {
    /// What this process used until now, with all its threads.
    pub fn of_process() -> CpuTime {
        usage(libc::RUSAGE_SELF)
    }

    /// What the calling thread used until now. Threads of the kernel that work for it (io_uring's) are not in it.
    pub fn of_thread() -> CpuTime {
        usage(libc::RUSAGE_THREAD)
    }

    /// What programs used that this process ran and that have ended, with those that they ran.
    pub fn of_children() -> CpuTime {
        usage(libc::RUSAGE_CHILDREN)
    }

    /// What was used since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    /// Adds what was used elsewhere.
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
    // SAFETY: the pointer is to a struct of ours of the right type, and all zeros is a value of it.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ns = |time: libc::timeval| u64::try_from(time.tv_sec * 1_000_000 + time.tv_usec).unwrap_or(0) * 1000;
    CpuTime { user_ns: ns(usage.ru_utime), system_ns: ns(usage.ru_stime) }
}
