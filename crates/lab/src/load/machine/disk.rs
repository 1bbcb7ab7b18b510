//! A disk: its identity, connection and sector sizes.
//!
//! Source: Linux sysfs-block, sysfs-class-bdi; the serial number of SCSI disks is page 0x80 of their vital
//! product data, the rotation rate is in page 0xB1 (SBC-4).

use serde::{Deserialize, Serialize};

use super::Root;

/// Unit of `/sys/block/*/size`, independent of the disk's sector size.
const SECTOR_BYTES: u64 = 512;
/// Bytes before the content of a vital product data page.
const VPD_HEAD_BYTES: usize = 4;
/// Rotation rate of a non-rotating medium.
const SOLID_STATE: u64 = 1;

/// Connection of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// NVMe.
    Nvme,
    /// SATA or PATA.
    Sata,
    /// SAS.
    Sas,
    /// USB.
    Usb,
    /// iSCSI.
    Iscsi,
    /// Fibre Channel.
    FibreChannel,
    /// A virtual machine's disk: virtio, Xen, Hyper-V, VMware.
    Virtual,
    /// SD card or eMMC.
    Mmc,
    /// A loop device on a file.
    Loop,
    /// Built from other devices: device mapper, MD.
    Mapped,
    /// A volume of a pool.
    Zvol,
    /// A network block device.
    Network,
    /// In memory: ram, zram.
    Memory,
    /// Not recognised.
    Unknown,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Name in `/dev`: `sda`, `nvme0n1`.
    pub name: String,
    /// Model name.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Firmware version.
    pub firmware: Option<String>,
    /// Capacity.
    pub size_bytes: u64,
    /// Connection.
    pub transport: Transport,
    /// Whether it has platters; None if only the kernel's default says so.
    pub rotational: Option<bool>,
    /// Rotations per minute, as reported by a SCSI disk (or by a virtual machine's host, for its disk).
    #[serde(default)]
    pub rotation_rpm: Option<u64>,
    /// Smallest unit that it accepts.
    pub logical_sector_bytes: Option<u64>,
    /// Smallest unit that it can write without reading first, as reported.
    pub physical_sector_bytes: Option<u64>,
    /// I/O scheduler: `none`, `mq-deadline`.
    pub scheduler: Option<String>,
    /// Has a write cache that must be flushed (`write back`).
    pub write_back: Option<bool>,
    /// Accepts discards (TRIM).
    pub discards: Option<bool>,
}

impl Disk {
    /// Known facts about a device; few if absent.
    pub fn read(root: &Root, name: &str) -> Disk {
        let folder = format!("sys/block/{name}");
        let word = |path: &str| root.word(format!("{folder}/{path}"));
        let number = |path: &str| root.number(format!("{folder}/{path}"));
        let scheduler = word("queue/scheduler").map(|all| {
            let chosen = all.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            chosen.map_or(all.clone(), |(chosen, _)| chosen.to_owned())
        });
        let model = word("device/model").or_else(|| word("loop/backing_file"));
        let vendor = word("device/vendor").filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
        let transport = transport(root, name, &folder);
        let rate = rotation_rate(root, &folder);
        Disk {
            name: name.to_owned(),
            model: match (vendor, model) {
                (Some(vendor), Some(model)) => Some(format!("{vendor} {model}")),
                (_, model) => model,
            },
            serial: word("device/serial").or_else(|| word("serial")).or_else(|| vpd_serial(root, &folder)),
            firmware: word("device/firmware_rev").or_else(|| word("device/rev")),
            size_bytes: number("size").unwrap_or(0).saturating_mul(SECTOR_BYTES),
            transport,
            rotational: rotational(transport, rate, number("queue/rotational")),
            rotation_rpm: rate.filter(|rate| *rate > SOLID_STATE),
            logical_sector_bytes: number("queue/logical_block_size"),
            physical_sector_bytes: number("queue/physical_block_size"),
            scheduler,
            write_back: word("queue/write_cache").map(|mode| mode == "write back"),
            discards: number("queue/discard_max_bytes").map(|bytes| bytes > 0),
        }
    }
}

/// Medium rotation rate from page 0xB1: rotations per minute, or [`SOLID_STATE`]; None if not reported.
fn rotation_rate(root: &Root, folder: &str) -> Option<u64> {
    let page = std::fs::read(root.path(format!("{folder}/device/vpd_pgb1"))).ok()?;
    let rate = u64::from(u16::from_be_bytes([*page.get(VPD_HEAD_BYTES)?, *page.get(VPD_HEAD_BYTES + 1)?]));
    (rate != 0).then_some(rate)
}

/// Whether a disk rotates: by its own report, or else by the kernel's flag. The flag is set unless a driver
/// knows better, so it proves nothing for virtual, remote and mapped disks.
fn rotational(transport: Transport, rate: Option<u64>, flag: Option<u64>) -> Option<bool> {
    use Transport::{Nvme, Sas, Sata, Usb};
    match (rate, flag) {
        (Some(rate), _) => Some(rate > SOLID_STATE),
        (None, Some(1)) if !matches!(transport, Nvme | Sata | Sas | Usb) => None,
        (None, flag) => flag.map(|flag| flag == 1),
    }
}

fn vpd_serial(root: &Root, folder: &str) -> Option<String> {
    let page = std::fs::read(root.path(format!("{folder}/device/vpd_pg80"))).ok()?;
    let serial = String::from_utf8_lossy(page.get(VPD_HEAD_BYTES..)?).trim_matches(['\0', ' ']).to_owned();
    (!serial.is_empty()).then_some(serial)
}

/// From the path of its device, which names the buses on the way; virtual disks by name.
fn transport(root: &Root, name: &str, folder: &str) -> Transport {
    let path = root.resolve(folder).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    const BUSES: [(&str, Transport); 12] = [
        ("/usb", Transport::Usb),
        ("/nvme", Transport::Nvme),
        ("/virtio", Transport::Virtual),
        ("/vbd-", Transport::Virtual),
        ("/vmbus", Transport::Virtual),
        ("VMBUS", Transport::Virtual),
        ("/session", Transport::Iscsi),
        ("/rport-", Transport::FibreChannel),
        ("/end_device-", Transport::Sas),
        ("/ata", Transport::Sata),
        ("/mmc_host", Transport::Mmc),
        ("/vmw", Transport::Virtual),
    ];
    const NAMES: [(&str, Transport); 9] = [
        ("loop", Transport::Loop),
        ("dm-", Transport::Mapped),
        ("md", Transport::Mapped),
        ("zd", Transport::Zvol),
        ("nbd", Transport::Network),
        ("rbd", Transport::Network),
        ("zram", Transport::Memory),
        ("ram", Transport::Memory),
        ("nvme", Transport::Nvme),
    ];
    let bus = BUSES.iter().find(|bus| path.contains(bus.0));
    bus.or_else(|| NAMES.iter().find(|known| name.starts_with(known.0)))
        .map_or(Transport::Unknown, |known| known.1)
}
