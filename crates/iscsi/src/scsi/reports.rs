//! Reports: capacity, logical units, target ports, commands.

use bytes::BufMut;

use super::cdb::{Cdb, KNOWN, Known};
use super::{BLOCK_BYTES, Outcome, Request, Sense};

/// REPORT LUNS.
pub(super) fn luns(cdb: &Cdb, numbers: &[u8]) -> Outcome {
    if cdb.list_bytes() < 16 {
        return Err(Sense::INVALID_FIELD.into());
    }
    let numbers = match cdb.byte(2) {
        0 | 2 => numbers,
        // Well-known units only; there are none.
        1 => &[],
        _ => return Err(Sense::INVALID_FIELD.into()),
    };
    let mut answer = Vec::with_capacity(8 + 8 * numbers.len());
    answer.put_u64((8 * numbers.len() as u64) << 32);
    // Peripheral addressing.
    numbers.iter().for_each(|&number| answer.put_u64(u64::from(number) << 48));
    Ok(cdb.cut(answer))
}

impl Request<'_> {
    pub(super) fn read_capacity_10(&self) -> Outcome {
        if self.cdb.byte(8) & 1 == 0 && self.cdb.number(2, 4) != 0 {
            return Err(Sense::INVALID_FIELD.into());
        }
        let last = self.blocks().saturating_sub(1);
        let mut answer = Vec::with_capacity(8);
        answer.put_u32(u32::try_from(last).unwrap_or(u32::MAX));
        answer.put_u32(BLOCK_BYTES as u32);
        Ok(answer.into())
    }

    pub(super) fn read_capacity_16(&self) -> Outcome {
        let physical = (u64::from(self.unit().block_bytes()) / BLOCK_BYTES).max(1).ilog2() as u8;
        let mut answer = Vec::with_capacity(32);
        answer.put_u64(self.blocks().saturating_sub(1));
        answer.put_u32(BLOCK_BYTES as u32);
        // No protection; logical blocks per physical block; LBPME, LBPRZ.
        answer.extend([0, physical.min(15), 0xc0, 0]);
        answer.resize(32, 0);
        Ok(self.cdb.cut(answer))
    }

    /// One group of one port: all paths are equal.
    pub(super) fn target_port_groups(&self) -> Outcome {
        let mut group = vec![0x80, 0x8f, 0, 1, 0, 2, 0, 1];
        // PREF and active/optimized; supported states; group 1; status: implicit; one port, number 1.
        group.extend([0, 0, 0, 1]);
        let mut answer = Vec::with_capacity(8 + group.len());
        // PARAMETER DATA FORMAT 1: an extended header.
        let is_extended = self.cdb.byte(1) >> 5 == 1;
        answer.put_u32(group.len() as u32 + if is_extended { 4 } else { 0 });
        if is_extended {
            answer.extend([0x10, 0, 0, 0]);
        }
        answer.extend(group);
        Ok(self.cdb.cut(answer))
    }

    pub(super) fn supported_opcodes(&self) -> Outcome {
        let has_timeouts = self.cdb.byte(2) & 0x80 != 0;
        let (opcode, action) = (self.cdb.byte(3), self.cdb.number(4, 2));
        let same = || KNOWN.iter().filter(|known| known.opcode == opcode);
        let has_actions = same().any(|known| known.action.is_some());
        let of_action = || same().find(|known| known.action.map(u64::from).unwrap_or(0) == action);
        match self.cdb.byte(2) & 7 {
            0 => Ok(self.cdb.cut(all_opcodes(has_timeouts))),
            1 if has_actions => Err(Sense::INVALID_FIELD.into()),
            1 => Ok(self.cdb.cut(one_opcode(same().next(), has_timeouts))),
            2 if !has_actions && same().next().is_some() => Err(Sense::INVALID_FIELD.into()),
            2 | 3 => Ok(self.cdb.cut(one_opcode(of_action(), has_timeouts))),
            _ => Err(Sense::INVALID_FIELD.into()),
        }
    }
}

/// Timeouts descriptor without values.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn all_opcodes(has_timeouts: bool) -> Vec<u8> {
    let mut answer = vec![0; 4];
    for known in KNOWN {
        answer.extend([known.opcode, 0, 0, known.action.unwrap_or(0), 0]);
        answer.push(u8::from(known.action.is_some()) | u8::from(has_timeouts) << 1);
        answer.put_u16(1 + known.usage.len() as u16);
        if has_timeouts {
            answer.extend(TIMEOUTS);
        }
    }
    let len = answer.len() as u32 - 4;
    answer[..4].copy_from_slice(&len.to_be_bytes());
    answer
}

fn one_opcode(known: Option<&Known>, has_timeouts: bool) -> Vec<u8> {
    let Some(known) = known else {
        // SUPPORT 1: not supported.
        return vec![0, 1, 0, 0];
    };
    let mut answer = vec![0, 3 | u8::from(has_timeouts) << 7];
    answer.put_u16(1 + known.usage.len() as u16);
    answer.push(known.opcode);
    answer.extend(known.usage);
    if let Some(action) = known.action {
        answer[5] = answer[5] & 0xe0 | action;
    }
    if has_timeouts {
        answer.extend(TIMEOUTS);
    }
    answer
}
