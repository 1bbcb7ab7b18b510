//! Exclusive use of a device covers all its names: loop devices, links, mounts.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that can't go on must stop, and says what it skips"
)]

use cenote_device::{DeviceError, FileDevice, OpenOptions};
use cenote_runtime::Runtime;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device over a file, removed on drop.
struct Loop(PathBuf);

impl Loop {
    /// `None`: not permitted here.
    fn over(file: &Path) -> Option<Loop> {
        let output = Command::new("losetup").args(["-P", "-f", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8(output.stdout).ok()?;
        let made = Some(Loop(name.trim().into())).filter(|made| !made.0.as_os_str().is_empty());
        if made.is_none() {
            println!("skipped: no loop devices here");
        }
        made
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").arg("-d").arg(&self.0).status().ok();
    }
}

fn open(path: &Path, rt: &Runtime) -> Result<FileDevice, DeviceError> {
    rt.block_on(FileDevice::open(path, OpenOptions::EXCLUSIVE, rt))
}

#[track_caller]
fn is_in_use(outcome: Result<FileDevice, DeviceError>, by: &str) {
    let error = outcome.err().expect("somebody has it");
    assert!(matches!(error, DeviceError::InUse { .. }) && error.to_string().contains(by), "{error}");
}

fn image(folder: &Path) -> PathBuf {
    let path = folder.join("image");
    std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    path
}

#[test]
fn a_loop_device_and_its_file_are_one_device() {
    let (folder, rt) = (tempfile::tempdir().unwrap(), Runtime::real(Some(1)));
    let file = image(folder.path());
    let link = folder.path().join("link");
    std::fs::hard_link(&file, &link).unwrap();
    let Some(first) = Loop::over(&file) else { return };
    let Some(second) = Loop::over(&link) else { return };
    let us = &format!("process {}", std::process::id());
    for one in [&file, &link, &first.0, &second.0] {
        let device = open(one, &rt).expect("nobody has it");
        for other in [&file, &link, &first.0, &second.0] {
            let (same_file, by_file) = ([&file, &link].contains(&other), [&file, &link].contains(&one));
            let by = if same_file || !by_file { us } else { "" };
            is_in_use(open(other, &rt), if one == other { "" } else { by });
        }
        drop(device);
    }
    open(&file, &rt).expect("it is free again");
}

/// Two partitions of 2 MiB each, in an MBR.
fn partition(file: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    for (at, first_sector) in [(446, 2048_u32), (462, 8192)] {
        let mut entry = [0_u8; 16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&first_sector.to_le_bytes());
        entry[12..].copy_from_slice(&4096_u32.to_le_bytes());
        file.write_all_at(&entry, at).unwrap();
    }
    file.write_all_at(&[0x55, 0xaa], 510).unwrap();
}

#[test]
fn partitions_are_taken_one_by_one_and_not_with_the_disk_below() {
    let (folder, rt) = (tempfile::tempdir().unwrap(), Runtime::real(Some(1)));
    let file = image(folder.path());
    partition(&file);
    let Some(disk) = Loop::over(&file) else { return };
    let [first, second] = [1, 2].map(|number| PathBuf::from(format!("{}p{number}", disk.0.display())));
    if !first.exists() {
        return println!("skipped: nobody makes nodes for partitions here");
    }
    let one = open(&first, &rt).expect("nobody has it");
    let other = open(&second, &rt).expect("another partition is another device");
    for taken in [&first, &disk.0, &file] {
        is_in_use(open(taken, &rt), "");
    }
    drop((one, other));
    for whole in [&disk.0, &file] {
        let taken = open(whole, &rt).expect("its partitions are free again");
        is_in_use(open(&first, &rt), "");
        drop(taken);
    }
}

#[test]
fn a_file_that_is_mounted_through_a_loop_device_is_in_use() {
    let (folder, rt) = (tempfile::tempdir().unwrap(), Runtime::real(Some(1)));
    let (file, mount) = (image(folder.path()), folder.path().join("mnt"));
    std::fs::create_dir(&mount).unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&file).status();
    let Some(device) = made.ok().filter(|made| made.success()).and_then(|_| Loop::over(&file)) else {
        return;
    };
    if !Command::new("mount").args([&device.0, &mount]).status().is_ok_and(|done| done.success()) {
        return println!("skipped: not allowed to mount");
    }
    let by_file = open(&file, &rt);
    let by_device = open(&device.0, &rt);
    assert!(Command::new("umount").arg(&mount).status().unwrap().success());
    is_in_use(by_file, &mount.to_string_lossy());
    is_in_use(by_device, &mount.to_string_lossy());
    open(&file, &rt).expect("it is not mounted any more");
}
