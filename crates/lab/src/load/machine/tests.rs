#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

fn target(path: &Path, kind: TargetKind) -> Target {
    Target { name: "t".into(), path: path.to_owned(), kind }
}

/// A tree of pseudo files: paths that end in `/` are folders, others hold the text.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn link(root: &Path, from: &str, to: &str) {
    let from = root.join(from);
    fs::create_dir_all(from.parent().unwrap()).unwrap();
    symlink(to, from).unwrap();
}

#[test]
fn this_machine_is_described_down_to_the_disk_of_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let here = fs::canonicalize(dir.path()).unwrap();
    let machine = Machine::describe(&[target(&here, TargetKind::Folder)]);
    assert!(machine.kernel.starts_with("Linux ") && !machine.os.is_empty());
    assert!(machine.memory_bytes > 1 << 28 && machine.cpu.threads >= 1 && machine.cpu.cores >= 1);
    let mount = machine.places[0].mount.as_ref().unwrap();
    assert!(here.starts_with(&mount.point) && !mount.kind.is_empty());
    assert_eq!(machine.places[0].devices, machine.disks.iter().map(|d| d.name.clone()).collect::<Vec<_>>());
    let json = serde_json::to_string(&machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine, "it is saved with results");
}

#[test]
fn a_folder_on_a_pool_leads_to_its_dataset_and_disks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/zfs/healthy");
    let target = target(Path::new("/m/db/tables"), TargetKind::Folder);
    let machine = Machine::describe_at(&Root::at(&folder), Zpool::recorded(&folder), &[target]);
    let place = &machine.places[0];
    assert_eq!(place.dataset.as_deref(), Some("healthy/db"));
    assert!(place.mount.as_ref().unwrap().options.contains(&"noatime".to_owned()));
    assert_eq!(machine.pools.len(), 1);
    assert_eq!(machine.pools[0].name, "healthy");
    assert_eq!(machine.zfs.as_ref().unwrap().userland, "2.3.2-2~bpo12+2");
    assert_eq!(machine.memory_bytes, 2_012_048 << 10);
    assert_eq!(machine.missing, []);
}

#[test]
fn a_virtual_disk_rotates_only_if_its_host_says_so() {
    let virtio = "sys/devices/pci0000:00/0000:00:04.0/virtio1";
    let page = |rate: u16| {
        let mut page = vec![0u8, 0xb1, 0, 60];
        page.extend(rate.to_be_bytes());
        page
    };
    let dir = tree(&[]);
    let put = |disk: &str, path: &str, bytes: &[u8]| {
        let path = dir.path().join(virtio).join("block").join(disk).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    // The kernel's default; set by its driver or an administrator; reported by a SCSI host.
    for (disk, flag) in [("vda", "1"), ("vdb", "0"), ("sda", "1"), ("sdb", "1")] {
        put(disk, "queue/rotational", flag.as_bytes());
        link(dir.path(), &format!("sys/block/{disk}"), &format!("../../{virtio}/block/{disk}"));
    }
    put("sda", "device/vpd_pgb1", &page(7200));
    put("sdb", "device/vpd_pgb1", &page(1));
    let root = Root::at(fs::canonicalize(dir.path()).unwrap());
    let disks = ["vda", "vdb", "sda", "sdb"].map(|name| Disk::read(&root, name));
    assert!(disks.iter().all(|disk| disk.transport == Transport::Virtual), "{disks:#?}");
    assert_eq!(disks.each_ref().map(|disk| disk.rotational), [None, Some(false), Some(true), Some(false)]);
    assert_eq!(disks.each_ref().map(|disk| disk.rotation_rpm), [None, None, Some(7200), None]);
    let setting = crate::analysis::Setting::from_machine(&serde_json::json!({ "disks": disks }));
    let rotates = ["vda", "vdb", "sda", "sdb"].map(|name| setting.rotates(name));
    assert_eq!(rotates, [None, Some(false), Some(true), Some(false)]);
}

#[test]
fn an_array_of_partitions_leads_to_disks_of_different_kinds() {
    let pci = "sys/devices/pci0000:00";
    let file = |disk: &str, name: &str| format!("{pci}/{disk}/{name}");
    let sata = "ata1/host0/target0:0:0/0:0:0:0/block/sda";
    let nvme = "0000:01:00.0/nvme/nvme0/nvme0n1";
    let dir = tree(&[
        ("proc/self/mountinfo", "30 1 9:0 / /data rw,noatime - xfs /dev/md0 rw"),
        ("sys/devices/virtual/block/md0/size", "1000"),
        ("sys/devices/virtual/block/md0/slaves/sda1/x", ""),
        ("sys/devices/virtual/block/md0/slaves/nvme0n1/x", ""),
        (&file(sata, "sda1/partition"), "1"),
        (&file(sata, "size"), "2000"),
        (&file(sata, "queue/rotational"), "1"),
        (&file(sata, "queue/scheduler"), "none [mq-deadline] kyber"),
        (&file(sata, "device/vendor"), "ATA     "),
        (&file(sata, "device/model"), "ST12000VN0008-2Y"),
        (&file(sata, "device/vpd_pg80"), "\0\u{1}\0\u{8}    ZZ01"),
        (&file(nvme, "size"), "4000"),
        (&file(nvme, "queue/rotational"), "0"),
        (&file(nvme, "queue/physical_block_size"), "4096"),
        (&file(nvme, "device/model"), "SN770"),
        (&file(nvme, "device/serial"), "N1"),
    ]);
    for (name, to) in [
        ("md0", "virtual/block/md0"),
        ("sda", &*format!("pci0000:00/{sata}")),
        ("sda1", &*format!("pci0000:00/{sata}/sda1")),
        ("nvme0n1", &*format!("pci0000:00/{nvme}")),
    ] {
        link(dir.path(), &format!("sys/class/block/{name}"), &format!("../../devices/{to}"));
        if name != "sda1" {
            link(dir.path(), &format!("sys/block/{name}"), &format!("../devices/{to}"));
        }
    }
    link(dir.path(), "sys/dev/block/9:0", "../../devices/virtual/block/md0");
    let root = Root::at(fs::canonicalize(dir.path()).unwrap());
    let no_zfs = Zpool::recorded(dir.path());
    let machine = Machine::describe_at(&root, no_zfs, &[target(Path::new("/data/x"), TargetKind::Folder)]);
    assert_eq!(machine.places[0].devices, ["md0", "nvme0n1", "sda"]);
    let disk = |name: &str| machine.disks.iter().find(|disk| disk.name == name).unwrap();
    assert_eq!((disk("sda").transport, disk("sda").rotational), (Transport::Sata, Some(true)));
    assert_eq!(disk("sda").scheduler.as_deref(), Some("mq-deadline"));
    assert_eq!(
        (disk("sda").model.as_deref(), disk("sda").serial.as_deref()),
        (Some("ST12000VN0008-2Y"), Some("ZZ01"))
    );
    assert_eq!((disk("nvme0n1").transport, disk("nvme0n1").size_bytes), (Transport::Nvme, 4000 * 512));
    assert_eq!(disk("md0").transport, Transport::Mapped);
    assert!(machine.zfs.is_none() && machine.missing.iter().any(|missing| missing.source == "zpool"));
}

#[test]
fn a_loop_device_leads_to_its_file_and_the_disk_under_that() {
    let dir = tree(&[
        (
            "proc/self/mountinfo",
            "27 1 254:0 / / rw - ext4 /dev/vda rw\n40 27 7:0 / /mnt rw - btrfs /dev/loop0 rw",
        ),
        ("sys/devices/virtual/block/loop0/size", "1000"),
        ("sys/devices/virtual/block/loop0/loop/backing_file", "/images/disk.img\n"),
        ("sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/size", "1000"),
    ]);
    for (name, to) in [("loop0", "virtual/block/loop0"), ("vda", "pci0000:00/0000:00:02.0/virtio1/block/vda")]
    {
        link(dir.path(), &format!("sys/class/block/{name}"), &format!("../../devices/{to}"));
        link(dir.path(), &format!("sys/block/{name}"), &format!("../devices/{to}"));
    }
    link(dir.path(), "sys/dev/block/254:0", "../../devices/pci0000:00/0000:00:02.0/virtio1/block/vda");
    link(dir.path(), "sys/dev/block/7:0", "../../devices/virtual/block/loop0");
    let machine = Machine::describe_at(
        &Root::at(fs::canonicalize(dir.path()).unwrap()),
        Zpool::recorded(dir.path()),
        &[target(Path::new("/mnt/x"), TargetKind::Folder)],
    );
    assert_eq!(machine.places[0].devices, ["loop0", "vda"]);
    assert_eq!(
        machine.disks.iter().map(|disk| disk.transport).collect::<Vec<_>>(),
        [Transport::Loop, Transport::Virtual]
    );
}
