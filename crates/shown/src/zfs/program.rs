//! `zfs program`: the return value of a channel program.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_channel_program`), `libnvpair.c` (`dump_nvlist`),
//! `libnvpair_json.c`, including the wording.

use cenote_control::zfs::program::{Returned, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};

const INDENT: usize = 4;

/// As text.
pub fn text(returned: &Returned) -> String {
    match &returned.value {
        None => "Channel program fully executed and did not produce output.\n".into(),
        Some(value) => {
            let mut out = "Channel program fully executed and produced output:\n".to_owned();
            add(&mut out, "return", value, INDENT);
            out
        }
    }
}

fn add(out: &mut String, key: &str, value: &Value, indent: usize) {
    let start = format!("{}{key}", " ".repeat(indent));
    match value {
        Value::Nil => *out += &format!("{start}\n"),
        Value::Boolean(flag) => *out += &format!("{start}: {flag}\n"),
        Value::Number(number) => *out += &format!("{start}: {number}\n"),
        Value::Text(text) => *out += &format!("{start}: '{text}'\n"),
        Value::Table(entries) => {
            *out += &format!("{start}:\n");
            entries.iter().for_each(|(key, value)| add(out, key, value, indent + INDENT));
        }
    }
}

/// As JSON, with the keys of tables in the text's order.
pub fn json(returned: &Returned) -> impl Serialize {
    let entry = returned.value.as_ref().map(|value| ("return", Json(value)));
    Object(entry.into_iter().collect())
}

struct Object<'a>(Vec<(&'a str, Json<'a>)>);

struct Json<'a>(&'a Value);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.end()
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            // A name without a value.
            Value::Nil => serializer.serialize_bool(true),
            Value::Boolean(flag) => serializer.serialize_bool(*flag),
            Value::Number(number) => serializer.serialize_i64(*number),
            Value::Text(text) => serializer.serialize_str(text),
            Value::Table(entries) => {
                let entry = |(key, value)| (String::as_str(key), Json(value));
                Object(entries.iter().map(|(key, value)| entry((key, value))).collect()).serialize(serializer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_laid_out_as_name_value_lists() {
        let entries = vec![
            ("2".to_owned(), Value::Text("two".into())),
            ("10".to_owned(), Value::Boolean(false)),
            ("none".to_owned(), Value::Table(Vec::new())),
        ];
        let returned = Returned { value: Some(Value::Table(entries)) };
        let head = "Channel program fully executed and produced output:\n";
        let lines = "    return:\n        2: 'two'\n        10: false\n        none:\n";
        assert_eq!(text(&returned), format!("{head}{lines}"));
        let written = serde_json::to_string(&json(&returned)).unwrap();
        assert_eq!(written, r#"{"return":{"2":"two","10":false,"none":{}}}"#);
        assert_eq!(text(&Returned { value: Some(Value::Nil) }), format!("{head}    return\n"));
        assert_eq!(serde_json::to_string(&json(&Returned { value: None })).unwrap(), "{}");
    }
}
