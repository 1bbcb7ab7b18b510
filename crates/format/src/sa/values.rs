//! Editable attributes of a file, between bonus and spill block.
//!
//! Idea: a layout is an order of attributes, so changed values stay in place and new ones are appended. Sizes
//! alone decide how many fit in the bonus ([`SaValues::bonus_count`]); the rest go to the spill block.
//!
//! Values are in native byte order.
//!
//! Source: OpenZFS `sa.c` (`sa_find_sizes`, `sa_build_layouts`, `sa_modify_attrs`).

use std::ops::Range;

use super::{SaReader, SaRegistry, ZplAttr};
use crate::blkptr::BLKPTR_BYTES;
use crate::bytes::Endian;
use crate::error::Result;
use crate::znode::{AclForm, decode_aces, encode_aces};

/// Header with the length of one variable attribute: `sizeof (sa_hdr_phys_t)`.
const HEADER_BYTES: usize = 8;

const _: () = assert!(HEADER_BYTES == super::LENGTHS_AT + 2, "the header holds one length");

/// Ordered attributes by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SaValues {
    entries: Vec<(u16, Range<usize>)>,
    /// Value bytes. A value replaced by one of another length leaves its old bytes unused.
    bytes: Vec<u8>,
}

impl SaValues {
    /// Empty, with capacity for a typical file.
    pub fn new() -> SaValues {
        SaValues { entries: Vec::with_capacity(20), bytes: Vec::with_capacity(320) }
    }

    /// Appends the attributes of a bonus or spill block.
    ///
    /// # Errors
    /// A malformed ACL in the other byte order.
    pub fn extend(&mut self, registry: &SaRegistry, reader: &SaReader<'_>) -> Result<()> {
        for (number, value) in reader.attributes() {
            if reader.endian() == Endian::NATIVE {
                self.set(number, value);
            } else {
                self.set(number, &swapped(registry, reader, number, value)?);
            }
        }
        Ok(())
    }

    /// Value of an attribute.
    pub fn get(&self, number: u16) -> Option<&[u8]> {
        self.entries.iter().find(|(n, _)| *n == number).map(|(_, at)| &self.bytes[at.clone()])
    }

    /// Sets an attribute in place, or appends it.
    pub fn set(&mut self, number: u16, value: &[u8]) {
        let entry = self.entries.iter_mut().find(|(n, _)| *n == number);
        if let Some((_, at)) = &entry
            && at.len() == value.len()
        {
            self.bytes[at.clone()].copy_from_slice(value);
            return;
        }
        let at = self.bytes.len()..self.bytes.len() + value.len();
        self.bytes.extend_from_slice(value);
        match entry {
            Some((_, old)) => *old = at,
            None => self.entries.push((number, at)),
        }
    }

    /// Sets an attribute in place, or inserts it after another.
    pub fn insert_after(&mut self, other: u16, number: u16, value: &[u8]) {
        let is_new = self.get(number).is_none();
        self.set(number, value);
        if is_new && let Some(at) = self.entries.iter().position(|(n, _)| *n == other) {
            self.entries[at + 1..].rotate_right(1);
        }
    }

    /// Attribute numbers in order.
    pub fn numbers(&self) -> Vec<u16> {
        self.entries.iter().map(|(number, _)| *number).collect()
    }

    /// Values of entries `range` in order.
    pub fn values(&self, range: Range<usize>) -> Vec<&[u8]> {
        self.entries[range].iter().map(|(_, at)| &self.bytes[at.clone()]).collect()
    }

    /// Attributes that fit in a bonus of `room_bytes`. The rest need a spill block, whose pointer takes room
    /// in the dnode too.
    pub fn bonus_count(&self, registry: &SaRegistry, room_bytes: usize) -> usize {
        let (mut total, mut variable, mut fit) = (0_usize, 0_usize, 0);
        for (index, (number, at)) in self.entries.iter().enumerate() {
            total = total.next_multiple_of(8) + at.len();
            variable += usize::from(registry.attribute(*number).is_some_and(|a| a.length_bytes == 0));
            let header = (HEADER_BYTES + 2 * variable.saturating_sub(1)).next_multiple_of(8);
            if total + header > room_bytes {
                return fit;
            }
            if total + header + BLKPTR_BYTES <= room_bytes {
                fit = index + 1;
            }
        }
        self.entries.len()
    }
}

fn swapped(registry: &SaRegistry, reader: &SaReader<'_>, number: u16, value: &[u8]) -> Result<Vec<u8>> {
    let word_bytes = match registry.attribute(number).map(|attribute| attribute.byteswap) {
        Some(0) => 8,
        Some(1) => 4,
        Some(2) => 2,
        Some(4) => {
            let count = reader.u64(ZplAttr::DaclCount).unwrap_or(0);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let aces = decode_aces(AclForm::Fuid, value, count, reader.endian())?;
            return Ok(encode_aces(&aces, Endian::NATIVE));
        }
        _ => 1,
    };
    Ok(value.chunks(word_bytes).flat_map(|word| word.iter().rev().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::registry;
    use super::*;
    use crate::sa::encode_sa;

    #[test]
    fn attributes_go_to_the_spill_block_where_openzfs_puts_them() {
        let registry = registry();
        let mut values = SaValues::new();
        for number in [5, 6, 4, 12, 13, 7, 11] {
            values.set(number, &[1; 8]);
        }
        for number in 0..4 {
            values.set(number, &[2; 16]);
        }
        values.set(8, &[3; 8]);
        values.set(16, &[3; 8]);
        values.set(19, &[4; 24]);
        assert_eq!(values.bonus_count(&registry, 320), 14, "168 of 320 bytes");
        values.set(17, &[5; 136]);
        assert_eq!(values.bonus_count(&registry, 320), 15, "header of 16, 160 and 136: 312");
        values.set(17, &[5; 145]);
        assert_eq!(values.bonus_count(&registry, 320), 14, "321: the link spills");
        values.set(19, &[4; 60]);
        values.set(17, &[5; 200]);
        assert_eq!(
            values.bonus_count(&registry, 320),
            13,
            "with the spill pointer the ACL has no room either"
        );
    }

    #[test]
    fn values_of_another_byte_order_are_swapped() {
        let registry = registry();
        let foreign = if Endian::NATIVE == Endian::Little { Endian::Big } else { Endian::Little };
        let mode = match foreign {
            Endian::Big => 0o100644_u64.to_be_bytes(),
            Endian::Little => 0o100644_u64.to_le_bytes(),
        };
        let packed = encode_sa(&registry, 4, &[b"xattrs", &mode, &[], &[0; 8], b"target"], foreign).unwrap();
        let mut values = SaValues::new();
        values.extend(&registry, &SaReader::new(&registry, &packed).unwrap()).unwrap();
        assert_eq!(values.get(5), Some(&0o100644_u64.to_ne_bytes()[..]));
        assert_eq!(values.get(17), Some(&b"target"[..]));
        assert_eq!(values.numbers(), [20, 5, 19, 6, 17]);
    }
}
