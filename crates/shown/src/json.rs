//! JSON of answers: the schema that the verbs of `zpool` and `zfs` share, and its text.
//!
//! ```text
//!   {"output_version": {"command": "zfs list", "vers_major": 0, "vers_minor": 1},
//!    "datasets": {NAME: {..., "properties":
//!      {NAME: {"value": TEXT, "source": {"type": "LOCAL", "data": "-"}}}}}}
//! ```
//!
//! The text has no invisible characters: those a terminal would not show become `\uNNNN`.
//!
//! Source: OpenZFS 2.3 `zfs_json_schema`, `zprop_nvlist_one_property`.

mod array;

use cenote_control::answers::Source;
use cenote_control::text::escape_terminal;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::unseen::visible_json;
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use array::Array;

use crate::numbers::Numbers;

/// A value on one line.
///
/// # Errors
/// It can't be JSON, such as a map whose keys are not text.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(visible_json(serde_json::to_string(value)?) + "\n")
}

/// A value on indented lines, for reading.
///
/// # Errors
/// As for [`line`].
pub fn lines(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(visible_json(serde_json::to_string_pretty(value)?) + "\n")
}

/// A whole document: its entries under the command's root key.
pub fn document(command: &str, root: &str, entries: Map<String, Value>) -> Value {
    json!({"output_version": version(command), root: entries})
}

/// Which command wrote a document, and the schema version.
pub fn version(command: &str) -> Value {
    json!({"command": command, "vers_major": 0, "vers_minor": 1})
}

/// A property with its source.
pub fn property(value: &str, source: &Source, numbers: Numbers) -> Value {
    let (kind, data) = match source {
        Source::None => ("NONE", "-"),
        Source::Default => ("DEFAULT", "-"),
        Source::Local => ("LOCAL", "-"),
        Source::Received => ("RECEIVED", "-"),
        Source::Temporary => ("TEMPORARY", "-"),
        Source::Inherited(from) => ("INHERITED", from.as_str()),
    };
    json!({"value": numbers.value(value), "source": {"type": kind, "data": data}})
}

/// An nvlist as a JSON object; non-UTF-8 bytes of a string become `\xNN`, byte arrays become hex digits.
pub fn nvlist(list: &Nvlist) -> Value {
    list.iter().map(|(name, value)| (name.to_owned(), nvalue(value))).collect::<Map<String, Value>>().into()
}

fn nvalue(value: &NvValue) -> Value {
    let lists = |lists: &[Nvlist]| lists.iter().map(nvlist).collect();
    match value {
        NvValue::Uint64(number) => json!(number),
        NvValue::Int64(number) | NvValue::Hrtime(number) => json!(number),
        NvValue::Uint32(number) => json!(number),
        NvValue::Int32(number) => json!(number),
        NvValue::Boolean => json!(true),
        NvValue::BooleanValue(flag) => json!(flag),
        NvValue::String(text) => json!(escape_terminal(text)),
        NvValue::StringArray(texts) => texts.iter().map(|text| escape_terminal(text)).collect(),
        NvValue::Uint64Array(numbers) => json!(numbers),
        NvValue::ByteArray(bytes) => {
            json!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        NvValue::Nvlist(list) => nvlist(list),
        NvValue::NvlistArray(all) => lists(all),
        NvValue::Byte(number) => json!(number),
        NvValue::Int16(number) => json!(number),
        NvValue::Uint16(number) => json!(number),
        NvValue::Int16Array(numbers) => json!(numbers),
        NvValue::Uint16Array(numbers) => json!(numbers),
        NvValue::Int32Array(numbers) => json!(numbers),
        NvValue::Uint32Array(numbers) => json!(numbers),
        NvValue::Int64Array(numbers) => json!(numbers),
        NvValue::Int8(number) => json!(number),
        NvValue::Uint8(number) => json!(number),
        NvValue::Int8Array(numbers) => json!(numbers),
        NvValue::Uint8Array(numbers) => json!(numbers),
        NvValue::BooleanArray(flags) => json!(flags),
        NvValue::Double(number) => json!(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_has_the_shape_of_openzfs() {
        let source = Source::Inherited("tank".into());
        let numbers = Numbers { as_numbers: true, ..Numbers::default() };
        assert_eq!(
            property("24", &source, Numbers::default()),
            json!({"value": "24", "source": {"type": "INHERITED", "data": "tank"}})
        );
        assert_eq!(property("24", &Source::None, numbers)["value"], 24);
        assert_eq!(property("on", &Source::None, numbers)["value"], "on");
    }
}
