//! INQUIRY: identity and capabilities of the disk.
//!
//! Designator: NAA 3 (locally assigned) with the disk's number. It is the same wherever the disk is served,
//! and under any name.

use bytes::{BufMut, Bytes};

use super::blocks::COMPARE_BLOCKS_MAX;
use super::cdb::Cdb;
use super::space::{UNMAP_DESCRIPTORS_MAX, WRITE_SAME_BLOCKS_MAX};
use super::{BLOCK_BYTES, Outcome, Request, Sense, TRANSFER_BYTES_MAX};
use crate::target::Identity;

const VENDOR: &[u8; 8] = b"CENOTE  ";
const PRODUCT: &[u8; 16] = b"VOLUME          ";
const REVISION: &[u8; 4] = b"0001";
/// Version descriptors: SAM-5, SPC-4, SBC-3, iSCSI.
const VERSIONS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];
/// Pages of vital product data.
const PAGES: &[u8] = &[0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2];
/// Peripheral: no logical unit with this number.
const NO_UNIT: u8 = 0x7f;

/// INQUIRY to a LUN without a unit.
pub(super) fn of_nothing(cdb: &Cdb) -> Outcome {
    if cdb.byte(1) & 1 != 0 || cdb.byte(2) != 0 {
        return Err(Sense::NO_SUCH_LUN.into());
    }
    Ok(cdb.cut(standard(NO_UNIT)))
}

fn standard(device: u8) -> Vec<u8> {
    let mut data = vec![device, 0, 6, 0x12, 0, 0x18, 0, 0x02];
    // Byte 5: TPGS, implicit; 3PC; byte 7: command queueing.
    data.extend(VENDOR);
    data.extend(PRODUCT);
    data.extend(REVISION);
    data.resize(58, 0);
    VERSIONS.iter().for_each(|&version| data.put_u16(version));
    data.resize(96, 0);
    data[4] = (data.len() - 5) as u8;
    data
}

impl Request<'_> {
    pub(super) fn inquiry(&self) -> Outcome<Bytes> {
        let page = self.cdb.byte(2);
        if self.cdb.byte(1) & 1 == 0 {
            return match page {
                0 => Ok(self.cdb.cut(standard(0))),
                _ => Err(Sense::INVALID_FIELD.into()),
            };
        }
        let content = match page {
            0x00 => PAGES.to_vec(),
            0x80 => self.lun().identity.serial.clone().into_bytes(),
            0x83 => designators(&self.lun().identity),
            0x86 => extended(),
            0xb0 => self.limits(),
            0xb1 => characteristics(),
            0xb2 => provisioning(),
            _ => return Err(Sense::INVALID_FIELD.into()),
        };
        let mut data = vec![0, page];
        data.put_u16(content.len() as u16);
        data.extend(content);
        Ok(self.cdb.cut(data))
    }

    /// Block limits.
    fn limits(&self) -> Vec<u8> {
        let block = (u64::from(self.unit().block_bytes()) / BLOCK_BYTES).max(1) as u32;
        let most = (TRANSFER_BYTES_MAX / BLOCK_BYTES) as u32;
        // WSNZ: length 0 does not mean "to the end".
        let mut data = vec![1, COMPARE_BLOCKS_MAX];
        data.put_u16(u16::try_from(block).unwrap_or(0));
        data.put_u32(most);
        data.put_u32(block.max(128));
        data.put_u32(most);
        data.put_u32(u32::MAX);
        data.put_u32(UNMAP_DESCRIPTORS_MAX);
        data.put_u32(block);
        // UGAVALID: unmap granularity is aligned to block 0.
        data.put_u32(1 << 31);
        data.put_u64(WRITE_SAME_BLOCKS_MAX);
        data.resize(0x3c, 0);
        data
    }
}

/// Device identification: NAA, T10 vendor identification; relative target port, target port group.
fn designators(identity: &Identity) -> Vec<u8> {
    let mut data = Vec::new();
    let mut put = |codes: u8, kind: u8, content: &[u8]| {
        data.extend([codes, kind, 0, content.len() as u8]);
        data.extend(content);
    };
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    put(BINARY, 3, &identity.naa().to_be_bytes());
    put(ASCII, 1, &[VENDOR, identity.serial.as_bytes()].concat());
    // Of the target port: PIV, association 1; protocol identifier 5 is iSCSI.
    put(5 << 4 | BINARY, 0x94, &[0, 0, 0, 1]);
    put(5 << 4 | BINARY, 0x95, &[0, 0, 0, 1]);
    data
}

/// Extended INQUIRY data.
fn extended() -> Vec<u8> {
    let mut data = vec![0; 60];
    // HEADSUP, ORDSUP, SIMPSUP; V_SUP: volatile cache.
    (data[1], data[2]) = (0x07, 0x01);
    data
}

/// Block device characteristics.
fn characteristics() -> Vec<u8> {
    let mut data = vec![0; 60];
    // Medium rotation rate: not reported.
    data[1] = 0;
    data
}

/// Logical block provisioning.
fn provisioning() -> Vec<u8> {
    // LBPU, LBPWS, LBPWS10, LBPRZ; thin.
    vec![0, 0x80 | 0x40 | 0x20 | 0x04, 2, 0]
}
