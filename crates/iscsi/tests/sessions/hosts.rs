//! Commands that hosts send to probe and use a disk, according to public documents. `proof/iscsi-md` tests
//! with Linux's own initiator.
//!
//! - Linux: `scsi_scan.c`, `sd.c`, `scsi_dh_alua.c`.
//! - ESXi: logs in spdk/spdk issues 405 and 1414, SCST-project/scst issue 41; the VAAI primitives.
//! - Windows: `DEVICE_LB_PROVISIONING_DESCRIPTOR` and its sources (VPD 00, b0, b2); persistent reservations
//!   of cluster validation (KB 2488012, askcore 2009-04-15).

use crate::client::{Client, Server, good, pattern, sense, session};
use cenote_iscsi::Accounts;

/// INQUIRY of a VPD page.
fn vpd(page: u8, len: u8) -> [u8; 6] {
    [0x12, 1, page, 0, len, 0]
}

impl Client {
    /// A read command that must succeed.
    async fn get(&mut self, cdb: &[u8], expects: u32) -> Vec<u8> {
        let told = self.ask(cdb, expects, b"", 0).await;
        assert_eq!((told.status, told.sense), (0, None), "{cdb:02x?}");
        told.data
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The NAA designator of VPD page 83.
fn naa(page: &[u8]) -> Vec<u8> {
    let mut rest = &page[4..];
    while !rest.is_empty() {
        let (head, tail) = rest.split_at(4);
        let (designator, tail) = tail.split_at(head[3].into());
        if head[0] & 15 == 1 && head[1] == 3 {
            return designator.to_vec();
        }
        rest = tail;
    }
    panic!("page 83 has no NAA designator");
}

#[test]
fn linux_finds_a_disk() {
    session(&Server::new(Accounts::default()), async |mut client| {
        client.enter(&[]).await;
        // scsi_probe_lun: 36 bytes, then the full length.
        let short = client.get(&[0x12, 0, 0, 0, 36, 0], 36).await;
        assert_eq!((short[0], short[2] >= 5, &short[8..14]), (0, true, &b"CENOTE"[..]));
        let long = client.get(&[0x12, 0, 0, 0, short[4] + 5, 0], u32::from(short[4]) + 5).await;
        assert_eq!(long.len(), usize::from(short[4]) + 5);
        assert_eq!(client.get(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0], 4096).await[..4], [0, 0, 0, 16]);
        // scsi_attach_vpd
        let pages = client.get(&vpd(0x00, 255), 255).await;
        for page in [0x80, 0x83, 0xb0, 0xb1, 0xb2] {
            assert!(pages[4..].contains(&page), "{page:02x}");
            let head = client.get(&vpd(page, 4), 4).await;
            let len = number(&head[2..4]) as u8 + 4;
            assert_eq!(client.get(&vpd(page, len), len.into()).await.len(), usize::from(len));
        }
        // sd_revalidate_disk
        assert_eq!(client.ask(&[0; 6], 0, b"", 0).await, good(b""), "TEST UNIT READY");
        let capacity = client.get(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32).await;
        assert_eq!((number(&capacity[..8]), number(&capacity[8..12])), (2047, 512));
        assert_eq!(capacity[14] & 0xc0, 0xc0, "provisioned as used, and zeros after UNMAP");
        let all = client.get(&[0x1a, 0, 0x3f, 0, 4, 0], 4).await;
        assert_eq!(all[2] & 0x80, 0, "not write-protected");
        let caching = client.get(&[0x1a, 8, 0x08, 0, 24, 0], 24).await;
        assert_eq!((caching[4] & 0x3f, caching[6] & 4), (8, 4), "it has a cache: SYNCHRONIZE CACHE is sent");
        assert_eq!(caching[2] & 0x10, 0x10, "FUA is understood");
        // REPORT SUPPORTED OPERATION CODES: WRITE SAME (16).
        let known = client.get(&[0xa3, 0x0c, 1, 0x93, 0, 0, 0, 0, 2, 0, 0, 0], 512).await;
        assert_eq!(known[1] & 7, 3);
        // alua_rtpg, with the extended header if supported.
        let groups = client.get(&[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 0, 128, 0, 0], 128).await;
        assert_eq!(groups[4] & 0x70, 0x10);
        assert_eq!(groups[8] & 15, 0, "active, optimized");
    })
    .unwrap();
}

#[test]
fn esxi_finds_a_disk_and_makes_a_datastore() {
    session(&Server::new(Accounts::default()), async |mut client| {
        client.enter(&[]).await;
        assert_eq!(client.ask(&[0; 6], 0, b"", 0).await, good(b""));
        for page in [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2] {
            client.get(&vpd(page, 255), 255).await;
        }
        let id = naa(&client.get(&vpd(0x83, 255), 255).await);
        assert_eq!((id.len(), id[0] >> 4), (8, 3));
        // Probes for administrative units of virtual volumes, and continues without.
        let told = client.ask(&[0xa0, 0, 0x11, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256, b"", 0).await;
        assert_eq!(told.sense, sense(5, 0x2400));
        let capacity = client.get(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).await;
        assert_eq!(number(&capacity[4..]), 512, "VMFS wants 512 bytes");
        client.get(&[0x1a, 0, 0x3f, 0, 255, 0], 255).await;
        client.get(&[0x1a, 0, 0x1c, 0, 255, 0], 255).await;
        // VMFS-3 and VMFS-5 reserve a disk to create a file system.
        assert_eq!(client.ask(&[0x16, 0, 0, 0, 0, 0], 0, b"", 0).await, good(b""));
        assert_eq!(client.write(0, &pattern(4096), 4096).await, good(b""));
        assert_eq!(client.ask(&[0x17, 0, 0, 0, 0, 0], 0, b"", 0).await, good(b""));
        // VAAI: ATS, zeroing, UNMAP.
        let lock = [pattern(512), vec![5; 512]].concat();
        let swap = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(client.ask(&swap, 0, &lock, 1024).await, good(b""));
        let same = [0x93, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 64, 0, 0];
        assert_eq!(client.ask(&same, 0, &[0; 512], 512).await, good(b""));
        let mut list = [0; 24];
        (list[1], list[3], list[15], list[19]) = (22, 16, 8, 64);
        assert_eq!(client.ask(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, &list, 24).await, good(b""));
        // VAAI full copy: limits first.
        let limits = client.get(&[0x84, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256).await;
        assert_eq!(number(&limits[..4]) as usize, limits.len() - 4);
        assert!(number(&limits[8..10]) >= 2 && number(&limits[16..20]) >= 4 << 20);
        assert!(limits[44..].contains(&0xe4) && limits[44..].contains(&0x02));
    })
    .unwrap();
}

/// Parameter list of an EXTENDED COPY (LID1).
fn copy_list(disks: &[&[u8]], segments: &[(u16, u16, u64, u64, u16)]) -> Vec<u8> {
    let mut list = vec![0; 16];
    for id in disks {
        let mut cscd = vec![0xe4, 0, 0, 0, 1, 3, 0, id.len() as u8];
        cscd.extend(*id);
        cscd.resize(28, 0);
        cscd.extend([0, 0, 2, 0]);
        list.extend(cscd);
    }
    for (from, to, at, to_at, count) in segments {
        list.extend([2, 0, 0, 24]);
        list.extend([from.to_be_bytes(), to.to_be_bytes(), [0; 2], count.to_be_bytes()].concat());
        list.extend([at.to_be_bytes(), to_at.to_be_bytes()].concat());
    }
    list[3] = 32 * disks.len() as u8;
    list[8..12].copy_from_slice(&(28 * segments.len() as u32).to_be_bytes());
    list
}

#[test]
fn esxi_clones_a_disk() {
    let server = Server::new(Accounts::default());
    session(&server, async |mut client| {
        client.enter(&[]).await;
        let source = naa(&client.get(&vpd(0x83, 255), 255).await);
        client.lun = 7;
        let target = naa(&client.get(&vpd(0x83, 255), 255).await);
        assert_ne!(source, target);
        client.lun = 0;
        let data = pattern(200 * 512);
        assert_eq!(client.write(20, &data, 512).await, good(b""));
        let copy = async |client: &mut Client, list: &[u8]| {
            let mut cdb = [0; 16];
            (cdb[0], cdb[13]) = (0x83, list.len() as u8);
            client.ask(&cdb, 0, list, list.len()).await
        };
        let disks = [&*source, &target];
        let told = copy(&mut client, &copy_list(&disks, &[(0, 1, 20, 3, 100), (0, 1, 120, 103, 100)])).await;
        assert_eq!(told, good(b""));
        assert_eq!(server.other.content.lock().unwrap()[3 * 512..][..data.len()], data);
        // Within a disk, overlapping.
        assert_eq!(copy(&mut client, &copy_list(&[&source], &[(0, 0, 20, 25, 200)])).await, good(b""));
        assert_eq!(client.read(25, 200).await, good(&data));
        let refused = [
            ("a disk that is not there", copy_list(&[&source, &[0x30; 8]], &[(0, 1, 0, 0, 1)]), (10, 0x0804)),
            ("an index that is not there", copy_list(&disks, &[(0, 2, 0, 0, 1)]), (10, 0x0804)),
            ("beyond the end", copy_list(&disks, &[(0, 1, 0, 2047, 2)]), (10, 0)),
            ("cut short", copy_list(&disks, &[(0, 1, 0, 0, 1)])[..50].to_vec(), (5, 0x1a00)),
        ];
        for (what, list, (key, code)) in refused {
            assert_eq!(copy(&mut client, &list).await.sense, sense(key, code), "{what}");
        }
    })
    .unwrap();
    // A host cannot copy from a disk to which it has no session.
}

#[test]
fn windows_finds_a_disk_and_its_cluster_validates_it() {
    session(&Server::new(Accounts::default()), async |mut client| {
        client.enter(&["HeaderDigest=None,CRC32C", "DataDigest=None,CRC32C"]).await;
        assert_eq!(client.get(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32).await.len(), 24);
        client.get(&[0x12, 0, 0, 0, 36, 0], 36).await;
        for page in [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2] {
            client.get(&vpd(page, 255), 255).await;
        }
        let limits = client.get(&vpd(0xb0, 64), 64).await;
        assert_eq!(limits.len(), 64);
        assert!(
            number(&limits[20..24]) > 0 && number(&limits[24..28]) > 0,
            "UNMAP of many blocks and ranges"
        );
        let provisioning = client.get(&vpd(0xb2, 64), 64).await;
        assert_eq!((provisioning[5] & 0x80, provisioning[6] & 7), (0x80, 2), "UNMAP, thin");
        client.get(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).await;
        client.get(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32).await;
        client.get(&[0x1a, 0, 0x3f, 0, 192, 0], 192).await;
        client.get(&[0x1a, 0, 0x08, 0, 192, 0], 192).await;
        client.get(&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256).await;
        // Cluster: read keys, REGISTER AND IGNORE, reserve (WERO), preempt, release, unregister.
        let keys = [0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(client.get(&keys, 256).await, [0; 8]);
        let out = async |client: &mut Client, action: u8, key: u8, new: u8| {
            let mut list = [0; 24];
            (list[7], list[15]) = (key, new);
            client.ask(&[0x5f, action, 5, 0, 0, 0, 0, 0, 24, 0], 0, &list, 24).await
        };
        assert_eq!(out(&mut client, 6, 0, 9).await, good(b""));
        assert_eq!(number(&client.get(&keys, 256).await[8..]), 9);
        assert_eq!(out(&mut client, 1, 9, 0).await, good(b""));
        let held = client.get(&[0x5e, 1, 0, 0, 0, 0, 0, 1, 0, 0], 256).await;
        assert_eq!((number(&held[8..16]), held[21]), (9, 5));
        assert_eq!(client.write(0, &pattern(512), 512).await, good(b""));
        assert_eq!(out(&mut client, 1, 8, 0).await.status, 0x18, "a wrong key");
        assert_eq!(out(&mut client, 2, 9, 0).await, good(b""));
        assert_eq!(out(&mut client, 0, 9, 0).await, good(b""));
        assert_eq!(client.get(&keys, 256).await.len(), 8);
    })
    .unwrap();
}
