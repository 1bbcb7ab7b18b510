//! The driver: control commands, and deletion of abandoned devices.
//!
//! A device outlives the process that serves it, and other programs have devices, too. Ours carry [`MARK`]
//! and the process ID in `ublksrv_flags`. A device is abandoned if that process is dead (or has this one's
//! ID, so is an earlier one) and no process serves it: only one at a time can open `/dev/ublkcN`. After a
//! kill, the kernel holds that file for a while: Linux 6.1 checks every five seconds whether the server is
//! alive.
//!
//! `DEL_DEV` blocks all control commands until the block device is closed, perhaps for hours. So it is called
//! only once the disk is gone, which is when `SET_PARAMS` succeeds.

use std::fs::{File, OpenOptions, read_dir};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::abi::{
    CMD_IOCTL_ENCODE, Control, INFO_BYTES, Info, NEED_GET_DATA, Numbers, Shape, Subject, UPDATE_SIZE,
};
use crate::ring::control;

const CONTROL: &str = "/dev/ublk-control";
const DEVICES: &str = "/sys/class/ublk-char";
/// Marks our devices: "ceno".
const MARK: u32 = 0x6f6e_6563;

/// Why block devices are unavailable.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum Missing {
    #[error(
        "the kernel has no ublk driver (/dev/ublk-control is not there): `modprobe ublk_drv`; Linux has it \
         since 6.0, if it was built with CONFIG_BLK_DEV_UBLK"
    )]
    Driver,
    #[error("only root (CAP_SYS_ADMIN) may make block devices: {0}")]
    Permission(io::Error),
    #[error("the ublk driver needs io_uring, which the kernel refuses (kernel.io_uring_disabled?): {0}")]
    Ring(io::Error),
    #[error("the ublk driver: {0}")]
    Io(#[from] io::Error),
}

/// The ublk driver.
#[derive(Debug)]
pub struct Driver {
    control: OwnedFd,
    numbers: Numbers,
    features: u64,
}

impl Driver {
    /// Opens the driver and queries its features.
    ///
    /// # Errors
    /// The driver is missing, or access is denied.
    pub fn open() -> Result<Driver, Missing> {
        Driver::at(Path::new(CONTROL))
    }

    fn at(path: &Path) -> Result<Driver, Missing> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(|error| match error.kind() {
            // The node may exist without the module.
            io::ErrorKind::NotFound => Missing::Driver,
            io::ErrorKind::PermissionDenied => Missing::Permission(error),
            _ if is(&error, Errno::NXIO) || is(&error, Errno::NODEV) => Missing::Driver,
            _ => error.into(),
        })?;
        let mut driver = Driver { control: file.into(), numbers: Numbers::Encoded, features: 0 };
        let mut features = [0; 8];
        let none = Subject { device: u32::MAX, data: 0 };
        match driver.call(Control::GetFeatures, none, &mut features) {
            Ok(_) => driver.features = u64::from_ne_bytes(features) | CMD_IOCTL_ENCODE,
            // Linux 6.0 to 6.4 lack GET_FEATURES and take it for a device command.
            Err(error) if is(&error, Errno::NODEV) || is(&error, Errno::OPNOTSUPP) => {
                driver.numbers = Numbers::Legacy;
            }
            Err(error) if is(&error, Errno::PERM) || is(&error, Errno::ACCESS) => {
                // Also if io_uring is denied altogether.
                return Err(Missing::Permission(error));
            }
            Err(error) if is(&error, Errno::NOSYS) => return Err(Missing::Ring(error)),
            Err(error) => return Err(error.into()),
        }
        Ok(driver)
    }

    /// Encoding of command numbers.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Creates a device not visible yet.
    pub fn add(&self, queues: u16, depth: u16) -> io::Result<Info> {
        let flags = NEED_GET_DATA | self.features & CMD_IOCTL_ENCODE;
        let wanted = Info { queues, depth, device: u32::MAX, flags, owner: owner() };
        let mut bytes = wanted.encode();
        self.call(Control::AddDev, Subject { device: u32::MAX, data: 0 }, &mut bytes)?;
        let info = Info::decode(&bytes);
        if info.flags & NEED_GET_DATA == 0 {
            self.delete(info.device)?;
            return Err(io::Error::other("the ublk driver has no UBLK_F_NEED_GET_DATA"));
        }
        Ok(info)
    }

    /// Sets parameters.
    pub fn set_params(&self, device: u32, shape: &Shape) -> io::Result<()> {
        self.call(Control::SetParams, Subject { device, data: 0 }, &mut shape.params()).map(drop)
    }

    /// Makes a device visible. All its queues must be fetching, and requests must be answered meanwhile.
    pub fn start(&self, device: u32) -> io::Result<()> {
        let data = std::process::id().into();
        self.call(Control::StartDev, Subject { device, data }, &mut []).map(drop)
    }

    /// Removes the block device, even while open. The kernel first writes dirty pages, so requests must be
    /// answered meanwhile.
    pub fn stop(&self, device: u32) -> io::Result<()> {
        self.call(Control::StopDev, Subject { device, data: 0 }, &mut []).map(drop)
    }

    /// Deletes a stopped device without a server. Returns false if its block device is still open.
    pub fn delete(&self, device: u32) -> io::Result<bool> {
        let any = Shape { size_bytes: 1 << 20, block_bytes: 4096, is_read_only: true };
        match self.set_params(device, &any) {
            Err(error) if is(&error, Errno::ACCESS) => return Ok(false),
            Err(error) if is(&error, Errno::NODEV) => return Ok(true),
            _ => {}
        }
        self.call(Control::DelDev, Subject { device, data: 0 }, &mut []).map(|_| true)
    }

    /// Changes the size of a device.
    ///
    /// # Errors
    /// Unsupported before Linux 6.16.
    pub fn resize(&self, device: u32, sectors: u64) -> io::Result<()> {
        if self.features & UPDATE_SIZE == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.call(Control::UpdateSize, Subject { device, data: sectors }, &mut []).map(drop)
    }

    /// Deletes devices of dead processes, except those that `is_kept`. Returns false if some are still open.
    pub fn sweep(&self, is_kept: impl Fn(u32) -> bool) -> bool {
        let listed = read_dir(DEVICES).into_iter().flatten().flatten();
        let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("ublkc")?.parse().ok();
        let dead = listed.filter_map(|entry| number(entry.file_name())).filter(|&device| {
            !is_kept(device) && self.info(device).is_ok_and(|info| is_of_the_dead(info.owner))
        });
        let stays = |&device: &u32| {
            let is_free = open_queues(device).is_ok();
            !(is_free && self.stop(device).and_then(|()| self.delete(device)).unwrap_or(false))
        };
        dead.collect::<Vec<_>>().into_iter().filter(stays).count() == 0
    }

    fn info(&self, device: u32) -> io::Result<Info> {
        let mut bytes = [0; INFO_BYTES];
        self.call(Control::GetDevInfo, Subject { device, data: 0 }, &mut bytes)?;
        Ok(Info::decode(&bytes))
    }

    fn call(&self, command: Control, subject: Subject, buffer: &mut [u8]) -> io::Result<u32> {
        control(&self.control, self.numbers.control(command), subject, buffer)
    }
}

/// Opens the server's end of a device.
pub fn open_queues(device: u32) -> io::Result<OwnedFd> {
    let path = PathBuf::from(format!("/dev/ublkc{device}"));
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    Ok(File::options().read(true).write(true).open(&path).map_err(named)?.into())
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// `ublksrv_flags` of this process's devices.
fn owner() -> u64 {
    u64::from(MARK) << 32 | u64::from(std::process::id())
}

/// Whether a dead Cenote process made the device.
fn is_of_the_dead(owner: u64) -> bool {
    let process = owner as u32;
    let is_gone = || process == std::process::id() || !Path::new(&format!("/proc/{process}")).exists();
    (owner >> 32) as u32 == MARK && is_gone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_driver_one_is_told_what_to_do() {
        let folder = std::env::temp_dir();
        let told = Driver::at(&folder.join("no-such-driver")).unwrap_err().to_string();
        assert!(told.contains("modprobe ublk_drv") && told.contains("6.0"), "{told}");
    }

    #[test]
    fn devices_of_others_are_nobody_s_business() {
        let by = |process: u32| u64::from(MARK) << 32 | u64::from(process);
        assert!(is_of_the_dead(by(0x7fff_ffff)) && is_of_the_dead(owner()), "an earlier one of that number");
        assert!(!is_of_the_dead(by(1)), "it lives");
        assert!(!is_of_the_dead(0x7fff_ffff) && !is_of_the_dead(0), "of other programs");
    }
}
