//! A list as text, in the layout of `zdb -l`.

use std::fmt::{self, Display, Formatter};

use super::{NvValue, Nvlist};

const INDENT: usize = 4;

impl Display for Nvlist {
    /// One pair or array item per line; nested lists indent by four blanks.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_list(f, self, 0)
    }
}

impl Display for NvValue {
    /// Scalar or array on one line; lists span several.
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
            NvValue::String(v) => f.write_str(&quoted(v)),
            NvValue::Nvlist(v) => v.fmt(f),
            NvValue::NvlistArray(v) => v.iter().try_for_each(|list| list.fmt(f)),
            array => write!(f, "[{}]", items(array).unwrap_or_default().join(", ")),
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
            plain => match items(plain) {
                None => writeln!(f, "{:indent$}{name}: {plain}", "")?,
                Some(items) => {
                    for (i, item) in items.iter().enumerate() {
                        writeln!(f, "{:indent$}{name}[{i}]: {item}", "")?;
                    }
                }
            },
        }
    }
    Ok(())
}

fn items(value: &NvValue) -> Option<Vec<String>> {
    fn each<T: ToString>(values: &[T]) -> Option<Vec<String>> {
        Some(values.iter().map(T::to_string).collect())
    }
    match value {
        NvValue::ByteArray(v) | NvValue::Uint8Array(v) => each(v),
        NvValue::Int8Array(v) => each(v),
        NvValue::Int16Array(v) => each(v),
        NvValue::Uint16Array(v) => each(v),
        NvValue::Int32Array(v) => each(v),
        NvValue::Uint32Array(v) => each(v),
        NvValue::Int64Array(v) => each(v),
        NvValue::Uint64Array(v) => each(v),
        NvValue::BooleanArray(v) => each(v),
        NvValue::StringArray(v) => Some(v.iter().map(|s| quoted(s)).collect()),
        _ => None,
    }
}

/// Quoted text; invalid UTF-8 appears as `\xNN`.
fn quoted(text: &[u8]) -> String {
    let escaped = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let inner: String = text.utf8_chunks().map(|c| c.valid().to_owned() + &escaped(c.invalid())).collect();
    format!("'{inner}'")
}
