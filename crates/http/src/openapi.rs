//! OpenAPI 3.1 description of the API, for client generators.
//!
//! Idea: it is generated from the types of requests and answers, so it is complete. `docs/openapi.json` is
//! this document; a test compares them.

use serde_json::{Map, Value, json};

use crate::catalogue::{Catalogue, Verb};

/// Builds the document.
pub fn document(catalogue: &Catalogue) -> Value {
    let paths: Map<String, Value> =
        catalogue.verbs().map(|(at, verb)| (format!("/v1/{at}"), path(at, verb))).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cenote",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Every verb of `cenote` that works on open pools. With `Accept: \
                text/event-stream`, notes, progress and parts of the answer come as events while it runs; \
                with `Accept: application/octet-stream`, the bytes that it writes. Closing the connection \
                cancels the verb. A body of type `application/octet-stream` is its standard input; the \
                request's fields are then in the query.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"}
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": catalogue.shared,
            "responses": {"Failed": failed()}
        }
    })
}

fn notes() -> Value {
    json!({
        "type": "array",
        "description": "Messages; with a status: of parts of the work that failed.",
        "items": {
            "type": "object",
            "required": ["text"],
            "properties": {"text": {"type": "string"}, "status": {"type": "integer"}}
        }
    })
}

fn status() -> Value {
    json!({
        "type": "integer",
        "description": "Exit status: 0 done, 1 failed, 2 bad request, 3 damaged data found."
    })
}

fn failed() -> Value {
    json!({
        "description": "The verb failed before it answered (409), may not be run by this caller (403) or by \
            GET (405), or its request is wrong (400).",
        "content": {"application/json": {"schema": {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {"type": "string"}, "notes": notes(), "status": status()}
        }}}
    })
}

fn answer(verb: &Verb) -> Value {
    let mut properties = json!({"answer": verb.answer, "notes": notes(), "status": status()});
    if let Some(part) = &verb.part {
        properties["parts"] = json!({"type": "array", "items": part});
    }
    json!({
        "description": "The verb ran. `status` says how it went.",
        "content": {
            "application/json": {"schema": {
                "type": "object",
                "required": ["notes", "status"],
                "properties": properties
            }},
            "text/event-stream": {"schema": {"type": "string"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
        }
    })
}

fn path(at: &str, verb: &Verb) -> Value {
    let responses = json!({
        "200": answer(verb),
        "default": {"$ref": "#/components/responses/Failed"}
    });
    let id = |method: &str| format!("{method}-{}", at.replace('/', "-"));
    let post = json!({
        "operationId": id("post"),
        "summary": verb.about,
        "requestBody": {"content": {"application/json": {"schema": verb.request}}},
        "responses": responses
    });
    if !verb.may_look() {
        return json!({ "post": post });
    }
    let required: Vec<&Value> = verb.request["required"].as_array().into_iter().flatten().collect();
    let fields = verb.request["properties"].as_object().into_iter().flatten();
    let parameters: Vec<Value> = fields
        .map(|(name, schema)| {
            let is_required = required.iter().any(|required| *required == name);
            json!({"name": name, "in": "query", "required": is_required, "schema": schema})
        })
        .collect();
    let get = json!({
        "operationId": id("get"),
        "summary": verb.about,
        "parameters": parameters,
        "responses": responses
    });
    json!({"get": get, "post": post})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_that_of_this_version() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let document = serde_json::to_string_pretty(&document(&Catalogue::new())).unwrap() + "\n";
        if std::env::var_os("CENOTE_UPDATE").is_some() {
            std::fs::write(path, &document).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        assert!(checked_in == document, "docs/openapi.json is old: run this test with CENOTE_UPDATE=1");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(all) => all.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document(&Catalogue::new());
        let mut all = Vec::new();
        references(&document, &mut all);
        assert!(all.len() > 50);
        for reference in all {
            let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference}"));
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
