//! Asynchronous writes with `io_submit`, as databases make them.
#![allow(unsafe_code)] // Nothing safe wraps Linux's AIO.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// A queue of asynchronous writes, one in flight at a time.
pub struct Aio(libc::c_ulong);

const IOCB_CMD_PWRITE: u16 = 1;

/// `struct io_event`: data, obj, res, res2.
type Event = [i64; 4];

impl Aio {
    pub fn new() -> Aio {
        let mut context = 0;
        // SAFETY: the kernel writes only the context's number there.
        let done = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        Aio(context)
    }

    /// Writes all of `data`, and returns when the kernel reports completion.
    pub fn write_all_at(&self, file: &File, data: &[u8], offset: u64) {
        // SAFETY: zeros are a valid `iocb`.
        let mut block: libc::iocb = unsafe { std::mem::zeroed() };
        block.aio_lio_opcode = IOCB_CMD_PWRITE;
        block.aio_fildes = file.as_raw_fd() as u32;
        block.aio_buf = data.as_ptr() as u64;
        block.aio_nbytes = data.len() as u64;
        block.aio_offset = offset as i64;
        let mut blocks = [&raw mut block];
        // SAFETY: block and data live until `io_getevents` has returned below.
        let begun = unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, blocks.as_mut_ptr()) };
        assert_eq!(begun, 1, "{}", std::io::Error::last_os_error());
        let mut event: Event = [0; 4];
        let no_limit = null_mut::<libc::timespec>();
        // SAFETY: the buffer has room for the one requested event.
        let ended = unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, &raw mut event, no_limit) };
        assert_eq!((ended, event[2]), (1, data.len() as i64));
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: nothing is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}
