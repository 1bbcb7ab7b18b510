//! Lost guest memory: an emulator may truncate the file it shares with the daemon. Access then raises SIGBUS,
//! which would end the daemon with all its pools.
//!
//! Idea: the signal handler maps zeros over the lost page and marks its region as lost. The access succeeds,
//! and the connection ends soon after ([`crate::device`]). Faults elsewhere end the program as before. A
//! process per socket would also contain the fault, but copy all data between processes.
//!
//! Locking: none. The handler only reads [`REGIONS`]. A region is entered end first, start last, and removed
//! start first. [`Watched`] owns the memory, so it stays mapped while entered.
//!
//! Source: `sigaction(2)`, `mmap(2)` (SIGBUS).
#![allow(unsafe_code)] // a signal handler, which replaces pages of mappings that this module keeps alive

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};

use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

/// Regions of all guests; a guest has at most eight.
const REGIONS_MAX: usize = 1024;

/// A guest mapping in this process. `start` is 0 if the slot is free.
struct Region {
    start: AtomicUsize,
    end: AtomicUsize,
    is_lost: AtomicBool,
    is_taken: AtomicBool,
}

static REGIONS: [Region; REGIONS_MAX] = [const {
    Region {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        is_lost: AtomicBool::new(false),
        is_taken: AtomicBool::new(false),
    }
}; REGIONS_MAX];

/// The previous SIGBUS action.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Watched guest memory.
pub struct Watched {
    memory: Arc<GuestMemoryMmap>,
    regions: Vec<&'static Region>,
}

impl Watched {
    /// Watches guest memory.
    ///
    /// # Errors
    /// Too many regions.
    pub fn new(memory: Arc<GuestMemoryMmap>) -> io::Result<Watched> {
        install();
        let mut watched = Watched { memory: memory.clone(), regions: Vec::new() };
        for mapping in memory.iter() {
            let free = REGIONS.iter().find(|region| !region.is_taken.swap(true, Ordering::AcqRel));
            let region = free.ok_or_else(|| io::Error::other("there are too many guests"))?;
            region.is_lost.store(false, Ordering::Relaxed);
            let start = mapping.as_ptr() as usize;
            region.end.store(start + mapping.len() as usize, Ordering::Relaxed);
            region.start.store(start, Ordering::Release);
            watched.regions.push(region);
        }
        Ok(watched)
    }

    /// Whether a part was lost.
    pub fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.is_lost.load(Ordering::Acquire))
    }

    /// Whether this is the last reference.
    pub fn is_left(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        for region in &self.regions {
            region.start.store(0, Ordering::Release);
            region.is_taken.store(false, Ordering::Release);
        }
    }
}

fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: both structures are valid, and the handler follows the rules of signal handlers.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) == 0 {
                BEFORE.get_or_init(|| before);
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_bus as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&mut action.sa_mask);
                libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
            }
        }
    });
}

/// The signal handler. Makes only system calls and reads only atomics.
extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure.
    let address = unsafe { (*info).si_addr() } as usize;
    for region in &REGIONS {
        let start = region.start.load(Ordering::Acquire);
        if start != 0 && start <= address && address < region.end.load(Ordering::Relaxed) {
            let end = region.end.load(Ordering::Relaxed);
            if replace(address, start, end) {
                region.is_lost.store(true, Ordering::Release);
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// Maps zeros over the address's page, or if that fails (huge pages), over the region.
fn replace(address: usize, start: usize, end: usize) -> bool {
    const FLAGS: libc::c_int =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the range lies within a mapping of guest memory, which lives while it is entered and is
    // accessed as memory that changes at any time. `errno` is as it was.
    unsafe {
        let errno = *libc::__errno_location();
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let map = |at: usize, len: usize| {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(at as *mut libc::c_void, len, access, FLAGS, -1, 0) != libc::MAP_FAILED
        };
        let is_replaced = map(address & !(page - 1), page) || map(start, end - start);
        *libc::__errno_location() = errno;
        is_replaced
    }
}

/// Treats a fault outside guest memory as if this module did not exist.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the handler from before is called as the kernel would have called it; or the default action is
    // set, and follows when the access is made again.
    unsafe {
        match BEFORE.get() {
            Some(before)
                if before.sa_flags & libc::SA_SIGINFO != 0
                    && ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) =>
            {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(before.sa_sigaction);
                handler(signal, info, context);
            }
            _ => {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use vm_memory::{Bytes, FileOffset, GuestAddress};

    fn truncated(file: &File) -> Arc<GuestMemoryMmap> {
        file.set_len(64 << 10).unwrap();
        let range = (GuestAddress(0), 64 << 10, Some(FileOffset::new(file.try_clone().unwrap(), 0)));
        let memory = Arc::new(GuestMemoryMmap::from_ranges_with_files([range]).unwrap());
        memory.write_obj(7_u32, GuestAddress(40 << 10)).unwrap();
        file.set_len(8 << 10).unwrap();
        memory
    }

    #[test]
    fn memory_that_is_taken_away_reads_as_zeros_and_is_known_to_be_lost() {
        let file = tempfile::tempfile().unwrap();
        let watched = Watched::new(truncated(&file)).unwrap();
        assert!(!watched.is_lost());
        assert_eq!(watched.memory.read_obj::<u32>(GuestAddress(4 << 10)).unwrap(), 0);
        assert!(!watched.is_lost(), "that part is there");
        assert_eq!(watched.memory.read_obj::<u32>(GuestAddress(40 << 10)).unwrap(), 0);
        assert!(watched.is_lost() && watched.is_left());
        watched.memory.write_obj(9_u32, GuestAddress(20 << 10)).unwrap();
        assert_eq!(watched.memory.read_obj::<u32>(GuestAddress(20 << 10)).unwrap(), 9);
        let other = Watched::new(Arc::new(GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 4096)]).unwrap()));
        assert!(!other.unwrap().is_lost());
    }
}
