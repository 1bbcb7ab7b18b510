//! Packs name-value lists as native memory; `decode` draws the layout.
//!
//! OpenZFS uses this packing for data that stay on one host, and at the start of send streams (up to 2.3).

use super::encode::{memory_bytes, type_and_count};
use super::{NvValue, Nvlist};
use crate::bytes::{Endian, Writer};

/// Bytes of `nvpair_t` before the name.
const PAIR_HEAD: usize = 16;

pub(super) fn encode(list: &Nvlist) -> Vec<u8> {
    let mut w = Writer::new(Endian::NATIVE);
    w.bytes(&[0, u8::from(Endian::NATIVE == Endian::Little), 0, 0]);
    w.u32(0).u32(list.flags);
    write_pairs(&mut w, list);
    w.finish()
}

fn write_pairs(w: &mut Writer, list: &Nvlist) {
    for (name, value) in list.iter() {
        write_pair(w, name, value);
    }
    w.u32(0);
}

fn write_pair(w: &mut Writer, name: &str, value: &NvValue) {
    let name_bytes = name.len() + 1;
    let value_at = (PAIR_HEAD + name_bytes).next_multiple_of(8);
    let pair_bytes = value_at + memory_bytes(value).next_multiple_of(8);
    let start = w.position();
    let (data_type, count) = type_and_count(value);
    w.u32(pair_bytes as u32).u16(name_bytes as u16).u16(0).u32(count as u32).u32(data_type);
    w.bytes(name.as_bytes()).pad_to(start + value_at);
    write_value(w, value);
    w.pad_to(start + pair_bytes);
    // Lists follow the pair with their heads.
    match value {
        NvValue::Nvlist(list) => write_pairs(w, list),
        NvValue::NvlistArray(lists) => lists.iter().for_each(|list| write_pairs(w, list)),
        _ => {}
    }
}

fn write_value(w: &mut Writer, value: &NvValue) {
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(v) | NvValue::Uint8(v) => _ = w.bytes(&[*v]),
        NvValue::Int8(v) => _ = w.bytes(&[v.cast_unsigned()]),
        NvValue::Int16(v) => _ = w.u16(v.cast_unsigned()),
        NvValue::Uint16(v) => _ = w.u16(*v),
        NvValue::Int32(v) => _ = w.u32(v.cast_unsigned()),
        NvValue::Uint32(v) => _ = w.u32(*v),
        NvValue::Int64(v) | NvValue::Hrtime(v) => _ = w.u64(v.cast_unsigned()),
        NvValue::Uint64(v) => _ = w.u64(*v),
        NvValue::Double(v) => _ = w.u64(v.to_bits()),
        NvValue::BooleanValue(v) => _ = w.u32(u32::from(*v)),
        NvValue::String(v) => _ = w.bytes(v).bytes(&[0]),
        NvValue::ByteArray(v) | NvValue::Uint8Array(v) => _ = w.bytes(v),
        NvValue::Int8Array(v) => v.iter().for_each(|n| _ = w.bytes(&[n.cast_unsigned()])),
        NvValue::BooleanArray(v) => v.iter().for_each(|n| _ = w.u32(u32::from(*n))),
        NvValue::Int16Array(v) => v.iter().for_each(|n| _ = w.u16(n.cast_unsigned())),
        NvValue::Uint16Array(v) => v.iter().for_each(|n| _ = w.u16(*n)),
        NvValue::Int32Array(v) => v.iter().for_each(|n| _ = w.u32(n.cast_unsigned())),
        NvValue::Uint32Array(v) => v.iter().for_each(|n| _ = w.u32(*n)),
        NvValue::Int64Array(v) => v.iter().for_each(|n| _ = w.u64(n.cast_unsigned())),
        NvValue::Uint64Array(v) => _ = w.words(v),
        NvValue::StringArray(v) => {
            v.iter().for_each(|_| _ = w.u64(0));
            v.iter().for_each(|text| _ = w.bytes(text).bytes(&[0]));
        }
        NvValue::Nvlist(list) => write_head(w, list),
        NvValue::NvlistArray(lists) => {
            lists.iter().for_each(|_| _ = w.u64(0));
            lists.iter().for_each(|list| write_head(w, list));
        }
    }
}

/// `nvlist_t` without its pointer.
fn write_head(w: &mut Writer, list: &Nvlist) {
    w.u32(0).u32(list.flags).u64(0).u64(0);
}
