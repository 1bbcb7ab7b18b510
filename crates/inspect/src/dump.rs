//! Any on-disk structure of a pool, field by field: the information that `zdb` shows, for people and
//! programs.
//!
//! Idea: a dump is a stream of events: a record opens, has fields, closes; a table has columns and rows. A
//! [`Sink`] does the layout (aligned text, JSON), so each structure is described once, in little memory.
//!
//! Structures that consist of 64-bit words ([`Phys`]) describe themselves: field names carry units (`_bytes`,
//! `_time_s`), so one function, [`phys`], shows them all.
//!
//! ```text
//!   label      four labels of a device           objects    table of a set's objects
//!   uberblock  the ring, or the active one       object     dnode, bonus, block tree, content
//!   datasets   DSL structures                    zil        chain, blocks, records
//!   block      raw bytes at VDEV:OFFSET          metaslabs, tables (DDT, BRT), features
//! ```
//!
//! Damage is shown where it is found, as a field `error`, and the dump continues.

pub mod block;
mod bonus;
mod content;
pub mod datasets;
pub mod features;
pub mod label;
pub mod metaslabs;
pub mod object;
pub mod pointer;
mod space_map;
pub mod tables;
pub mod zil;

use cenote_format::Phys;
use cenote_format::blkptr::Blkptr;
use cenote_format::nvlist::{NvValue, Nvlist};

/// The value of a field or cell, with its meaning.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    None,
    /// Yes or no.
    Flag(bool),
    /// A count, a number, a guid.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A bit mask.
    Hex(u64),
    /// A size in bytes.
    Size(u64),
    /// Seconds since 1970.
    Time(i64),
    /// A word of OpenZFS or of the user; may contain any characters.
    Text(String),
    /// Uninterpreted bytes.
    Raw(Vec<u8>),
    /// Several numbers.
    Numbers(Vec<u64>),
    /// A block pointer.
    Pointer(Box<Blkptr>),
}

macro_rules! value_from {
    ($($ty:ty => |$v:ident| $value:expr;)*) => {
        $(impl From<$ty> for Value {
            fn from($v: $ty) -> Value {
                $value
            }
        })*
    };
}

value_from! {
    u8 => |v| Value::Number(v.into());
    u16 => |v| Value::Number(v.into());
    u32 => |v| Value::Number(v.into());
    u64 => |v| Value::Number(v);
    usize => |v| Value::Number(v as u64);
    i64 => |v| Value::Signed(v);
    bool => |v| Value::Flag(v);
    &str => |v| Value::Text(v.into());
    String => |v| Value::Text(v);
    Blkptr => |v| Value::Pointer(Box::new(v));
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::None, Into::into)
    }
}

/// The destination of a dump.
///
/// A record contains fields, records, lists and tables; a list contains records. They close in the reverse
/// order of opening. A sink remembers write errors for [`Sink::is_closed`], so callers need not check after
/// every field.
pub trait Sink {
    /// Begins a record. In a list, the name is only a heading for people.
    fn open(&mut self, name: &str);
    /// Begins a list of records.
    fn list(&mut self, name: &str);
    /// Begins a table.
    fn table(&mut self, name: &str, columns: &[&'static str]);
    /// A row of the open table.
    fn row(&mut self, cells: Vec<Value>);
    /// A field of the open record.
    fn field(&mut self, name: &str, value: Value);
    /// Ends the innermost record, list or table.
    fn close(&mut self);
    /// Whether the reader of the output is gone, so that long dumps may stop.
    fn is_closed(&self) -> bool;
}

/// Shows the fields of a structure of words, without padding.
pub fn phys<P: Phys>(sink: &mut dyn Sink, value: &P) {
    let words = value.to_words();
    let mut rest = &words[..];
    for &(name, count) in P::FIELDS {
        let (here, after) = rest.split_at(count.min(rest.len()));
        rest = after;
        if !name.starts_with("pad") {
            sink.field(name, word_field(name, here));
        }
    }
}

/// A field of words, formatted according to its name.
fn word_field(name: &str, words: &[u64]) -> Value {
    match words {
        [number] if name.ends_with("_bytes") => match i64::try_from(*number) {
            Ok(_) => Value::Size(*number),
            Err(_) => Value::Signed(number.cast_signed()),
        },
        [seconds] if name.ends_with("_time_s") || name == "timestamp_s" => Value::Time(seconds.cast_signed()),
        [flags] if name.ends_with("flags") => Value::Hex(*flags),
        [number] => Value::Number(*number),
        words => match <[u64; 16]>::try_from(words) {
            Ok(pointer) => Blkptr::from_words(pointer).into(),
            Err(_) => Value::Numbers(words.to_vec()),
        },
    }
}

/// Shows the pairs of an nvlist as fields, nested lists as records.
pub fn nvlist(sink: &mut dyn Sink, list: &Nvlist) {
    for (name, value) in list.iter() {
        match value {
            NvValue::Nvlist(inner) => {
                sink.open(name);
                nvlist(sink, inner);
                sink.close();
            }
            NvValue::NvlistArray(lists) => {
                sink.list(name);
                for (i, inner) in lists.iter().enumerate() {
                    sink.open(&format!("{name}[{i}]"));
                    nvlist(sink, inner);
                    sink.close();
                }
                sink.close();
            }
            plain => sink.field(name, plain_pair(plain)),
        }
    }
}

fn plain_pair(value: &NvValue) -> Value {
    match value {
        NvValue::Boolean => Value::Flag(true),
        NvValue::BooleanValue(flag) => Value::Flag(*flag),
        NvValue::Byte(v) | NvValue::Uint8(v) => (*v).into(),
        NvValue::Uint16(v) => (*v).into(),
        NvValue::Uint32(v) => (*v).into(),
        NvValue::Uint64(v) => (*v).into(),
        NvValue::Int64(v) | NvValue::Hrtime(v) => (*v).into(),
        NvValue::Uint64Array(v) => Value::Numbers(v.clone()),
        NvValue::ByteArray(v) | NvValue::Uint8Array(v) => Value::Raw(v.clone()),
        NvValue::String(v) => Value::Text(String::from_utf8_lossy(v).into_owned()),
        other => Value::Text(other.to_string()),
    }
}

fn failure(sink: &mut dyn Sink, error: &dyn std::fmt::Display) {
    sink.field("error", Value::Text(error.to_string()));
}
