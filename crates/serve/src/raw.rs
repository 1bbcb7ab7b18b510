//! Raw devices of this machine, served by NBD to the pools of other machines.
//!
//! ```text
//!   --export NAME=PATH --> opened under a lock --> NBD beside the volumes, until the daemon ends
//! ```
//!
//! Idea: a volume's name has a '/', an exported device's has none. The lock keeps pools and programs of this
//! machine from the device. Among clients there is no lock: NBD has none, and a pool opens several
//! connections.
//!
//! A flush covers all connections, since they share one open device. Zeros are written: a hole that a block
//! device makes need not be read as zeros.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use cenote_device::{Device, DeviceError, OpenOptions};
use cenote_disk::{Disk, Errno, Failure};
use cenote_nbd::{Export, Extent, Listed};
use cenote_runtime::Runtime;
use futures::FutureExt;
use futures::future::BoxFuture;

const NAME_BYTES_MAX: usize = 255;
const ZEROS_BYTES: u64 = 1 << 20;

/// Exported devices by name.
#[derive(Clone, Default)]
pub struct RawExports(BTreeMap<String, Arc<RawDevice>>);

/// Why a device can't be exported.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum BadExport {
    #[error("'{typed}' is not NAME=PATH")]
    Form { typed: String },
    #[error(
        "'{name}' is no name of an export: up to 255 bytes without '/', '@', spaces or control characters"
    )]
    Name { name: String },
    #[error("'{name}' is given twice")]
    Twice { name: String },
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// An exported device.
pub struct RawDevice {
    device: Arc<dyn Device>,
    zeros: Bytes,
}

impl RawExports {
    /// Opens devices, each given as `NAME=PATH`, under locks.
    ///
    /// # Errors
    /// A malformed or repeated name; a device that can't be opened, or is in use.
    pub async fn open(typed: &[String], runtime: &Runtime) -> Result<RawExports, BadExport> {
        let mut exports = BTreeMap::new();
        for typed in typed {
            let (name, path) = parse(typed)?;
            if exports.contains_key(&name) {
                return Err(BadExport::Twice { name });
            }
            let device = cenote_device::open(&path, OpenOptions::EXCLUSIVE, runtime).await?;
            exports.insert(name, Arc::new(RawDevice::new(device)));
        }
        Ok(RawExports(exports))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names, and paths of the devices.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, raw)| (name.as_str(), raw.device.describe()))
    }

    pub(crate) fn list(&self) -> Vec<Listed> {
        let listed = |(name, _): (&String, &Arc<RawDevice>)| Listed {
            name: name.clone(),
            description: "raw device".into(),
        };
        self.0.iter().map(listed).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn Export>> {
        Some(self.0.get(name)?.clone())
    }
}

fn parse(typed: &str) -> Result<(String, PathBuf), BadExport> {
    let form = || BadExport::Form { typed: typed.into() };
    let (name, path) = typed.split_once('=').filter(|(_, path)| !path.is_empty()).ok_or_else(form)?;
    let is_fit = |c: char| !c.is_control() && !c.is_whitespace() && c != '/' && c != '@';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_fit) {
        return Err(BadExport::Name { name: name.into() });
    }
    Ok((name.into(), path.into()))
}

impl RawDevice {
    /// Serves an open device.
    pub fn new(device: Arc<dyn Device>) -> RawDevice {
        RawDevice { device, zeros: vec![0; ZEROS_BYTES as usize].into() }
    }
}

fn told<T>(done: Result<T, DeviceError>) -> Result<T, Failure> {
    done.map_err(|error| {
        let errno = match &error {
            DeviceError::Misaligned { .. } | DeviceError::OutOfRange { .. } => Errno::Invalid,
            DeviceError::ReadOnly { .. } => Errno::Perm,
            DeviceError::Unsupported { .. } => Errno::NotSupported,
            DeviceError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                Errno::NoSpace
            }
            _ => Errno::Io,
        };
        Failure::new(errno, error.to_string())
    })
}

impl Disk for RawDevice {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.device.info().sector_bytes
    }

    fn is_read_only(&self) -> bool {
        self.device.info().read_only
    }

    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Failure>> {
        async move { told(self.device.read_at(range.start, (range.end - range.start) as usize).await) }
            .boxed()
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        async move { told(self.device.write_at(offset, data).await) }.boxed()
    }

    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        async move {
            let mut at = range.start;
            while at < range.end {
                let len = ZEROS_BYTES.min(range.end - at);
                told(self.device.write_at(at, self.zeros.slice(..len as usize)).await)?;
                at += len;
            }
            Ok(())
        }
        .boxed()
    }

    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        async move {
            match self.device.discard(range.start, range.end - range.start).await {
                // A hint.
                Err(DeviceError::Unsupported { .. }) => Ok(()),
                done => told(done),
            }
        }
        .boxed()
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Failure>> {
        async move { told(self.device.flush().await) }.boxed()
    }

    fn prefetch(&self, _: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        futures::future::ready(Ok(())).boxed()
    }

    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Result<(bool, u64), Failure>> {
        futures::future::ready(Ok((true, range.end))).boxed()
    }
}

impl Export for RawDevice {
    fn description(&self) -> String {
        "raw device".into()
    }

    fn least_bytes(&self) -> u32 {
        self.device.align_bytes()
    }

    fn has_fast_zero(&self) -> bool {
        false
    }

    fn contexts<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Vec<String>> {
        futures::future::ready(Vec::new()).boxed()
    }

    fn extents<'a>(
        &'a self,
        _: &'a str,
        range: Range<u64>,
        _: usize,
    ) -> BoxFuture<'a, Result<Vec<Extent>, Failure>> {
        let all = Extent { len_bytes: range.end - range.start, flags: 0 };
        futures::future::ready(Ok(vec![all])).boxed()
    }
}

#[cfg(test)]
mod tests {
    use cenote_device::MemoryDevice;

    use super::*;

    #[test]
    fn exports_are_named_unlike_volumes() {
        assert_eq!(parse("x=/dev/sda=1").unwrap(), ("x".into(), "/dev/sda=1".into()));
        for wrong in ["", "x", "x=", "=/dev/sda", "tank/x=/dev/sda", "x@y=/dev/sda", "x y=/dev/sda", "x\n=/a"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_device_is_served_with_its_errors() {
        let device = Arc::new(MemoryDevice::new("disk", 4 << 20));
        let raw = RawDevice::new(device.clone());
        Runtime::simulate(Default::default(), |_| async move {
            raw.write(4096, vec![7; 3 << 20].into()).await.unwrap();
            raw.zero(8192..2 << 20).await.unwrap();
            assert_eq!(raw.read(8191..8193).await.unwrap()[..], [7, 0]);
            assert_eq!(raw.read((2 << 20) - 1..(2 << 20) + 1).await.unwrap()[..], [0, 7]);
            assert_eq!(device.durable_image()[4096], 0);
            raw.flush().await.unwrap();
            assert_eq!(device.durable_image()[4096], 7);
            assert_eq!(raw.read(0..5 << 20).await.unwrap_err().errno, Errno::Invalid);
        });
    }
}
