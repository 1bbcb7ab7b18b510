//! A list as text, laid out as `zdb -l` prints it.

use std::fmt::{self, Display, Formatter};

use super::{NvValue, Nvlist};

const INDENT: usize = 4;

impl Display for Nvlist {
    /// One pair a line; lists within are indented by four blanks.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_list(f, self, 0)
    }
}

impl Display for NvValue {
    /// A scalar or an array in one line; lists span several.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            NvValue::Boolean => Ok(()),
            NvValue::Byte(v) | NvValue::Uint8(v) => v.fmt(f),
            NvValue::Int8(v) => v.fmt(f),
            NvValue::Int16(v) => v.fmt(f),
            NvValue::Uint16(v) => v.fmt(f),
            NvValue::Int32(v) => v.fmt(f),
            NvValue::Uint32(v) => v.fmt(f),
            NvValue::Int64(v) | NvValue::Hrtime(v) => v.fmt(f),
            NvValue::Uint64(v) => v.fmt(f),
            NvValue::Double(v) => v.fmt(f),
            NvValue::BooleanValue(v) => v.fmt(f),
            NvValue::String(v) => write_string(f, v),
            NvValue::ByteArray(v) | NvValue::Uint8Array(v) => write_items(f, v, u8::fmt),
            NvValue::Int8Array(v) => write_items(f, v, i8::fmt),
            NvValue::Int16Array(v) => write_items(f, v, i16::fmt),
            NvValue::Uint16Array(v) => write_items(f, v, u16::fmt),
            NvValue::Int32Array(v) => write_items(f, v, i32::fmt),
            NvValue::Uint32Array(v) => write_items(f, v, u32::fmt),
            NvValue::Int64Array(v) => write_items(f, v, i64::fmt),
            NvValue::Uint64Array(v) => write_items(f, v, u64::fmt),
            NvValue::BooleanArray(v) => write_items(f, v, bool::fmt),
            NvValue::StringArray(v) => write_items(f, v, |s, f| write_string(f, s)),
            NvValue::Nvlist(v) => v.fmt(f),
            NvValue::NvlistArray(v) => v.iter().try_for_each(|list| list.fmt(f)),
        }
    }
}

fn write_list(f: &mut Formatter<'_>, list: &Nvlist, indent: usize) -> fmt::Result {
    for (name, value) in list.iter() {
        match value {
            NvValue::Nvlist(inner) => {
                writeln!(f, "{:indent$}{name}:", "")?;
                write_list(f, inner, indent + INDENT)?;
            }
            NvValue::NvlistArray(lists) => {
                for (i, inner) in lists.iter().enumerate() {
                    writeln!(f, "{:indent$}{name}[{i}]:", "")?;
                    write_list(f, inner, indent + INDENT)?;
                }
            }
            NvValue::Boolean => writeln!(f, "{:indent$}{name}", "")?,
            plain => writeln!(f, "{:indent$}{name}: {plain}", "")?,
        }
    }
    Ok(())
}

fn write_string(f: &mut Formatter<'_>, text: &[u8]) -> fmt::Result {
    f.write_str("'")?;
    for chunk in text.utf8_chunks() {
        write!(f, "{}", chunk.valid())?;
        write!(f, "{}", chunk.invalid().escape_ascii())?;
    }
    f.write_str("'")
}

fn write_items<T>(
    f: &mut Formatter<'_>,
    items: &[T],
    item: impl Fn(&T, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    f.write_str("[")?;
    for (i, value) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        item(value, f)?;
    }
    f.write_str("]")
}
