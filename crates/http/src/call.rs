//! Converts request fields to a command line.
//!
//! Idea: every field is checked against the command's description before anything runs. Every word from
//! outside follows `--name=` or `--`, so no value can pass for an option.

use serde_json::{Map, Value};

use crate::catalogue::{Input, Kind, Verb};

/// Most values in all fields together.
const VALUES_MAX: usize = 100_000;

/// Reason for rejecting fields.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum BadFields {
    #[error("there is no field '{name}' in {command}; /v1/openapi.json lists its fields")]
    Unknown { name: String, command: String },
    #[error("field '{name}' takes {wanted}")]
    WrongType { name: String, wanted: &'static str },
    #[error("field '{name}' is missing")]
    Missing { name: String },
    #[error("too many values")]
    TooMany,
}

/// Returns the command's words, without the program's name. `in_json`: request JSON output.
///
/// # Errors
/// A field is unknown, missing, or of another type.
pub fn words(verb: &Verb, fields: &Map<String, Value>, in_json: bool) -> Result<Vec<String>, BadFields> {
    let command = || verb.words.join(" ");
    if let Some(name) = fields.keys().find(|name| verb.inputs.iter().all(|input| input.name != **name)) {
        return Err(BadFields::Unknown { name: name.clone(), command: command() });
    }
    let mut words = verb.words.clone();
    words.extend(in_json.then(|| "--json".to_owned()));
    let mut operands = Vec::new();
    for input in &verb.inputs {
        let Some(value) = fields.get(&input.name).filter(|value| !value.is_null()) else {
            if input.is_required {
                return Err(BadFields::Missing { name: input.name.clone() });
            }
            continue;
        };
        match &input.kind {
            Kind::Flag(typed) => {
                words.extend(std::iter::repeat_n(typed.clone(), times(input, value)?));
            }
            Kind::Option(typed) if typed.starts_with("--") => {
                words.extend(texts(input, value)?.into_iter().map(|text| format!("{typed}={text}")));
            }
            Kind::Option(typed) => {
                words.extend(texts(input, value)?.into_iter().map(|text| format!("{typed}{text}")));
            }
            Kind::Operand => operands.extend(texts(input, value)?),
        }
    }
    if words.len() + operands.len() > VALUES_MAX {
        return Err(BadFields::TooMany);
    }
    words.push("--".into());
    words.extend(operands);
    Ok(words)
}

/// Number of times to pass a flag: `true`, or a number for repeatable flags.
fn times(input: &Input, value: &Value) -> Result<usize, BadFields> {
    let wanted = if input.is_list { "true, false or a small number" } else { "true or false" };
    let wrong = || BadFields::WrongType { name: input.name.clone(), wanted };
    match value {
        Value::Bool(on) => Ok((*on).into()),
        Value::String(text) if text == "true" || text.is_empty() => Ok(1),
        Value::String(text) if text == "false" => Ok(0),
        Value::Number(count) if input.is_list => {
            count.as_u64().filter(|count| *count < 10).map(|count| count as usize).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

/// A field's values as text.
fn texts(input: &Input, value: &Value) -> Result<Vec<String>, BadFields> {
    let wanted = if input.is_list { "a text or a list of texts" } else { "one text or number" };
    let wrong = || BadFields::WrongType { name: input.name.clone(), wanted };
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(on) => Ok(on.to_string()),
        _ => Err(wrong()),
    };
    let found: Vec<String> = match value {
        Value::Array(values) if input.is_list => values.iter().map(text).collect::<Result<_, _>>()?,
        one => vec![text(one)?],
    };
    match found.iter().any(|text| text.contains('\0')) {
        true => Err(wrong()),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verb() -> Verb {
        let input = |name: &str, kind, is_list, is_required| Input {
            name: name.into(),
            about: String::new(),
            kind,
            is_list,
            is_required,
            values: Vec::new(),
        };
        Verb {
            words: vec!["zfs".into(), "snapshot".into()],
            about: String::new(),
            looks: crate::Looks::Never,
            inputs: vec![
                input("recursive", Kind::Flag("-r".into()), false, false),
                input("property", Kind::Option("-o".into()), true, false),
                input("depth", Kind::Option("--depth".into()), false, false),
                input("snapshots", Kind::Operand, true, true),
            ],
        }
    }

    fn called(fields: Value) -> Result<String, String> {
        let words = words(&verb(), fields.as_object().unwrap(), true);
        words.map(|words| words.join(" ")).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_become_options_and_operands() {
        let fields = json!({"recursive": true, "property": ["a=1", "b=2"], "depth": 3, "snapshots": "t@x"});
        assert_eq!(called(fields).unwrap(), "zfs snapshot --json -r -oa=1 -ob=2 --depth=3 -- t@x");
        let query = json!({"recursive": "false", "snapshots": ["-r", "t@x"]});
        assert_eq!(
            called(query).unwrap(),
            "zfs snapshot --json -- -r t@x",
            "no operand passes for an option"
        );
    }

    #[test]
    fn what_no_command_takes_is_refused() {
        for (fields, why) in [
            (json!({"snapshots": "t@x", "disks": "/etc"}), "no field 'disks'"),
            (json!({}), "'snapshots' is missing"),
            (json!({"snapshots": {"a": 1}}), "a text or a list"),
            (json!({"snapshots": ["a", ["b"]]}), "a text or a list"),
            (json!({"snapshots": "a\u{0}b"}), "a text or a list"),
            (json!({"snapshots": "a", "recursive": 3}), "true or false"),
            (json!({"snapshots": "a", "depth": [1]}), "one text or number"),
        ] {
            let refused = called(fields).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
