//! A disk: what it calls itself, how it is attached, how large its sectors are.
//!
//! Source: Linux sysfs-block, sysfs-class-bdi; the serial number of SCSI disks is page 0x80 of their vital product data.

use serde::{Deserialize, Serialize};

use super::Root;

/// Bytes of a sector in `/sys/block/*/size`, whatever the disk's own are.
const SECTOR_BYTES: u64 = 512;
/// Bytes of a vital product data page before its content.
const VPD_HEAD_BYTES: usize = 4;

/// How a disk is attached.
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
    /// Made of other devices: device mapper, MD.
    Mapped,
    /// A volume of a pool.
    Zvol,
    /// A network block device.
    Network,
    /// In memory: ram, zram.
    Memory,
    /// Not known.
    Unknown,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its name in `/dev`: `sda`, `nvme0n1`.
    pub name: String,
    /// What it calls itself.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Version of its firmware.
    pub firmware: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// How it is attached.
    pub transport: Transport,
    /// Whether it has platters.
    pub rotational: Option<bool>,
    /// The smallest unit that it takes.
    pub logical_sector_bytes: Option<u64>,
    /// The smallest unit that it writes without reading first, as it says.
    pub physical_sector_bytes: Option<u64>,
    /// The I/O scheduler: `none`, `mq-deadline`.
    pub scheduler: Option<String>,
    /// Whether it has a write cache that must be flushed (`write back`).
    pub write_back: Option<bool>,
    /// Whether it takes discards (TRIM).
    pub discards: Option<bool>,
}

impl Disk {
    /// What is known of a device; little if it is not there.
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
        Disk {
            name: name.to_owned(),
            model: match (vendor, model) {
                (Some(vendor), Some(model)) => Some(format!("{vendor} {model}")),
                (_, model) => model,
            },
            serial: word("device/serial").or_else(|| word("serial")).or_else(|| vpd_serial(root, &folder)),
            firmware: word("device/firmware_rev").or_else(|| word("device/rev")),
            size_bytes: number("size").unwrap_or(0).saturating_mul(SECTOR_BYTES),
            transport: transport(root, name, &folder),
            rotational: number("queue/rotational").map(|yes| yes == 1),
            logical_sector_bytes: number("queue/logical_block_size"),
            physical_sector_bytes: number("queue/physical_block_size"),
            scheduler,
            write_back: word("queue/write_cache").map(|mode| mode == "write back"),
            discards: number("queue/discard_max_bytes").map(|bytes| bytes > 0),
        }
    }
}

fn vpd_serial(root: &Root, folder: &str) -> Option<String> {
    let page = std::fs::read(root.path(format!("{folder}/device/vpd_pg80"))).ok()?;
    let serial = String::from_utf8_lossy(page.get(VPD_HEAD_BYTES..)?).trim_matches(['\0', ' ']).to_owned();
    (!serial.is_empty()).then_some(serial)
}

/// By the path of its device, which names the buses that lead to it; of virtual ones by name.
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
