//! Packs name-value lists as XDR; `decode` draws the layout.
//!
//! A pair states two sizes: its own, which lets boot loaders skip it, and its size in memory, which OpenZFS
//! allocates and checks against the decoded pair. Both must be exact.

use super::{NvValue, Nvlist, data_type as dt};
use crate::bytes::{Endian, Writer};

/// Bytes of `nvpair_t` before the name.
const MEMORY_PAIR_HEAD: usize = 16;
/// Bytes of `nvlist_t`.
const MEMORY_LIST: usize = 24;

pub(super) fn encode(list: &Nvlist) -> Vec<u8> {
    let mut w = Writer::new(Endian::Big);
    w.bytes(&[1, u8::from(Endian::NATIVE == Endian::Little), 0, 0]);
    write_list(&mut w, list);
    w.finish()
}

fn write_list(w: &mut Writer, list: &Nvlist) {
    w.u32(0).u32(list.flags);
    for (name, value) in &list.pairs {
        write_pair(w, name, value);
    }
    w.u32(0).u32(0);
}

fn write_pair(w: &mut Writer, name: &str, value: &NvValue) {
    let mut body = Writer::new(Endian::Big);
    write_string(&mut body, name.as_bytes());
    let (data_type, count) = type_and_count(value);
    body.u32(data_type).u32(count as u32);
    write_value(&mut body, value);
    let body = body.finish();
    let memory =
        (MEMORY_PAIR_HEAD + name.len() + 1).next_multiple_of(8) + memory_bytes(value).next_multiple_of(8);
    w.u32(body.len() as u32 + 8).u32(memory as u32).bytes(&body);
}

fn write_string(w: &mut Writer, text: &[u8]) {
    w.u32(text.len() as u32);
    write_opaque(w, text);
}

fn write_opaque(w: &mut Writer, bytes: &[u8]) {
    let end = w.position() + bytes.len().next_multiple_of(4);
    w.bytes(bytes).pad_to(end);
}

/// Numbers of at most 32 bits after their count; nothing if empty.
fn write_small<T: Copy>(w: &mut Writer, items: &[T], bits: impl Fn(T) -> u32) {
    if !items.is_empty() {
        w.u32(items.len() as u32);
    }
    for item in items {
        w.u32(bits(*item));
    }
}

fn write_large<T: Copy>(w: &mut Writer, items: &[T], bits: impl Fn(T) -> u64) {
    if !items.is_empty() {
        w.u32(items.len() as u32);
    }
    for item in items {
        w.u64(bits(*item));
    }
}

fn write_value(w: &mut Writer, value: &NvValue) {
    // Signed numbers are sign-extended to 4 bytes, as `xdr_short` and `xdr_char` do.
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(v) | NvValue::Uint8(v) => _ = w.u32(u32::from(*v)),
        NvValue::Int8(v) => _ = w.u32(i32::from(*v).cast_unsigned()),
        NvValue::Int16(v) => _ = w.u32(i32::from(*v).cast_unsigned()),
        NvValue::Uint16(v) => _ = w.u32(u32::from(*v)),
        NvValue::Int32(v) => _ = w.u32(v.cast_unsigned()),
        NvValue::Uint32(v) => _ = w.u32(*v),
        NvValue::Int64(v) | NvValue::Hrtime(v) => _ = w.u64(v.cast_unsigned()),
        NvValue::Uint64(v) => _ = w.u64(*v),
        NvValue::Double(v) => _ = w.u64(v.to_bits()),
        NvValue::BooleanValue(v) => _ = w.u32(u32::from(*v)),
        NvValue::String(v) => write_string(w, v),
        NvValue::ByteArray(v) => write_opaque(w, v),
        NvValue::Uint8Array(v) => write_small(w, v, u32::from),
        NvValue::Int8Array(v) => write_small(w, v, |n| i32::from(n).cast_unsigned()),
        NvValue::BooleanArray(v) => write_small(w, v, u32::from),
        NvValue::Int16Array(v) => write_small(w, v, |n| i32::from(n).cast_unsigned()),
        NvValue::Uint16Array(v) => write_small(w, v, u32::from),
        NvValue::Int32Array(v) => write_small(w, v, i32::cast_unsigned),
        NvValue::Uint32Array(v) => write_small(w, v, |n| n),
        NvValue::Int64Array(v) => write_large(w, v, i64::cast_unsigned),
        NvValue::Uint64Array(v) => write_large(w, v, |n| n),
        NvValue::StringArray(v) => v.iter().for_each(|s| write_string(w, s)),
        NvValue::Nvlist(v) => write_list(w, v),
        NvValue::NvlistArray(v) => v.iter().for_each(|list| write_list(w, list)),
    }
}

pub(super) fn type_and_count(value: &NvValue) -> (u32, usize) {
    match value {
        NvValue::Boolean => (dt::BOOLEAN, 0),
        NvValue::Byte(_) => (dt::BYTE, 1),
        NvValue::Int16(_) => (dt::INT16, 1),
        NvValue::Uint16(_) => (dt::UINT16, 1),
        NvValue::Int32(_) => (dt::INT32, 1),
        NvValue::Uint32(_) => (dt::UINT32, 1),
        NvValue::Int64(_) => (dt::INT64, 1),
        NvValue::Uint64(_) => (dt::UINT64, 1),
        NvValue::String(_) => (dt::STRING, 1),
        NvValue::ByteArray(v) => (dt::BYTE_ARRAY, v.len()),
        NvValue::Int16Array(v) => (dt::INT16_ARRAY, v.len()),
        NvValue::Uint16Array(v) => (dt::UINT16_ARRAY, v.len()),
        NvValue::Int32Array(v) => (dt::INT32_ARRAY, v.len()),
        NvValue::Uint32Array(v) => (dt::UINT32_ARRAY, v.len()),
        NvValue::Int64Array(v) => (dt::INT64_ARRAY, v.len()),
        NvValue::Uint64Array(v) => (dt::UINT64_ARRAY, v.len()),
        NvValue::StringArray(v) => (dt::STRING_ARRAY, v.len()),
        NvValue::Hrtime(_) => (dt::HRTIME, 1),
        NvValue::Nvlist(_) => (dt::NVLIST, 1),
        NvValue::NvlistArray(v) => (dt::NVLIST_ARRAY, v.len()),
        NvValue::BooleanValue(_) => (dt::BOOLEAN_VALUE, 1),
        NvValue::Int8(_) => (dt::INT8, 1),
        NvValue::Uint8(_) => (dt::UINT8, 1),
        NvValue::BooleanArray(v) => (dt::BOOLEAN_ARRAY, v.len()),
        NvValue::Int8Array(v) => (dt::INT8_ARRAY, v.len()),
        NvValue::Uint8Array(v) => (dt::UINT8_ARRAY, v.len()),
        NvValue::Double(_) => (dt::DOUBLE, 1),
    }
}

/// Bytes in OpenZFS's memory, before rounding up to 8.
pub(super) fn memory_bytes(value: &NvValue) -> usize {
    match value {
        NvValue::Boolean => 0,
        NvValue::Byte(_) | NvValue::Int8(_) | NvValue::Uint8(_) => 1,
        NvValue::Int16(_) | NvValue::Uint16(_) => 2,
        NvValue::Int32(_) | NvValue::Uint32(_) | NvValue::BooleanValue(_) => 4,
        NvValue::Int64(_) | NvValue::Uint64(_) | NvValue::Hrtime(_) | NvValue::Double(_) => 8,
        NvValue::String(v) => v.len() + 1,
        NvValue::ByteArray(v) | NvValue::Uint8Array(v) => v.len(),
        NvValue::Int8Array(v) => v.len(),
        NvValue::Int16Array(v) => v.len() * 2,
        NvValue::Uint16Array(v) => v.len() * 2,
        NvValue::BooleanArray(v) => v.len() * 4,
        NvValue::Int32Array(v) => v.len() * 4,
        NvValue::Uint32Array(v) => v.len() * 4,
        NvValue::Int64Array(v) => v.len() * 8,
        NvValue::Uint64Array(v) => v.len() * 8,
        NvValue::StringArray(v) => v.iter().map(|s| 8 + s.len() + 1).sum(),
        NvValue::Nvlist(_) => MEMORY_LIST,
        NvValue::NvlistArray(v) => v.len() * (8 + MEMORY_LIST),
    }
}
