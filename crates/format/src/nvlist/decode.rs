//! Unpacks name-value lists, native and XDR.
//!
//! Idea: both packings nest alike (a list's pairs, then an end mark). They differ in the framing of a pair
//! and in the size of the smallest number. One decoder walks both.
//!
//! Layout:
//!
//! ```text
//! XDR, big-endian, every field padded to 4 bytes:
//!   list: version (4)  flags (4)  pairs  0 (4)  0 (4)
//!   pair: bytes of this pair (4)  bytes of it in memory (4)  name (length, text)  type (4)  count (4)  value
//!         arrays of numbers repeat their count; numbers of 8 and 16 bits take 4 bytes; lists lie in place
//! native, in the writer's byte order; a value begins at a multiple of 8 from the pair's start:
//!   list: version (4)  flags (4)  pairs  0 (4)
//!   pair: bytes (4)  bytes of name with NUL (2)  0 (2)  count (4)  type (4)  name  value
//!         string array: 8 bytes a string for a pointer, then the strings, each with NUL
//!         list: version (4)  flags (4)  pointer and padding (16); its pairs and end mark follow the pair
//!         array of lists: 8 bytes a list for a pointer, then the lists' heads as above; their pairs follow
//! ```

use super::{MAX_DEPTH, NvValue, Nvlist, data_type as dt};
use crate::bytes::{Endian, Reader};
use crate::error::{FormatError, Result, at_most};

const WHAT: &str = "nvlist";
const NATIVE_PAIR_HEAD: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Native,
    Xdr,
}

pub(super) fn decode(packed: &[u8]) -> Result<Nvlist> {
    let mut r = Reader::new(WHAT, packed, Endian::Big);
    let [packing, endian, _, _] = r.array()?;
    let (packing, endian) = match (packing, endian) {
        (1, _) => (Packing::Xdr, Endian::Big),
        (0, 0) => (Packing::Native, Endian::Big),
        (0, 1) => (Packing::Native, Endian::Little),
        (0, _) => return Err(corrupt("has an unknown byte order")),
        _ => return Err(corrupt("has an unknown packing")),
    };
    let body = r.bytes(r.remaining())?;
    let mut decoder = Decoder { r: Reader::new(WHAT, body, endian), packing };
    let flags = list_head(&mut decoder.r)?;
    Ok(Nvlist { flags, pairs: decoder.pairs(0)? })
}

fn corrupt(why: &'static str) -> FormatError {
    FormatError::Corrupt { what: WHAT, why }
}

/// Reads version and flags; returns the flags.
fn list_head(r: &mut Reader<'_>) -> Result<u32> {
    at_most("nvlist version", r.u32()?.into(), 0)?;
    r.u32()
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| corrupt("has a name that is not UTF-8"))
}

struct Decoder<'a> {
    r: Reader<'a>,
    packing: Packing,
}

impl<'a> Decoder<'a> {
    fn pairs(&mut self, depth: u32) -> Result<Vec<(String, NvValue)>> {
        at_most("nvlist depth", depth.into(), MAX_DEPTH.into())?;
        let mut pairs = Vec::new();
        while let Some(pair) = match self.packing {
            Packing::Xdr => self.xdr_pair(depth)?,
            Packing::Native => self.native_pair(depth)?,
        } {
            pairs.push(pair);
        }
        Ok(pairs)
    }

    fn xdr_pair(&mut self, depth: u32) -> Result<Option<(String, NvValue)>> {
        let _packed_bytes = self.r.u32()?;
        let memory_bytes = self.r.u32()?;
        if memory_bytes == 0 {
            return Ok(None);
        }
        let name = text(&self.string()?)?;
        let data_type = self.r.u32()?;
        let count = self.r.u32()? as usize;
        let value = match data_type {
            dt::NVLIST | dt::NVLIST_ARRAY => self.lists(data_type, count, None, depth)?,
            _ => self.plain_value(data_type, count)?,
        };
        Ok(Some((name, value)))
    }

    fn native_pair(&mut self, depth: u32) -> Result<Option<(String, NvValue)>> {
        let size = self.r.u32()? as usize;
        if size == 0 {
            return Ok(None);
        }
        let rest = size.checked_sub(4).ok_or_else(|| corrupt("has a pair shorter than its head"))?;
        let mut pair = Reader::new(WHAT, self.r.bytes(rest)?, self.r.endian());
        let name_bytes = usize::from(pair.u16()?);
        pair.skip(2)?;
        let count = pair.u32()? as usize;
        let data_type = pair.u32()?;
        let name = match pair.bytes(name_bytes)?.split_last() {
            Some((0, name)) => text(name)?,
            _ => return Err(corrupt("has a name without its end")),
        };
        let value_at = (NATIVE_PAIR_HEAD + name_bytes).next_multiple_of(8);
        pair.skip((value_at - 4 - pair.position()).min(pair.remaining()))?;
        let value = match data_type {
            dt::NVLIST | dt::NVLIST_ARRAY => self.lists(data_type, count, Some(pair), depth)?,
            _ => Decoder { r: pair, packing: Packing::Native }.plain_value(data_type, count)?,
        };
        Ok(Some((name, value)))
    }

    /// Reads one list or an array. `heads` holds the heads that do not precede their list's pairs.
    fn lists(
        &mut self,
        data_type: u32,
        count: usize,
        mut heads: Option<Reader<'a>>,
        depth: u32,
    ) -> Result<NvValue> {
        let single = data_type == dt::NVLIST;
        if single && count != 1 {
            return Err(corrupt("has a scalar with a count other than one"));
        }
        if let (false, Some(heads)) = (single, &mut heads) {
            heads.skip(count.saturating_mul(8))?;
        }
        let mut lists = Vec::new();
        for _ in 0..count {
            let flags = match &mut heads {
                Some(heads) => {
                    let flags = list_head(heads)?;
                    heads.skip(16)?;
                    flags
                }
                None => list_head(&mut self.r)?,
            };
            lists.push(Nvlist { flags, pairs: self.pairs(depth + 1)? });
        }
        Ok(match lists.pop() {
            Some(list) if single => NvValue::Nvlist(list),
            last => NvValue::NvlistArray(lists.into_iter().chain(last).collect()),
        })
    }

    fn plain_value(&mut self, data_type: u32, count: usize) -> Result<NvValue> {
        let wanted = match data_type {
            dt::BOOLEAN => Some(0),
            dt::BYTE..=dt::STRING | dt::HRTIME | dt::BOOLEAN_VALUE | dt::INT8 | dt::UINT8 | dt::DOUBLE => {
                Some(1)
            }
            _ => None,
        };
        if wanted.is_some_and(|wanted| wanted != count) {
            return Err(corrupt("has a scalar with a count other than one"));
        }
        Ok(match data_type {
            dt::BOOLEAN => NvValue::Boolean,
            dt::BYTE => NvValue::Byte(self.u8()?),
            dt::INT8 => NvValue::Int8(self.u8()?.cast_signed()),
            dt::UINT8 => NvValue::Uint8(self.u8()?),
            dt::INT16 => NvValue::Int16(self.u16()?.cast_signed()),
            dt::UINT16 => NvValue::Uint16(self.u16()?),
            dt::INT32 => NvValue::Int32(self.u32()?.cast_signed()),
            dt::UINT32 => NvValue::Uint32(self.u32()?),
            dt::INT64 => NvValue::Int64(self.i64()?),
            dt::UINT64 => NvValue::Uint64(self.r.u64()?),
            dt::HRTIME => NvValue::Hrtime(self.i64()?),
            dt::DOUBLE => NvValue::Double(f64::from_bits(self.r.u64()?)),
            dt::BOOLEAN_VALUE => NvValue::BooleanValue(self.boolean()?),
            dt::STRING => NvValue::String(self.string()?),
            dt::BYTE_ARRAY => NvValue::ByteArray(self.opaque(count)?),
            dt::BOOLEAN_ARRAY => NvValue::BooleanArray(self.array(count, Self::boolean)?),
            dt::INT8_ARRAY => NvValue::Int8Array(self.array(count, |d| Ok(d.u8()?.cast_signed()))?),
            dt::UINT8_ARRAY => NvValue::Uint8Array(self.array(count, Self::u8)?),
            dt::INT16_ARRAY => NvValue::Int16Array(self.array(count, |d| Ok(d.u16()?.cast_signed()))?),
            dt::UINT16_ARRAY => NvValue::Uint16Array(self.array(count, Self::u16)?),
            dt::INT32_ARRAY => NvValue::Int32Array(self.array(count, |d| Ok(d.u32()?.cast_signed()))?),
            dt::UINT32_ARRAY => NvValue::Uint32Array(self.array(count, Self::u32)?),
            dt::INT64_ARRAY => NvValue::Int64Array(self.array(count, Self::i64)?),
            dt::UINT64_ARRAY => NvValue::Uint64Array(self.array(count, |d| d.r.u64())?),
            dt::STRING_ARRAY => NvValue::StringArray(self.strings(count)?),
            _ => {
                return Err(FormatError::OutOfRange {
                    what: "nvlist type",
                    value: data_type.into(),
                    bound: 27,
                });
            }
        })
    }

    fn u8(&mut self) -> Result<u8> {
        match self.packing {
            Packing::Xdr => Ok(self.r.u32()? as u8),
            Packing::Native => self.r.u8(),
        }
    }

    fn u16(&mut self) -> Result<u16> {
        match self.packing {
            Packing::Xdr => Ok(self.r.u32()? as u16),
            Packing::Native => self.r.u16(),
        }
    }

    fn u32(&mut self) -> Result<u32> {
        self.r.u32()
    }

    fn i64(&mut self) -> Result<i64> {
        self.r.i64()
    }

    fn boolean(&mut self) -> Result<bool> {
        Ok(at_most("nvlist boolean", self.r.u32()?.into(), 1)? == 1)
    }

    /// Reads numbers; an empty array has no repeated count, even in XDR.
    fn array<T>(&mut self, count: usize, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if self.packing == Packing::Xdr && count != 0 && self.r.u32()? as usize != count {
            return Err(corrupt("has an array with two counts"));
        }
        // Packed items are at least as long as in memory.
        let need = count.saturating_mul(size_of::<T>());
        if need > self.r.remaining() {
            return Err(FormatError::Truncated { what: WHAT, need, have: self.r.remaining() });
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn opaque(&mut self, count: usize) -> Result<Vec<u8>> {
        let bytes = self.r.bytes(count)?.to_vec();
        if self.packing == Packing::Xdr {
            self.r.skip(count.next_multiple_of(4) - count)?;
        }
        Ok(bytes)
    }

    fn string(&mut self) -> Result<Vec<u8>> {
        match self.packing {
            Packing::Xdr => {
                let len = self.r.u32()? as usize;
                let bytes = self.opaque(len)?;
                if bytes.contains(&0) { Err(corrupt("has a string with NUL inside")) } else { Ok(bytes) }
            }
            Packing::Native => {
                let mut look = self.r.clone();
                let rest = look.bytes(look.remaining())?;
                let len = rest
                    .iter()
                    .position(|b| *b == 0)
                    .ok_or_else(|| corrupt("has a string without its end"))?;
                let bytes = self.opaque(len)?;
                self.r.skip(1)?;
                Ok(bytes)
            }
        }
    }

    fn strings(&mut self, count: usize) -> Result<Vec<Vec<u8>>> {
        if self.packing == Packing::Native {
            self.r.skip(count.saturating_mul(8))?;
        }
        let mut strings = Vec::new();
        for _ in 0..count {
            strings.push(self.string()?);
        }
        Ok(strings)
    }
}
