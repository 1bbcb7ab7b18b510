//! Lists of a stream as text: as `nvlist_print` and as `dump_nvlist` of libnvpair print them.
//!
//! Source: OpenZFS `libnvpair.c` (2.3.2).

use std::fmt::{self, Write};

use cenote_format::nvlist::{NvValue, Nvlist};

/// Prints a list like `nvlist_print` of libnvpair, indented by `depth` tabs.
pub fn print_list(list: &Nvlist, depth: usize, out: &mut impl Write) -> fmt::Result {
    let tabs = "\t".repeat(depth);
    writeln!(out, "{tabs}nvlist version: 0")?;
    for (name, value) in list.iter() {
        match value {
            NvValue::Nvlist(inner) => {
                writeln!(out, "{tabs}\t{name} = (embedded nvlist)")?;
                print_list(inner, depth + 1, out)?;
                writeln!(out, "{tabs}\t(end {name})\n")?;
            }
            NvValue::NvlistArray(lists) => {
                writeln!(out, "{tabs}\t{name} = (array of embedded nvlists)")?;
                for (index, inner) in lists.iter().enumerate() {
                    writeln!(out, "{tabs}\t(start {name}[{index}])")?;
                    print_list(inner, depth + 1, out)?;
                    writeln!(out, "{tabs}\t(end {name}[{index}])\n")?;
                }
            }
            plain => writeln!(out, "{tabs}\t{name} = {}", Plain(plain))?,
        }
    }
    Ok(())
}

/// A value other than a list.
struct Plain<'a>(&'a NvValue);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn each<T: Copy>(f: &mut fmt::Formatter<'_>, items: &[T], text: impl Fn(T) -> String) -> fmt::Result {
            f.write_str(&items.iter().map(|item| text(*item)).collect::<Vec<_>>().join(" "))
        }
        match self.0 {
            NvValue::Boolean => f.write_str("1"),
            NvValue::BooleanValue(value) => write!(f, "{}", u8::from(*value)),
            NvValue::Byte(value) | NvValue::Uint8(value) => write!(f, "{value:#x}"),
            NvValue::Int8(value) => write!(f, "{value}"),
            NvValue::Int16(value) => write!(f, "{value}"),
            NvValue::Uint16(value) => write!(f, "{value:#x}"),
            NvValue::Int32(value) => write!(f, "{value}"),
            NvValue::Uint32(value) => write!(f, "{value:#x}"),
            NvValue::Int64(value) => write!(f, "{value}"),
            NvValue::Uint64(value) => write!(f, "{value:#x}"),
            NvValue::Hrtime(value) => write!(f, "{value:#x}"),
            NvValue::Double(value) => write!(f, "{value}"),
            NvValue::String(text) => f.write_str(&String::from_utf8_lossy(text)),
            NvValue::ByteArray(items) | NvValue::Uint8Array(items) => {
                each(f, items, |item| format!("{item:#x}"))
            }
            NvValue::Uint16Array(items) => each(f, items, |item| format!("{item:#x}")),
            NvValue::Uint32Array(items) => each(f, items, |item| format!("{item:#x}")),
            NvValue::Uint64Array(items) => each(f, items, |item| format!("{item:#x}")),
            NvValue::Int8Array(items) => each(f, items, |item| item.to_string()),
            NvValue::Int16Array(items) => each(f, items, |item| item.to_string()),
            NvValue::Int32Array(items) => each(f, items, |item| item.to_string()),
            NvValue::Int64Array(items) => each(f, items, |item| item.to_string()),
            NvValue::BooleanArray(items) => each(f, items, |item| u8::from(item).to_string()),
            NvValue::StringArray(items) => {
                let items: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(item)).collect();
                f.write_str(&items.join(" "))
            }
            NvValue::Nvlist(_) | NvValue::NvlistArray(_) => Ok(()),
        }
    }
}

/// Prints a list like `dump_nvlist` of libnvpair: `zstream token`, `zdb -C`.
pub fn print_brief(list: &Nvlist, indent: usize, out: &mut impl Write) -> fmt::Result {
    let pad = " ".repeat(indent);
    for (name, value) in list.iter() {
        match value {
            NvValue::Boolean => writeln!(out, "{pad}{name}")?,
            NvValue::BooleanValue(value) => writeln!(out, "{pad}{name}: {value}")?,
            NvValue::String(text) => writeln!(out, "{pad}{name}: '{}'", String::from_utf8_lossy(text))?,
            NvValue::Nvlist(inner) => {
                writeln!(out, "{pad}{name}:")?;
                print_brief(inner, indent + 4, out)?;
            }
            NvValue::NvlistArray(lists) => {
                for (index, inner) in lists.iter().enumerate() {
                    writeln!(out, "{pad}{name}[{index}]:")?;
                    print_brief(inner, indent + 4, out)?;
                }
            }
            other => print_numbers(&pad, name, other, out)?,
        }
    }
    Ok(())
}

/// A number, or each of several on its own line.
fn print_numbers(pad: &str, name: &str, value: &NvValue, out: &mut impl Write) -> fmt::Result {
    fn each<T>(
        pad: &str,
        name: &str,
        items: &[T],
        out: &mut impl Write,
        text: impl Fn(&T) -> String,
    ) -> fmt::Result {
        items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| writeln!(out, "{pad}{name}[{index}]: {}", text(item)))
    }
    match value {
        NvValue::Byte(value) | NvValue::Uint8(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::Int8(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::Int16(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::Uint16(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::Int32(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::Uint32(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::Int64(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::Uint64(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::Hrtime(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::Double(value) => writeln!(out, "{pad}{name}: {value}"),
        NvValue::ByteArray(items) | NvValue::Uint8Array(items) => each(pad, name, items, out, u8::to_string),
        NvValue::Uint16Array(items) => each(pad, name, items, out, u16::to_string),
        NvValue::Uint32Array(items) => each(pad, name, items, out, u32::to_string),
        NvValue::Uint64Array(items) => each(pad, name, items, out, u64::to_string),
        NvValue::Int8Array(items) => each(pad, name, items, out, i8::to_string),
        NvValue::Int16Array(items) => each(pad, name, items, out, i16::to_string),
        NvValue::Int32Array(items) => each(pad, name, items, out, i32::to_string),
        NvValue::Int64Array(items) => each(pad, name, items, out, i64::to_string),
        NvValue::BooleanArray(items) => each(pad, name, items, out, bool::to_string),
        NvValue::StringArray(items) => {
            each(pad, name, items, out, |item| format!("'{}'", String::from_utf8_lossy(item)))
        }
        NvValue::Boolean
        | NvValue::BooleanValue(_)
        | NvValue::String(_)
        | NvValue::Nvlist(_)
        | NvValue::NvlistArray(_) => Ok(()),
    }
}
