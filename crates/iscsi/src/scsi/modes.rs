//! Mode pages.
//!
//! ```text
//!   header (4 or 8 bytes) | block descriptor (8, unless DBD) | page: code, length, content | page ...
//! ```

use bytes::{Buf, BufMut, Bytes};

use super::cdb::op;
use super::{BLOCK_BYTES, Outcome, Request, Sense};
use crate::lun::{Modes, attention};

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const INFORMATIONAL: u8 = 0x1c;
const ALL: u8 = 0x3f;
/// Control page, third byte.
const D_SENSE: u8 = 0x04;
/// Control page, fifth byte.
const SWP: u8 = 0x08;
/// Control page, sixth byte: commands aborted by another initiator end with TASK ABORTED.
const TAS: u8 = 0x40;

/// Requested values of a page (PC).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Current,
    Changeable,
    Default,
}

fn page(code: u8, values: Values, modes: Modes) -> Vec<u8> {
    let modes = match values {
        Values::Current => modes,
        Values::Changeable => Modes { is_write_protected: true, has_descriptor_sense: true },
        Values::Default => Modes::default(),
    };
    let fixed = |byte: u8| if values == Values::Changeable { 0 } else { byte };
    let mut page = match code {
        // Read-write error recovery: AWRE, ARRE.
        0x01 => vec![code, 10, fixed(0xc0)],
        // WCE: data is durable after SYNCHRONIZE CACHE, or with FUA.
        CACHING => vec![code, 18, fixed(0x04)],
        CONTROL => {
            let d_sense = if modes.has_descriptor_sense { D_SENSE } else { 0 };
            let swp = if modes.is_write_protected { SWP } else { 0 };
            // QUEUE ALGORITHM MODIFIER 1: SIMPLE commands may be reordered.
            vec![code, 10, d_sense, fixed(0x10), swp, fixed(TAS)]
        }
        _ => vec![code, 10],
    };
    page.resize(2 + usize::from(page[1]), 0);
    page
}

impl Request<'_> {
    pub(super) fn mode_sense(&self) -> Outcome {
        let (cdb, is_short) = (&self.cdb, self.cdb.opcode() == op::MODE_SENSE_6);
        let values = match cdb.byte(2) >> 6 {
            0 => Values::Current,
            1 => Values::Changeable,
            2 => Values::Default,
            // Saving parameters is not supported.
            _ => return Err(Sense::new(5, 0x3900).into()),
        };
        let (code, subpage) = (cdb.byte(2) & 0x3f, cdb.byte(3));
        let codes: &[u8] = match (code, subpage) {
            (ALL, 0 | 0xff) => &[0x01, CACHING, CONTROL, INFORMATIONAL],
            (0x01, 0) => &[0x01],
            (CACHING, 0) => &[CACHING],
            (CONTROL, 0) => &[CONTROL],
            (INFORMATIONAL, 0) => &[INFORMATIONAL],
            _ => return Err(Sense::INVALID_FIELD.into()),
        };
        let modes = *self.lun().modes.lock();
        let pages: Vec<u8> = codes.iter().flat_map(|&code| page(code, values, modes)).collect();
        // DBD: no block descriptor.
        let descriptor = if cdb.byte(1) & 8 != 0 { Vec::new() } else { self.descriptor() };
        // WP, and DPOFUA.
        let device = u8::from(self.is_protected()) << 7 | 0x10;
        let rest = descriptor.len() + pages.len();
        let mut answer = Vec::with_capacity(8 + rest);
        if is_short {
            answer.extend([(3 + rest) as u8, 0, device, descriptor.len() as u8]);
        } else {
            answer.put_u16((6 + rest) as u16);
            answer.extend([0, device, 0, 0]);
            answer.put_u16(descriptor.len() as u16);
        }
        answer.extend(descriptor);
        answer.extend(pages);
        Ok(cdb.cut(answer))
    }

    fn descriptor(&self) -> Vec<u8> {
        let mut descriptor = Vec::with_capacity(8);
        descriptor.put_u32(u32::try_from(self.blocks()).unwrap_or(u32::MAX));
        descriptor.put_u32(BLOCK_BYTES as u32);
        descriptor
    }

    pub(super) fn mode_select(&self) -> Outcome {
        const PAGE_FORMAT: u8 = 0x10;
        const SAVE: u8 = 0x01;
        let flags = self.cdb.byte(1);
        if flags & SAVE != 0 || flags & PAGE_FORMAT == 0 {
            return Err(Sense::INVALID_FIELD.into());
        }
        let mut list = &self.data[..];
        if list.is_empty() {
            return Ok(Bytes::new());
        }
        let header = if self.cdb.opcode() == op::MODE_SELECT_6 { 4 } else { 8 };
        let descriptor = match (list.len() < header, header) {
            (true, _) => return Err(Sense::LIST_LENGTH.into()),
            (_, 4) => usize::from(list[3]),
            _ => usize::from(u16::from_be_bytes([list[6], list[7]])),
        };
        if list.len() < header + descriptor {
            return Err(Sense::LIST_LENGTH.into());
        }
        list.advance(header + descriptor);
        let before = *self.lun().modes.lock();
        let mut modes = before;
        while !list.is_empty() {
            let len = list.get(1).map_or(usize::MAX, |&len| usize::from(len) + 2);
            if list.len() < len {
                return Err(Sense::LIST_LENGTH.into());
            }
            let (wanted, rest) = list.split_at(len);
            let code = wanted[0] & 0x3f;
            if !matches!(code, 0x01 | CACHING | CONTROL | INFORMATIONAL) {
                return Err(Sense::INVALID_PARAMETER.into());
            }
            // Only changeable bits may differ.
            let (is, mask) = (page(code, Values::Current, modes), page(code, Values::Changeable, modes));
            let differs = |at: usize| (wanted[at] ^ is[at]) & !mask[at] != 0;
            if wanted.len() != is.len() || (2..is.len()).any(differs) {
                return Err(Sense::INVALID_PARAMETER.into());
            }
            if code == CONTROL {
                modes.has_descriptor_sense = wanted[2] & D_SENSE != 0;
                modes.is_write_protected = wanted[4] & SWP != 0;
            }
            list = rest;
        }
        *self.lun().modes.lock() = modes;
        if modes != before {
            let changed = attention::MODE_PARAMETERS_CHANGED;
            self.lun().attend(changed, |initiator| initiator != self.guest.initiator());
        }
        Ok(Bytes::new())
    }
}
