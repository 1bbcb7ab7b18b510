//! Values that a program returns, as OpenZFS converts them to name-value lists.
//!
//! Keys become text: numbers in decimal, booleans by name. Two keys that become the same text are an error. A
//! table's entries are ordered by number, then by text, so that a program's output is the same each time.
//!
//! Source: OpenZFS `zcp.c` (`zcp_table_to_nvlist`, `zcp_lua_to_nvlist_impl`), including the wording.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `ZCP_NVLIST_MAX_DEPTH`.
const MAX_DEPTH: usize = 20;

/// A returned value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ProgramValue")]
pub enum Value {
    /// `nil`.
    Nil,
    /// Boolean.
    Boolean(bool),
    /// Number.
    Number(i64),
    /// String.
    Text(String),
    /// Table: keys and values.
    Table(Vec<(String, Value)>),
}

/// Order of keys.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(i64),
    Text(String),
}

impl Value {
    /// Converts Lua's return value, under that key.
    ///
    /// # Errors
    /// OpenZFS's text for a value that can't be converted.
    pub(crate) fn of_lua(key: &str, value: &mlua::Value) -> Result<Value, String> {
        convert(key, value, 0)
    }
}

fn convert(key: &str, value: &mlua::Value, depth: usize) -> Result<Value, String> {
    match value {
        mlua::Value::Nil => Ok(Value::Nil),
        mlua::Value::Boolean(flag) => Ok(Value::Boolean(*flag)),
        mlua::Value::Integer(number) => Ok(Value::Number(*number)),
        // Only strings that look like fractions become such numbers, by arithmetic.
        mlua::Value::Number(number) => Ok(Value::Number(*number as i64)),
        mlua::Value::String(text) => Ok(Value::Text(text.to_string_lossy().to_string())),
        mlua::Value::Table(table) => convert_table(table, depth).map(Value::Table),
        other => Err(format!("Invalid value type '{}' for key '{key}'", type_name(other))),
    }
}

fn convert_table(table: &mlua::Table, depth: usize) -> Result<Vec<(String, Value)>, String> {
    let mut entries: BTreeMap<Key, (String, Value)> = BTreeMap::new();
    let mut names = BTreeMap::new();
    for pair in table.pairs::<mlua::Value, mlua::Value>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        let (order, name) = match &key {
            mlua::Value::String(text) => {
                let text = text.to_string_lossy().to_string();
                (Key::Text(text.clone()), text)
            }
            mlua::Value::Boolean(flag) => (Key::Text(flag.to_string()), flag.to_string()),
            mlua::Value::Integer(number) => (Key::Number(*number), number.to_string()),
            mlua::Value::Number(number) => (Key::Number(*number as i64), (*number as i64).to_string()),
            other => return Err(format!("Invalid key type '{}' in table", type_name(other))),
        };
        if names.insert(name.clone(), ()).is_some() {
            return Err(format!("Collision of key '{name}' in table"));
        }
        if depth >= MAX_DEPTH {
            return Err(format!("Maximum table depth ({MAX_DEPTH}) exceeded for table"));
        }
        let value = convert(&name, &value, depth + 1)?;
        entries.insert(order, (name, value));
    }
    Ok(entries.into_values().collect())
}

/// The type's name in Lua 5.2.
pub(crate) fn type_name(value: &mlua::Value) -> &'static str {
    match value {
        mlua::Value::Integer(_) | mlua::Value::Number(_) => "number",
        mlua::Value::Error(_) | mlua::Value::LightUserData(_) => "userdata",
        other => other.type_name(),
    }
}
