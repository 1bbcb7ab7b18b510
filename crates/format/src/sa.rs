//! System attributes (SA): a ZPL version 5 file's attributes, packed by a shared layout.
//!
//! Idea: a file stores only a layout number and the values. Two ZAPs of the file system describe the rest:
//! REGISTRY maps a name to number and length, LAYOUTS maps a layout's number to its ordered attributes.
//! `SaRegistry` holds both and precomputes ZPL attribute offsets for each layout: a scan reads attributes of
//! millions of files, so each read is one table lookup.
//!
//! Layout, of a bonus (type `SA`) or a spill block:
//!
//! ```text
//!   0 magic (4)  4 layout (bits 0..10), header size / 8 (bits 10..16)  6 variable lengths (2 each)
//!   then, each at a multiple of 8, the attributes in the layout's order
//! ```
//!
//! Invariants: a `SaReader` exists only if all values of its layout lie within its bytes.
//!
//! Source: OpenZFS `sa.c` (theory comment), `sa_impl.h`, `zfs_sa.c`.

mod registry;
#[cfg(test)]
mod tests;
mod usual;
mod values;
mod zpl_attr;

pub use registry::{SaAttribute, SaLayout, SaRegistry};
pub use values::SaValues;
pub use zpl_attr::ZplAttr;

use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result, at_most};

/// `SA_MAGIC`.
pub const SA_MAGIC: u32 = 0x2F_505A;
const WHAT: &str = "system attributes";
const LENGTHS_AT: usize = 6;
/// Bits of the layout number; the header size is above.
const LAYOUT_BITS: u32 = 10;
/// Largest header in words: 6 bits.
const MAX_HEADER_WORDS: u64 = 63;

const _: () = {
    assert!(LENGTHS_AT == 4 + 2, "magic number, layout and header size");
    assert!(registry::MAX_LAYOUT == (1 << LAYOUT_BITS) - 1);
    assert!(LAYOUT_BITS + MAX_HEADER_WORDS.ilog2() + 1 == u16::BITS);
};

/// Attributes in a bonus or spill block. Attributes missing from the bonus may be in the spill block.
#[derive(Debug, Clone, Copy)]
pub struct SaReader<'a> {
    layout: &'a SaLayout,
    endian: Endian,
    data: &'a [u8],
    /// Header bytes that the writer reserved beyond the layout's need.
    spare: usize,
}

impl<'a> SaReader<'a> {
    /// Opens a bonus or spill block in the byte order of its magic number.
    ///
    /// # Errors
    /// A wrong magic number, an unknown layout, values beyond `data`.
    pub fn new(registry: &'a SaRegistry, data: &'a [u8]) -> Result<Self> {
        let magic = Reader::new(WHAT, data, Endian::Little).array()?;
        let endian = [Endian::Little, Endian::Big]
            .into_iter()
            .find(|endian| endian.u32(magic) == SA_MAGIC)
            .ok_or(FormatError::BadMagic { what: WHAT, found: u32::from_le_bytes(magic).into() })?;
        let mut r = Reader::new(WHAT, data, endian);
        r.skip(4)?;
        let info = r.u16()?;
        let header_bytes = usize::from(info >> LAYOUT_BITS) * 8;
        let usual = || registry.usual()?.fitting(data, endian, header_bytes);
        let layout =
            registry.layout(info & ((1 << LAYOUT_BITS) - 1)).or_else(usual).ok_or(FormatError::Corrupt {
                what: WHAT,
                why: "have a layout that the dataset does not list",
            })?;
        SaReader::with_layout(layout, data, endian, header_bytes)
    }

    fn with_layout(
        layout: &'a SaLayout,
        data: &'a [u8],
        endian: Endian,
        header_bytes: usize,
    ) -> Result<Self> {
        let spare = header_bytes.checked_sub(layout.offset(0)).ok_or(FormatError::Corrupt {
            what: WHAT,
            why: "have a header shorter than their layout needs",
        })?;
        let reader = SaReader { layout, endian, data, spare };
        let need = reader.end()?;
        if need > data.len() {
            return Err(FormatError::Truncated { what: WHAT, need, have: data.len() });
        }
        Ok(reader)
    }

    fn len(&self) -> usize {
        self.data.len()
    }

    /// Byte order of the values.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Bytes of an attribute, if present.
    pub fn get(&self, attr: ZplAttr) -> Option<&'a [u8]> {
        if let Some((at, len)) = self.layout.fixed(attr) {
            return self.data.get(at + self.spare..)?.get(..len);
        }
        self.value_at(self.layout.slot_of(attr)?)
    }

    /// Attribute as a word.
    pub fn u64(&self, attr: ZplAttr) -> Option<u64> {
        let bytes = self.get(attr)?;
        bytes.first_chunk().map(|word| self.endian.u64(*word))
    }

    /// An attribute as a time: seconds since 1970 (may be negative), nanoseconds.
    pub fn time(&self, attr: ZplAttr) -> Option<(i64, u64)> {
        let [seconds, nanoseconds] = self.get(attr)?.as_chunks::<8>().0 else { return None };
        Some((self.endian.u64(*seconds).cast_signed(), self.endian.u64(*nanoseconds)))
    }

    /// Attributes by number, in layout order, including those unknown to the ZPL.
    pub fn attributes(&self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let this = *self;
        (0..this.layout.slots().len())
            .filter_map(move |i| Some((this.layout.slots()[i].number, this.value_at(i)?)))
    }

    fn value_at(&self, slot: usize) -> Option<&'a [u8]> {
        let (at, len) = self.place(slot).ok()?;
        self.data.get(at..at + len)
    }

    fn place(&self, slot: usize) -> Result<(usize, usize)> {
        let slots = self.layout.slots();
        // The layout knows the offsets up to the first variable slot.
        let from = slot.min(self.layout.first_variable());
        let mut at = self.layout.offset(from) + self.spare;
        for earlier in &slots[from..slot] {
            at = (at + self.length(earlier)?).next_multiple_of(8);
        }
        Ok((at, self.length(&slots[slot])?))
    }

    fn length(&self, slot: &registry::Slot) -> Result<usize> {
        let Some(index) = slot.variable_index else { return Ok(slot.length) };
        let mut r = Reader::new(WHAT, self.data, self.endian);
        r.skip(LENGTHS_AT + 2 * index)?;
        Ok(r.u16()?.into())
    }

    fn end(&self) -> Result<usize> {
        match self.layout.slots().len() {
            0 => Ok(LENGTHS_AT),
            count => self.place(count - 1).map(|(at, len)| at + len),
        }
    }
}

/// Encodes values in layout order.
///
/// # Errors
/// An unknown layout, a wrong number of values, or a value of wrong or excessive length.
pub fn encode_sa(
    registry: &SaRegistry,
    layout_number: u16,
    values: &[&[u8]],
    endian: Endian,
) -> Result<Vec<u8>> {
    let unknown = FormatError::OutOfRange {
        what: "SA layout",
        value: layout_number.into(),
        bound: registry::MAX_LAYOUT,
    };
    let layout = registry.layout(layout_number).ok_or(unknown)?;
    let slots = layout.slots();
    if slots.len() != values.len() {
        return Err(FormatError::Corrupt { what: WHAT, why: "are not as many as the layout has" });
    }
    let header_bytes = layout.offset(0);
    let header_words = at_most("SA header words", header_bytes as u64 / 8, MAX_HEADER_WORDS)? as u16;
    let mut w = Writer::new(endian);
    w.u32(SA_MAGIC).u16(layout_number | header_words << LAYOUT_BITS);
    for (slot, value) in slots.iter().zip(values) {
        if slot.variable_index.is_some() {
            w.u16(at_most("SA variable length", value.len() as u64, u16::MAX.into())? as u16);
        } else if value.len() != slot.length {
            return Err(FormatError::Corrupt {
                what: WHAT,
                why: "have a value of another length than registered",
            });
        }
    }
    w.pad_to(header_bytes);
    for value in values {
        w.pad_to(w.position().next_multiple_of(8)).bytes(value);
    }
    Ok(w.finish())
}
