//! Locked disks being closed, for which the end of the program waits.
//!
//! Idea: closing gives the lock back, which takes milliseconds. If the program ended meanwhile, the next one
//! would find the lock of a dead client, and fence it; another machine would be refused.
//!
//! Locking: one mutex for the number.
#![allow(unsafe_code)] // atexit has no safe wrapper

use std::sync::Once;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Longest wait: the storage may not answer.
const PATIENCE: Duration = Duration::from_secs(3);

static UNDER_WAY: Mutex<usize> = Mutex::new(0);
static LESS: Condvar = Condvar::new();
static AT_EXIT: Once = Once::new();

/// A disk being closed, until dropped.
pub(crate) struct Closing(());

impl Closing {
    pub(crate) fn begin() -> Closing {
        AT_EXIT.call_once(|| {
            // SAFETY: the function may be called at any time. If it can't be registered, nobody waits.
            unsafe { libc::atexit(wait) };
        });
        *UNDER_WAY.lock() += 1;
        Closing(())
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        *UNDER_WAY.lock() -= 1;
        LESS.notify_all();
    }
}

extern "C" fn wait() {
    let mut under_way = UNDER_WAY.lock();
    LESS.wait_while_for(&mut under_way, |count| *count > 0, PATIENCE);
}
