//! A file whose calls are always interrupted: every transfer ends with a clear error, and none hangs.
//!
//! A seccomp filter answers the calls of one thread, and of the threads it starts, with `EINTR`, as a broken
//! file system would.
#![allow(unsafe_code)] // the filter is a table in memory that the kernel is given the address of
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use cenote_device::{Bytes, Device, DeviceError, Direct, FileDevice, IoPath, OpenOptions};
use cenote_runtime::Runtime;
use std::io::ErrorKind;

/// Makes the kernel answer these system calls of the calling thread with `EINTR`. False if it accepts no
/// filters.
fn interrupt_for_ever(calls: &[libc::c_long]) -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for &call in calls {
        // If it is this call, return the error; else skip that.
        filter.push(libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32)
        });
        filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EINTR as u32));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program points to statements that live until the calls return; the kernel copies them.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    }
}

fn is_interrupted<T>(outcome: Result<T, DeviceError>) -> bool {
    matches!(outcome, Err(DeviceError::Io { source, .. }) if source.kind() == ErrorKind::Interrupted)
}

#[test]
fn calls_that_are_interrupted_for_ever_are_errors() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let calls = [
        libc::SYS_pread64,
        libc::SYS_preadv2,
        libc::SYS_pwrite64,
        libc::SYS_pwritev,
        libc::SYS_pwritev2,
        libc::SYS_fdatasync,
        libc::SYS_fallocate,
    ];
    // The runtime's threads inherit the filter from the thread that starts them; other tests' threads don't.
    let work = move || {
        if !interrupt_for_ever(&calls) {
            println!("skipped: the kernel takes no seccomp filter here");
            return;
        }
        let rt = Runtime::real(Some(1));
        let options =
            OpenOptions { direct: Direct::Never, io_path: IoPath::Threads, ..OpenOptions::READ_WRITE };
        let device = rt.block_on(FileDevice::open(file.path(), options, &rt)).unwrap();
        let data = || Bytes::from(vec![1; 8192]);
        assert!(is_interrupted(rt.block_on(device.read_at(0, 4096))));
        assert!(is_interrupted(rt.block_on(device.write_at(0, data()))));
        assert!(is_interrupted(rt.block_on(device.write_through(0, data()))));
        assert!(is_interrupted(rt.block_on(device.flush())));
        assert!(is_interrupted(rt.block_on(device.discard(0, 4096))));
        let together = futures::future::join_all((0..8).map(|n| device.write_at(n * 8192, data())));
        assert!(rt.block_on(together).into_iter().all(is_interrupted));
    };
    std::thread::spawn(work).join().unwrap();
}
