//! Arguments of the functions of `zfs`: required strings by position, and an optional boolean by name.
//!
//! Either all are positional, or a single table has them: `zfs.sync.destroy{"pool/a@s", defer=true}`.
//!
//! Source: OpenZFS `zcp.c` (`zcp_parse_args`, `zcp_args_error`), including the wording.

use mlua::{MultiValue, Table, Value};

use crate::value::type_name;

/// A function's arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    /// The function's name.
    pub name: &'static str,
    /// Descriptions of its strings.
    pub strings: &'static [&'static str],
    /// Name of its boolean.
    pub keyword: Option<&'static str>,
}

/// Arguments as given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub strings: Vec<String>,
    pub keyword: Option<bool>,
}

impl Signature {
    /// Reads a call's arguments.
    ///
    /// # Errors
    /// OpenZFS's text, which ends with the usage.
    pub(crate) fn read(&self, given: MultiValue) -> Result<Arguments, String> {
        let read = match &given.iter().collect::<Vec<_>>()[..] {
            [Value::Table(table)] => self.read_table(table),
            given => self.read_positions(given),
        };
        read.map_err(|why| format!("{why}: {}", self.usage()))
    }

    fn read_positions(&self, given: &[&Value]) -> Result<Arguments, String> {
        let mut strings = Vec::new();
        for at in 0..self.strings.len() {
            strings.push(string(at, given.get(at).copied())?);
        }
        match given.len() > strings.len() {
            true => Err("too many positional arguments".into()),
            false => Ok(Arguments { strings, keyword: None }),
        }
    }

    fn read_table(&self, table: &Table) -> Result<Arguments, String> {
        let get = |at: usize| table.raw_get::<Value>(at + 1).unwrap_or(Value::Nil);
        let mut strings = Vec::new();
        for at in 0..self.strings.len() {
            let value = Some(get(at)).filter(|value| !value.is_nil());
            strings.push(string(at, value.as_ref())?);
        }
        let mut keyword = None;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(|error| error.to_string())?;
            match key {
                Value::Integer(at)
                    if usize::try_from(at).is_ok_and(|at| (1..=strings.len()).contains(&at)) => {}
                Value::Integer(at) if at > 0 => return Err("too many positional arguments".into()),
                Value::String(name) => {
                    let name = name.to_string_lossy().to_string();
                    let known = self.keyword.filter(|known| *known == name);
                    let known = known.ok_or_else(|| format!("invalid kwarg '{name}'"))?;
                    let Value::Boolean(flag) = value else { return Err(wrong_keyword(known, &value)) };
                    keyword = Some(flag);
                }
                _ => return Err("kwarg keys must be strings".into()),
            }
        }
        Ok(Arguments { strings, keyword })
    }

    fn usage(&self) -> String {
        let strings = self.strings.iter().map(|what| format!("<{what}(string)>"));
        let all: Vec<String> = strings.chain(self.keyword.map(|name| format!("{name}=(boolean)"))).collect();
        format!("{}{{{}}}", self.name, all.join(", "))
    }
}

fn wrong_keyword(name: &str, value: &Value) -> String {
    format!("kwarg '{name}' wrong type (is '{}', expected 'boolean')", type_name(value))
}

fn string(at: usize, value: Option<&Value>) -> Result<String, String> {
    match value {
        None => Err("too few arguments".into()),
        Some(Value::String(text)) => Ok(text.to_string_lossy().to_string()),
        Some(other) => {
            let found = type_name(other);
            Err(format!("arg {} wrong type (is '{found}', expected 'string')", at + 1))
        }
    }
}
