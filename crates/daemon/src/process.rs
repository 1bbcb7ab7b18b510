//! The process that a daemon runs in.

use cenote_host::memory::Freed;

/// Functions of the process that a daemon runs in.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    /// Prints a message.
    pub say: fn(&str),
    /// Tells the allocator how long to keep freed memory.
    pub set_freed: fn(Freed),
    /// Starts the processes that guard mounts.
    pub start_guard: fn(),
}
