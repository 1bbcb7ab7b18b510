//! Files mapped into memory.
#![allow(unsafe_code)] // There is no other way to map a file.

use std::fs::{self, File, OpenOptions};
use std::process::Command;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use crate::mount::mounted::Pool;

/// Shares the first `len` bytes of a file with `work`, and returns when its changes are in the file.
pub fn with_mapped(file: &File, len: usize, work: impl FnOnce(&mut [u8])) {
    with_mapped_until(file, len, work).unwrap();
}

/// The same, where the file may refuse the changes.
fn with_mapped_until(file: &File, len: usize, work: impl FnOnce(&mut [u8])) -> Result<(), Errno> {
    // SAFETY: the mapping is as long as the slice, it is the only one in this process, and it outlives
    // `work`.
    unsafe {
        let at =
            mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
                .unwrap();
        work(std::slice::from_raw_parts_mut(at.cast(), len));
        let done = msync(at, len, MsyncFlags::SYNC);
        munmap(at, len).unwrap();
        done
    }
}

#[test]
fn what_a_mapping_has_changed_is_data_before_it_is_written_back() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let (path, len, record) = (mounted.path("sparse"), 8 << 20, 128 << 10);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.set_len(len as u64).unwrap();
    with_mapped(&file, len, |bytes| {
        let seek = |from| rustix::fs::seek(&file, from);
        assert_eq!(seek(SeekFrom::Data(0)), Err(Errno::NXIO));
        bytes[5 << 20] = 1;
        assert_eq!(seek(SeekFrom::Data(0)), Ok(5 << 20));
        bytes[(5 << 20) + record] = 2;
        bytes[(7 << 20) + 1] = 3;
        assert_eq!(seek(SeekFrom::Hole(5 << 20)), Ok((5 << 20) + 2 * record as u64));
        assert_eq!(seek(SeekFrom::Data(6 << 20)), Ok(7 << 20));
        bytes[3 << 20] = 4;
        let mut copy = Command::new("cp");
        copy.args(["--sparse=always", "--reflink=never"]).arg(&path).arg(mounted.path("copy"));
        assert!(copy.status().unwrap().success());
    });
    let content = fs::read(mounted.path("copy")).unwrap();
    let mut expected = vec![0; len];
    (expected[5 << 20], expected[(5 << 20) + record]) = (1, 2);
    (expected[(7 << 20) + 1], expected[3 << 20]) = (3, 4);
    assert!(content == expected);
    drop(file);
    mounted.unmount();
}

#[test]
fn a_mapping_of_an_immutable_file_changes_nothing_that_others_open() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let path = mounted.path("fixed");
    fs::write(&path, "original".repeat(1024)).unwrap();
    let link = mounted.path("link");
    fs::hard_link(&path, &link).unwrap();
    let chattr =
        |flag: &str| assert!(Command::new("chattr").arg(flag).arg(&path).status().unwrap().success());
    for flag in ["i", "a"] {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let refused = with_mapped_until(&file, 8192, |bytes| {
            // Changes made before the file became immutable are in the file.
            bytes[..8].copy_from_slice(b"in time ");
            chattr(&format!("+{flag}"));
            for path in [&path, &link] {
                bytes[..8].copy_from_slice(b"TAMPERED");
                assert_eq!(fs::read(path).unwrap()[..8], *b"in time ", "+{flag}: {path:?}, not written back");
            }
            bytes[8..16].copy_from_slice(b"TAMPERED");
        });
        assert_eq!(refused, Err(Errno::PERM), "+{flag}");
        assert_eq!(fs::read(&path).unwrap()[..16], *b"in time original", "+{flag}: refused");
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let refused = with_mapped_until(&file, 8192, |bytes| bytes[..8].copy_from_slice(b"TAMPERED"));
        assert_eq!(refused, Err(Errno::PERM), "+{flag}");
        assert_eq!(fs::read(&path).unwrap()[..16], *b"in time original", "+{flag}: mapped since");
        chattr(&format!("-{flag}"));
        fs::write(&path, "original".repeat(1024)).unwrap();
    }
    mounted.unmount();
}
