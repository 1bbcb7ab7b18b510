//! A file system's attributes and layouts, from its two ZAPs.

use std::collections::BTreeMap;

use super::usual::Usual;
use super::zpl_attr::ZplAttr;
use super::{LENGTHS_AT, WHAT};
use crate::error::{FormatError, Result, at_most};

/// Largest layout number: the header has 10 bits for it.
pub(super) const MAX_LAYOUT: u64 = 1023;
/// Bound on attributes per layout; real ones have about 20.
const MAX_SLOTS: u64 = 1024;

/// Registered attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaAttribute {
    /// Attribute name.
    pub name: String,
    /// Value size; 0 if variable.
    pub length_bytes: u16,
    /// Byte-swap kind, `sa_bswap_type_t`: 64, 32, 16 bits, bytes, ACL.
    pub byteswap: u8,
}

#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub number: u16,
    /// Bytes, unless variable.
    pub length: usize,
    /// Index among variable attributes.
    pub variable_index: Option<usize>,
}

/// Ordered attributes of a bonus or spill block.
#[derive(Debug, Clone)]
pub struct SaLayout {
    slots: Vec<Slot>,
    /// Slot offsets up to the first variable slot, inclusive.
    offsets: Vec<usize>,
    /// Offset and length of ZPL attributes before the first variable one; length 0 for all others.
    fixed: [(u16, u16); ZplAttr::COUNT],
    zpl_slots: [Option<u16>; ZplAttr::COUNT],
}

/// All attributes and layouts of a file system.
#[derive(Debug, Clone, Default)]
pub struct SaRegistry {
    attributes: BTreeMap<u16, SaAttribute>,
    layouts: BTreeMap<u16, SaLayout>,
    /// Fallback for missing layouts.
    usual: Option<Box<Usual>>,
}

impl SaRegistry {
    /// Salvages damaged tables, so files stay readable. Unlisted attributes get OpenZFS's usual numbers; a
    /// missing layout is inferred from the shape of its data.
    pub fn salvage<'a>(
        registrations: impl IntoIterator<Item = (&'a [u8], u64)>,
        layouts: impl IntoIterator<Item = (&'a [u8], &'a [u64])>,
    ) -> Result<Self> {
        let none: [(&[u8], &[u64]); 0] = [];
        let mut registry = SaRegistry::decode(registrations, none)?;
        ZplAttr::all().for_each(|attr| registry.register(attr));
        registry.usual = Some(Box::new(Usual::of(&registry)?));
        for (name, attributes) in layouts {
            if let Some(number) = std::str::from_utf8(name).ok().and_then(|text| text.parse().ok()) {
                // Layouts with unknown attributes are inferred from the data, or skipped.
                let _ = registry.add_layout(number, attributes);
            }
        }
        Ok(registry)
    }

    /// Entries of the REGISTRY ZAP.
    pub fn registrations(&self) -> Vec<(Vec<u8>, u64)> {
        let word = |number: u16, a: &SaAttribute| {
            u64::from(number) | u64::from(a.byteswap) << 16 | u64::from(a.length_bytes) << 24
        };
        self.attributes.iter().map(|(&number, a)| (a.name.clone().into_bytes(), word(number, a))).collect()
    }

    /// Entries of the LAYOUTS ZAP.
    pub fn layouts(&self) -> Vec<(Vec<u8>, Vec<u64>)> {
        let entry = |(number, layout): (&u16, &SaLayout)| {
            (number.to_string().into_bytes(), layout.attributes().map(u64::from).collect())
        };
        self.layouts.iter().map(entry).collect()
    }

    pub(super) fn usual(&self) -> Option<&Usual> {
        self.usual.as_deref()
    }

    pub(super) fn layout_of(&self, attributes: &[ZplAttr]) -> Result<SaLayout> {
        let unknown =
            FormatError::Corrupt { what: WHAT, why: "have a layout of attributes that are not registered" };
        let numbers: Option<Vec<u64>> =
            attributes.iter().map(|attr| self.number_of(*attr).map(u64::from)).collect();
        self.build_layout(&numbers.ok_or(unknown)?)
    }

    /// Decodes the ZAPs REGISTRY (name, value) and LAYOUTS (number in decimal, attributes).
    ///
    /// # Errors
    /// A layout with unregistered attributes; numbers out of range.
    pub fn decode<'a>(
        registrations: impl IntoIterator<Item = (&'a [u8], u64)>,
        layouts: impl IntoIterator<Item = (&'a [u8], &'a [u64])>,
    ) -> Result<Self> {
        let legacy = ZplAttr::all().take(ZplAttr::LEGACY_COUNT).enumerate().map(|(number, attr)| {
            let (length_bytes, byteswap) = (attr.registered_bytes(), attr.byteswap());
            (number as u16, SaAttribute { name: attr.name().to_owned(), length_bytes, byteswap })
        });
        let registered = registrations.into_iter().map(|(name, value)| {
            let name = String::from_utf8_lossy(name).into_owned();
            let (length_bytes, byteswap) = ((value >> 24) as u16, (value >> 16) as u8);
            (value as u16, SaAttribute { name, length_bytes, byteswap })
        });
        let mut registry = SaRegistry { attributes: legacy.chain(registered).collect(), ..Self::default() };
        registry.add_layout(1, &[])?; // an object whose attributes are all gone
        for (name, attributes) in layouts {
            let number = std::str::from_utf8(name).ok().and_then(|text| text.parse().ok());
            let number = number.ok_or(FormatError::Corrupt {
                what: WHAT,
                why: "have a layout whose name is not a number",
            })?;
            registry.add_layout(number, attributes)?;
        }
        Ok(registry)
    }

    /// Registered attribute.
    pub fn attribute(&self, number: u16) -> Option<&SaAttribute> {
        self.attributes.get(&number)
    }

    /// Attributes by number.
    pub fn attributes(&self) -> impl Iterator<Item = (u16, &SaAttribute)> {
        self.attributes.iter().map(|(number, attribute)| (*number, attribute))
    }

    /// Layout.
    pub fn layout(&self, number: u16) -> Option<&SaLayout> {
        self.layouts.get(&number)
    }

    /// Number of a ZPL attribute, if registered.
    pub fn number_of(&self, attr: ZplAttr) -> Option<u16> {
        let number = attr as u16;
        let is_it = |number: u16| self.attributes.get(&number).is_some_and(|a| a.name == attr.name());
        // Nearly all file systems use the usual numbers.
        if is_it(number) {
            return Some(number);
        }
        self.attributes.keys().copied().find(|&number| is_it(number))
    }

    /// Number of `ZPL_SEQ`, which counts a file's changes. OpenZFS after 2.4 registers it; file systems made
    /// here lack it.
    pub fn number_of_changes(&self) -> Option<u16> {
        if self.attributes.len() <= ZplAttr::COUNT {
            return None;
        }
        self.attributes.iter().find(|(_, known)| known.name == "ZPL_SEQ").map(|(number, _)| *number)
    }

    /// Registers a ZPL attribute under the next number, unless registered.
    pub fn register(&mut self, attr: ZplAttr) {
        if self.number_of(attr).is_none() {
            let number = self.attributes.last_key_value().map_or(0, |(&last, _)| last.saturating_add(1));
            let (length_bytes, byteswap) = (attr.registered_bytes(), attr.byteswap());
            self.attributes
                .insert(number, SaAttribute { name: attr.name().to_owned(), length_bytes, byteswap });
        }
    }

    /// Whether an object may have one of these attributes. Layouts are never removed.
    pub fn may_have(&self, attrs: &[ZplAttr]) -> bool {
        let numbers: Vec<u16> = attrs.iter().filter_map(|attr| self.number_of(*attr)).collect();
        let has_one = |layout: &SaLayout| layout.attributes().any(|number| numbers.contains(&number));
        self.usual.is_some() || self.layouts.values().any(has_one)
    }

    /// Layout of exactly these attributes in this order.
    pub fn find_layout(&self, attributes: &[u16]) -> Option<u16> {
        let mut layouts = self.layouts.iter();
        layouts.find(|(_, layout)| layout.attributes().eq(attributes.iter().copied())).map(|(n, _)| *n)
    }

    /// Next number in OpenZFS's order; 0 stands for old znodes, 1 for no attributes.
    pub fn next_layout(&self) -> u16 {
        self.layouts.last_key_value().map_or(2, |(&last, _)| last.saturating_add(1).max(2))
    }

    /// Adds a layout.
    ///
    /// # Errors
    /// Unregistered attributes; numbers out of range.
    pub fn add_layout(&mut self, number: u16, attributes: &[u64]) -> Result<()> {
        at_most("SA layout", number.into(), MAX_LAYOUT)?;
        let layout = self.build_layout(attributes)?;
        self.layouts.insert(number, layout);
        Ok(())
    }

    fn build_layout(&self, attributes: &[u64]) -> Result<SaLayout> {
        at_most("SA layout attributes", attributes.len() as u64, MAX_SLOTS)?;
        let mut slots = Vec::with_capacity(attributes.len());
        let mut variable = 0..;
        for &attr in attributes {
            let number = at_most("SA attribute", attr, u16::MAX.into())? as u16;
            let attribute = self.attributes.get(&number).ok_or(FormatError::Corrupt {
                what: WHAT,
                why: "have a layout of attributes that are not registered",
            })?;
            let length = usize::from(attribute.length_bytes);
            let variable_index = if length == 0 { variable.next() } else { None };
            slots.push(Slot { number, length, variable_index });
        }
        let zpl_slots = self.zpl_slots(&slots);
        Ok(SaLayout::new(slots, zpl_slots))
    }

    fn zpl_slots(&self, slots: &[Slot]) -> [Option<u16>; ZplAttr::COUNT] {
        let mut places = [None; ZplAttr::COUNT];
        for (attr, place) in ZplAttr::all().zip(&mut places) {
            let is_attr = |slot: &Slot| self.attribute(slot.number).is_some_and(|a| a.name == attr.name());
            *place = slots.iter().position(is_attr).map(|at| at as u16);
        }
        places
    }
}

impl SaLayout {
    fn new(slots: Vec<Slot>, zpl_slots: [Option<u16>; ZplAttr::COUNT]) -> Self {
        let variable = slots.iter().filter(|slot| slot.variable_index.is_some()).count();
        let mut at = (LENGTHS_AT + 2 * variable).next_multiple_of(8);
        let mut offsets = vec![at];
        for slot in slots.iter().take_while(|slot| slot.variable_index.is_none()) {
            at = (at + slot.length).next_multiple_of(8);
            offsets.push(at);
        }
        let fixed = zpl_slots.map(|slot| {
            let slot = usize::from(slot.unwrap_or(u16::MAX));
            match (slots.get(slot), offsets.get(slot)) {
                (Some(Slot { length, variable_index: None, .. }), Some(&at))
                    if at + length <= usize::from(u16::MAX) =>
                {
                    (at as u16, *length as u16)
                }
                _ => (0, 0),
            }
        });
        SaLayout { slots, offsets, fixed, zpl_slots }
    }

    /// Attribute numbers.
    pub fn attributes(&self) -> impl Iterator<Item = u16> {
        self.slots.iter().map(|slot| slot.number)
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Offset and length, if the same for every file of this layout.
    pub(super) fn fixed(&self, attr: ZplAttr) -> Option<(usize, usize)> {
        let (at, len) = self.fixed[attr as usize];
        (len > 0).then_some((at.into(), len.into()))
    }

    pub(super) fn slot_of(&self, attr: ZplAttr) -> Option<usize> {
        self.zpl_slots[attr as usize].map(usize::from)
    }

    pub(super) fn variable_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.variable_index.is_some()).count()
    }

    /// Slot of the first variable attribute, or the number of slots.
    pub(super) fn first_variable(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Offset of the value in a slot, up to the first variable slot.
    pub(super) fn offset(&self, slot: usize) -> usize {
        self.offsets.get(slot).copied().unwrap_or(0)
    }
}
