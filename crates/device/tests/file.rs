//! Files: every read path gives the same bytes, ends and errors are clear, read-only means read-only.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that can't go on must stop")]

use cenote_device::{Access, Bytes, Device, DeviceError, Direct, FileDevice, IoPath, OpenOptions};
use cenote_runtime::{Rng, Runtime, SimConfig};
use rustix::fs::{OFlags, fcntl_getfl};
use std::io::Write;
use tempfile::NamedTempFile;

/// Not a multiple of a page or a sector, so that the end is at an odd offset.
const SIZE: usize = 3 * 1024 * 1024 + 777;

fn random_file(seed: u64) -> (NamedTempFile, Vec<u8>) {
    let mut content = vec![0; SIZE];
    Rng::new(seed).fill(&mut content);
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(&content).expect("written");
    file.as_file().sync_all().expect("synced");
    (file, content)
}

fn evict(file: &NamedTempFile) {
    rustix::fs::fadvise(file.as_file(), 0, None, rustix::fs::Advice::DontNeed).expect("evicted");
}

/// All read paths; direct I/O only where the file system of the temporary folder supports it.
fn ways(file: &NamedTempFile, rt: &Runtime) -> Vec<(String, FileDevice)> {
    let mut devices = Vec::new();
    for io_path in [IoPath::Auto, IoPath::Uring, IoPath::Threads] {
        for direct in [Direct::Never, Direct::Always] {
            let options = OpenOptions { direct, io_path, ..OpenOptions::READ_ONLY };
            match rt.block_on(FileDevice::open(file.path(), options, rt)) {
                Ok(device) => devices.push((format!("{io_path:?}, direct {direct:?}"), device)),
                Err(error) if direct == Direct::Always => println!("skipped: {error}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
    devices
}

#[test]
fn every_way_gives_equal_bytes_at_odd_offsets_cold_and_warm() {
    let (file, content) = random_file(1);
    for rt in [Runtime::real(Some(2)), Runtime::simulated(SimConfig::seed(1))] {
        for (way, device) in ways(&file, &rt) {
            let mut rng = Rng::new(2);
            for round in 0..100 {
                if round % 10 == 0 {
                    evict(&file);
                }
                let offset = rng.below(SIZE as u64);
                let longest = if round % 2 == 0 { 10_000 } else { 1 << 20 };
                let len = rng.below((SIZE as u64 - offset).min(longest) + 1) as usize;
                let bytes = rt.block_on(device.read_at(offset, len)).expect("read");
                assert!(bytes == content[offset as usize..][..len], "{way}: {len} bytes at {offset}");
            }
            let last = rt.block_on(device.read_at(SIZE as u64 - 1, 1)).expect("the last byte");
            assert_eq!(last[0], content[SIZE - 1], "{way}");
            assert!(rt.block_on(device.read_at(SIZE as u64, 0)).expect("nothing at the end").is_empty());
        }
    }
}

#[test]
fn many_reads_at_once_do_not_mix() {
    let (file, content) = random_file(3);
    let rt = Runtime::real(Some(2));
    for (way, device) in ways(&file, &rt) {
        evict(&file);
        let reads = (0..700u64).map(|n| {
            let read = device.read_at(n * 4391, 4096);
            async move { (n, read.await) }
        });
        for (n, bytes) in rt.block_on(futures::future::join_all(reads)) {
            assert!(bytes.expect("read") == content[n as usize * 4391..][..4096], "{way}: read {n}");
        }
    }
}

#[test]
fn warm_reads_are_done_when_asked_for() {
    let (file, _) = random_file(4);
    let rt = Runtime::real(Some(1));
    let device = rt.block_on(FileDevice::open(file.path(), OpenOptions::READ_ONLY, &rt)).expect("opens");
    rt.block_on(device.read_at(0, 8192)).expect("read");
    // Network file systems and old tmpfs do not support it; there the slow path is right.
    let mut probe = [0; 1];
    let probed = rustix::io::preadv2(
        device.file(),
        &mut [std::io::IoSliceMut::new(&mut probe)],
        0,
        rustix::io::ReadWriteFlags::NOWAIT,
    );
    let warm = device.read_at(1000, 4096);
    assert_eq!(warm.is_done(), probed.is_ok(), "a warm read needs no thread");
    rt.block_on(warm).expect("read");
}

#[test]
fn a_durable_write_to_memory_is_done_when_asked_for_unless_one_to_its_place_is_under_way() {
    let file = NamedTempFile::new_in("/dev/shm").expect("a temporary file");
    file.as_file().set_len(SIZE as u64).expect("grown");
    let rt = Runtime::real(Some(1));
    let options = OpenOptions::READ_WRITE;
    let device = rt.block_on(FileDevice::open(file.path(), options, &rt)).expect("opens");
    let bytes = |byte| Bytes::from(vec![byte; 4096]);
    let alone = device.write_through(8192, bytes(1));
    assert!(alone.is_done(), "it needs no thread");
    rt.block_on(alone).expect("written");
    let before = device.write_at(0, bytes(2));
    let behind = device.write_through(2048, bytes(3));
    assert!(!behind.is_done());
    let (before, behind) = rt.block_on(futures::future::join(before, behind));
    before.and(behind).expect("both are written");
    let content = rt.block_on(device.read_at(0, 12288)).expect("read");
    assert!(content == [vec![2; 2048], vec![3; 4096], vec![0; 2048], vec![1; 4096]].concat());
}

#[test]
fn a_read_whose_future_is_dropped_hurts_nobody() {
    let (file, content) = random_file(5);
    let rt = Runtime::real(Some(2));
    for (way, device) in ways(&file, &rt) {
        evict(&file);
        for n in 0..200 {
            let mut read = device.read_at(n * 4096, 65536);
            // Polled once, so that it is in progress, and dropped.
            rt.block_on(async { assert!(futures::poll!(&mut read).is_ready() || !read.is_done()) });
        }
        let bytes = rt.block_on(device.read_at(0, SIZE)).expect("read");
        assert!(bytes == content, "{way}");
    }
}

#[test]
fn a_read_outlives_the_thread_that_started_it() {
    let (file, content) = random_file(6);
    let rt = Runtime::real(Some(2));
    for (way, device) in ways(&file, &rt) {
        for round in 0..20 {
            evict(&file);
            // Polled once, so that it is in progress when the thread ends.
            let start = |n: u64| {
                let mut read = device.read_at((round * 32 + n) * 4096, 65536);
                let is_done = read.is_done() || rt.block_on(async { futures::poll!(&mut read).is_ready() });
                (!is_done).then_some((n, read))
            };
            let reads: Vec<_> = std::thread::scope(|scope| {
                scope.spawn(|| (0..32).filter_map(start).collect()).join().expect("started")
            });
            for (n, read) in reads {
                let at = (round * 32 + n) as usize * 4096;
                assert!(rt.block_on(read).expect("read") == content[at..][..65536], "{way}: read at {at}");
            }
        }
    }
}

#[test]
fn a_runtime_may_end_with_reads_under_way() {
    let (file, _) = random_file(7);
    for _ in 0..30 {
        evict(&file);
        let rt = Runtime::real(Some(2));
        let devices = ways(&file, &rt);
        let mut reads: Vec<_> = devices
            .iter()
            .flat_map(|(_, device)| (0..40).map(|n| device.read_at(n * 65536, 65536)))
            .collect();
        rt.block_on(async {
            for read in &mut reads {
                let _ = futures::poll!(read);
            }
        });
        drop(reads);
        drop(devices);
    }
}

#[test]
fn reads_beyond_the_end_and_of_a_file_that_shrank_say_so() {
    let (file, _) = random_file(6);
    let rt = Runtime::real(Some(1));
    for (way, device) in ways(&file, &rt) {
        for (offset, len) in [(SIZE as u64, 1), (SIZE as u64 - 1, 2), (u64::MAX, 1), (1, usize::MAX)] {
            let error = rt.block_on(device.read_at(offset, len)).expect_err("beyond the end");
            assert!(matches!(error, DeviceError::OutOfRange { .. }), "{way}: {error}");
        }
    }
    let devices = ways(&file, &rt);
    file.as_file().set_len(10_000).expect("shrinks");
    for (way, device) in devices {
        let error = rt.block_on(device.read_at(8192, 5000)).expect_err("the file is shorter now");
        let DeviceError::Short { offset, len, done, .. } = error else { panic!("{way}: {error}") };
        assert_eq!((offset, len, done), (8192, 5000, 1808), "{way}");
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let rt = Runtime::real(Some(1));
    let folder = tempfile::tempdir().expect("a folder");
    let open =
        |path: &std::path::Path| rt.block_on(FileDevice::open(path, OpenOptions::READ_ONLY, &rt)).err();
    assert!(matches!(open(&folder.path().join("none")), Some(DeviceError::NotFound { .. })));
    assert!(matches!(open(folder.path()), Some(DeviceError::IsDirectory { .. })));
    assert!(matches!(
        open("/dev/null".as_ref()),
        Some(DeviceError::NotADevice { kind: "character device", .. })
    ));
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    assert!(matches!(open(&pipe), Some(DeviceError::NotADevice { kind: "pipe", .. })));
}

#[test]
fn read_only_is_read_only_at_the_descriptor() {
    let (file, content) = random_file(7);
    let rt = Runtime::real(Some(1));
    for (way, device) in ways(&file, &rt) {
        let flags = fcntl_getfl(device.file()).expect("flags");
        assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY, "{way}");
        let refused = [
            rt.block_on(device.write_at(0, Bytes::from_static(b"no"))),
            rt.block_on(device.discard(0, 4096)),
        ];
        for outcome in refused {
            assert!(matches!(outcome, Err(DeviceError::ReadOnly { .. })), "{way}: {outcome:?}");
        }
        // And the kernel's check, behind our own.
        assert!(std::os::unix::fs::FileExt::write_at(device.file(), b"no", 0).is_err(), "{way}");
    }
    assert!(std::fs::read(file.path()).expect("read") == content);
}

#[test]
fn written_bytes_are_read_back_on_every_way() {
    let rt = Runtime::real(Some(2));
    for io_path in [IoPath::Auto, IoPath::Uring, IoPath::Threads] {
        for direct in [Direct::Never, Direct::Always] {
            let (file, mut content) = random_file(8);
            let options = OpenOptions { access: Access::ReadWrite, direct, io_path, takes_over: false };
            let device = match rt.block_on(FileDevice::open(file.path(), options, &rt)) {
                Ok(device) => device,
                Err(error) => {
                    println!("skipped: {error}");
                    continue;
                }
            };
            let way = format!("{io_path:?}, direct {direct:?}");
            let data = Bytes::from(vec![0x5a; 100_001]).slice(1 + 1696..); // 98304 bytes, unaligned
            rt.block_on(device.write_at(8192, data.clone())).expect("written");
            content[8192..8192 + data.len()].copy_from_slice(&data);
            rt.block_on(device.flush()).expect("flushed");
            rt.block_on(device.discard(40960, 4096)).expect("discarded");
            content[40960..45056].fill(0);
            assert!(rt.block_on(device.read_at(0, SIZE)).expect("read") == content, "{way}");
            let odd = rt.block_on(device.write_at(3, Bytes::from_static(b"odd")));
            assert_eq!(
                matches!(odd, Err(DeviceError::Misaligned { .. })),
                direct == Direct::Always,
                "{way}: {odd:?}"
            );
        }
    }
}

#[test]
fn pieces_are_read_and_written_as_one_range_on_every_way() {
    let (file, content) = random_file(7);
    for rt in [Runtime::real(Some(2)), Runtime::simulated(SimConfig::seed(1))] {
        for (way, device) in ways(&file, &rt) {
            // Whole sectors, and odd lengths, which direct I/O cannot split.
            for (offset, lens) in [(8192, vec![4096, 512, 8192, 1024, 65536]), (777, vec![1, 4000, 3, 512])] {
                evict(&file);
                let pieces = rt.block_on(device.read_pieces(offset as u64, lens.clone())).unwrap();
                let mut at = offset;
                for (piece, len) in pieces.iter().zip(&lens) {
                    assert!(piece[..] == content[at..at + len], "{way}: {len} bytes at {at}");
                    at += len;
                }
                assert_eq!(pieces.len(), lens.len(), "{way}");
            }
            let beyond = rt.block_on(device.read_pieces(SIZE as u64 - 512, vec![512, 512]));
            assert!(beyond.is_err(), "{way}");
        }
        for io_path in [IoPath::Auto, IoPath::Uring, IoPath::Threads] {
            for direct in [Direct::Never, Direct::Always] {
                let target = NamedTempFile::new().unwrap();
                target.as_file().set_len(1 << 20).unwrap();
                let options = OpenOptions { direct, io_path, ..OpenOptions::EXCLUSIVE };
                let Ok(device) = rt.block_on(FileDevice::open(target.path(), options, &rt)) else { continue };
                let pieces: Vec<Bytes> = (1..=5_u8).map(|n| vec![n; 4096 * usize::from(n)].into()).collect();
                rt.block_on(device.write_pieces(4096, pieces.clone())).unwrap();
                let written = std::fs::read(target.path()).unwrap();
                assert!(written[4096..][..15 * 4096] == pieces.concat(), "{io_path:?}, direct {direct:?}");
                assert!(written[..4096].iter().chain(&written[16 * 4096..]).all(|byte| *byte == 0));
            }
        }
    }
}

#[test]
fn a_sparse_file_tells_its_holes() {
    let file = NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("its size");
    let rt = Runtime::real(Some(1));
    let device = rt.block_on(FileDevice::open(file.path(), OpenOptions::READ_WRITE, &rt)).expect("opened");
    let has_hole = |offset, len| rt.block_on(device.has_hole(offset, len)).unwrap();
    if !has_hole(0, 1 << 20) {
        return println!("skipped: the file system keeps no holes");
    }
    rt.block_on(device.write_through(64 << 10, Bytes::from(vec![7; 64 << 10]))).expect("written");
    assert!(!has_hole(64 << 10, 64 << 10));
    assert!(device.has_hole(72 << 10, 4096).is_done(), "known by now");
    assert!(has_hole(64 << 10, 128 << 10) && has_hole(512 << 10, 4096));
    rt.block_on(device.discard(64 << 10, 64 << 10)).expect("discarded");
    assert!(has_hole(72 << 10, 4096));
}

#[test]
fn writes_that_follow_one_another_come_together_and_each_is_answered() {
    const PIECE: usize = 16 << 10;
    let (file, mut content) = random_file(9);
    let rt = Runtime::real(Some(2));
    for io_path in [IoPath::Auto, IoPath::Uring, IoPath::Threads] {
        for direct in [Direct::Never, Direct::Always] {
            let options = OpenOptions { access: Access::ReadWrite, direct, io_path, takes_over: false };
            let Ok(device) = rt.block_on(FileDevice::open(file.path(), options, &rt)) else { continue };
            // Shuffled, with gaps, and longer than one run can be.
            let mut places: Vec<usize> = (0..180).filter(|index| index % 50 != 7).collect();
            let mut rng = Rng::new(10);
            for last in (1..places.len()).rev() {
                places.swap(last, rng.below(last as u64 + 1) as usize);
            }
            let mut writes = Vec::new();
            for place in places {
                let piece = &mut content[place * PIECE..][..PIECE];
                rng.fill(piece);
                writes.push(device.write_at((place * PIECE) as u64, Bytes::copy_from_slice(piece)));
            }
            let outcomes = rt.block_on(futures::future::join_all(writes));
            assert!(outcomes.iter().all(Result::is_ok), "{io_path:?}, direct {direct:?}: {outcomes:?}");
            assert!(std::fs::read(file.path()).unwrap() == content, "{io_path:?}, direct {direct:?}");
        }
    }
}

#[test]
fn a_write_that_was_dropped_is_made_before_newer_ones_to_its_place() {
    let rt = Runtime::real(Some(2));
    for io_path in [IoPath::Auto, IoPath::Uring, IoPath::Threads] {
        for direct in [Direct::Never, Direct::Always] {
            let (file, _) = random_file(11);
            let options = OpenOptions { access: Access::ReadWrite, direct, io_path, takes_over: false };
            let Ok(device) = rt.block_on(FileDevice::open(file.path(), options, &rt)) else { continue };
            let way = format!("{io_path:?}, direct {direct:?}");
            for round in 0..50_u64 {
                let at = 8192 + round * 16384;
                let write = |offset, byte| device.write_at(offset, Bytes::from(vec![byte; 8192]));
                rt.block_on(async {
                    // Begun without a waiter; meanwhile its place gets a new owner.
                    let mut old = write(at, b'o');
                    assert!(futures::poll!(&mut old).is_pending() || !old.is_done());
                    drop(old);
                    if round % 2 == 0 {
                        rt.yield_now().await;
                    }
                    write(at - 4096, b'n').await.expect("written");
                    device.flush().await.expect("flushed");
                });
                let found = std::fs::read(file.path()).expect("read");
                let found = &found[at as usize - 4096..][..12288];
                assert!(found[..8192] == [b'n'; 8192] && found[8192..] == [b'o'; 4096], "{way}: {round}");
            }
        }
    }
}

#[test]
fn writes_in_pieces_and_discards_keep_the_order_too() {
    let rt = Runtime::real(Some(2));
    for io_path in [IoPath::Auto, IoPath::Uring, IoPath::Threads] {
        let (file, _) = random_file(12);
        let options =
            OpenOptions { access: Access::ReadWrite, direct: Direct::Never, io_path, takes_over: false };
        let device = rt.block_on(FileDevice::open(file.path(), options, &rt)).expect("opens");
        for round in 0..50_u64 {
            rt.block_on(async {
                let mut rng = Rng::new(round);
                let mut olds = Vec::new();
                for _ in 0..10 {
                    let at = rng.below(16) * 4096;
                    let pieces = (0..4).map(|_| Bytes::from(vec![1; 4096])).collect();
                    match rng.below(3) {
                        0 => drop(device.write_pieces(at, pieces)),
                        1 => drop(device.discard(at, 32768)),
                        _ => {
                            let mut old = device.write_through(at, Bytes::from(vec![2; 8192]));
                            let _ = futures::poll!(&mut old);
                            olds.push(old);
                        }
                    }
                }
                drop(olds);
                device.write_at(0, Bytes::from(vec![9; 128 << 10])).await.expect("written");
                rt.sleep(std::time::Duration::from_millis(1)).await;
                let found = device.read_at(0, 128 << 10).await.expect("read");
                assert!(found.iter().all(|byte| *byte == 9), "{io_path:?}: {round}");
            });
        }
    }
}

#[test]
fn a_block_device_has_the_size_the_kernel_says() {
    let rt = Runtime::real(Some(1));
    let mut tried = 0;
    for entry in std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
        let path = std::path::Path::new("/dev").join(entry.file_name());
        let sectors = std::fs::read_to_string(entry.path().join("size")).unwrap_or_default();
        let Ok(sectors @ 16..) = sectors.trim().parse::<u64>() else { continue };
        let Ok(device) = rt.block_on(FileDevice::open(&path, OpenOptions::READ_ONLY, &rt)) else { continue };
        assert_eq!(device.size_bytes(), sectors * 512, "{}", path.display());
        assert!(device.info().rotational.is_some() && device.info().sector_bytes >= 512);
        // The first sector of a disk in use does not change: the cached and the direct read are equal.
        let cached = OpenOptions { direct: Direct::Never, ..OpenOptions::READ_ONLY };
        let cached = rt.block_on(FileDevice::open(&path, cached, &rt)).expect("opened a moment ago");
        let [cached, direct] =
            [&cached, &device].map(|device| rt.block_on(device.read_at(3, 500)).expect("read"));
        assert!(cached == direct, "{}", path.display());
        tried += 1;
    }
    if tried == 0 {
        println!("skipped: no block device that this user may read");
    }
}

#[test]
fn one_program_at_a_time_writes() {
    let (file, _) = random_file(9);
    let rt = Runtime::real(Some(1));
    let first =
        rt.block_on(FileDevice::open(file.path(), OpenOptions::EXCLUSIVE, &rt)).expect("nobody has it");
    let in_use = |error: DeviceError| {
        assert!(matches!(error, DeviceError::InUse { .. }));
        let us = format!("process {} (", std::process::id());
        assert!(error.to_string().contains(&us), "{error}");
        assert!(error.to_string().contains(&*file.path().to_string_lossy()), "{error}");
    };
    in_use(rt.block_on(FileDevice::open(file.path(), OpenOptions::EXCLUSIVE, &rt)).err().expect("locked"));
    let other = rt.block_on(FileDevice::open(file.path(), OpenOptions::READ_WRITE, &rt)).expect("opens");
    in_use(rt.block_on(other.lock()).unwrap_err());
    rt.block_on(FileDevice::open(file.path(), OpenOptions::READ_ONLY, &rt)).expect("looking is allowed");
    drop(first);
    rt.block_on(other.lock()).expect("free again");
}

#[test]
fn who_else_can_write_is_known_by_owner_and_mode() {
    use std::os::unix::fs::{PermissionsExt, chown};
    const NOBODY: u32 = 65534;
    let (file, _) = random_file(9);
    let rt = Runtime::real(Some(1));
    let others_may_write = || {
        let opened = rt.block_on(FileDevice::open(file.path(), OpenOptions::READ_ONLY, &rt));
        opened.unwrap().info().others_may_write
    };
    for (mode, expected) in [(0o600, false), (0o644, false), (0o620, true), (0o602, true)] {
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(others_may_write(), expected, "{mode:o}");
    }
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    // Only root can give a file away.
    if chown(file.path(), Some(NOBODY), None).is_ok() {
        assert!(others_may_write());
    }
}
