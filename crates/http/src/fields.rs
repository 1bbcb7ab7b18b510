//! A query's fields as a request in JSON.
//!
//! Idea: the schema of a request tells the type of each field, so `recursive=true` becomes a boolean and
//! `names=tank`, repeated or not, a list. A field of another type is written as JSON.

use serde_json::{Map, Value};

const FIELDS_MAX: usize = 10_000;

/// Reason for rejecting a query.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum BadQuery {
    #[error("field '{name}' takes {wanted}")]
    WrongType { name: String, wanted: &'static str },
    #[error("field '{name}' is given more than once")]
    Repeated { name: String },
    #[error("the query has too many fields")]
    TooMany,
}

/// The request of a query, by the request's schema. An unknown field is left to the verb, which refuses it.
///
/// # Errors
/// A field has another type than the schema says.
pub fn request(schema: &Value, query: &str) -> Result<Value, BadQuery> {
    let mut fields = Map::new();
    for (count, (name, text)) in form_urlencoded::parse(query.as_bytes()).enumerate() {
        if count == FIELDS_MAX {
            return Err(BadQuery::TooMany);
        }
        let field = &schema["properties"][&*name];
        let items = field.get("items").filter(|_| is(field, "array"));
        let all = || serde_json::from_str(&text).ok().filter(Value::is_array);
        let value = match items {
            // All at once, or none.
            Some(_) if let Some(all) = all() => all,
            items => value(items.unwrap_or(field), &name, &text)?,
        };
        match fields.get_mut(&*name) {
            Some(Value::Array(all)) if items.is_some() => all.push(value),
            Some(_) => return Err(BadQuery::Repeated { name: name.into_owned() }),
            None if items.is_some() && !value.is_array() => {
                fields.insert(name.into_owned(), Value::Array(vec![value]));
            }
            None => _ = fields.insert(name.into_owned(), value),
        }
    }
    Ok(Value::Object(fields))
}

/// Whether a schema allows this JSON type.
fn is(schema: &Value, name: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == name,
        Value::Array(all) => all.iter().any(|one| one == name),
        _ => false,
    }
}

fn value(schema: &Value, name: &str, text: &str) -> Result<Value, BadQuery> {
    let wrong = |wanted| BadQuery::WrongType { name: name.to_owned(), wanted };
    let json = || serde_json::from_str::<Value>(text).ok();
    if is(schema, "string") {
        return Ok(text.into());
    }
    if is(schema, "boolean") {
        return match text {
            "true" | "" => Ok(true.into()),
            "false" => Ok(false.into()),
            _ => Err(wrong("true or false")),
        };
    }
    if is(schema, "integer") || is(schema, "number") {
        return json().filter(Value::is_number).ok_or(wrong("a number"));
    }
    // A choice among words is a text; anything else is JSON.
    Ok(json().filter(|value| !value.is_number()).unwrap_or_else(|| text.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalogue::Catalogue;

    #[test]
    fn a_query_becomes_a_request() {
        let catalogue = Catalogue::new();
        let asked = |path: &str, query| request(&catalogue.get(path).unwrap().request, query);
        let list =
            asked("zfs/list", "names=tank%2Ffs&properties=name&properties=used&scope=%7B%22depth%22:1%7D");
        let expected = json!({"names": ["tank/fs"], "properties": ["name", "used"], "scope": {"depth": 1}});
        assert_eq!(list, Ok(expected));
        let status = asked("zpool/status", "damaged=true&dedup=&pools=1");
        assert_eq!(status, Ok(json!({"damaged": true, "dedup": true, "pools": ["1"]})));
        assert_eq!(asked("zpool/status", "pools=[]"), Ok(json!({"pools": []})));
        assert_eq!(asked("zpool/events", "after=7&order=await"), Ok(json!({"after": 7, "order": "await"})));
        for (query, why) in
            [("damaged=maybe", "takes true or false"), ("damaged=true&damaged=true", "more than once")]
        {
            let refused = asked("zpool/status", query).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        assert_eq!(asked("zpool/status", "x=1"), Ok(json!({"x": "1"})), "the verb refuses it");
    }
}
