//! OpenAPI 3.1 description of the API, for client generators.
//!
//! `docs/openapi.json` is this document; a test of the program compares them.

use serde_json::{Map, Value, json};

use crate::catalogue::{Catalogue, Input, Kind, Looks, Verb};

/// Builds the document.
pub fn document(catalogue: &Catalogue) -> Value {
    let paths: Map<String, Value> =
        catalogue.verbs().iter().map(|verb| (format!("/v1/{}", verb.words.join("/")), path(verb))).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cenote",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Every command of `cenote` that works on open pools. A request's fields are the \
                command's options and operands. The answer has the documents that the command prints with \
                `--json`; with `Accept: text/event-stream` they come as events while it runs, with \
                `Accept: application/octet-stream` as plain bytes. Closing the connection cancels the \
                command. A body of type `application/octet-stream` is the command's standard input; fields \
                are then in the query.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"}
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Answer": {
                    "type": "object",
                    "required": ["output", "messages", "status"],
                    "properties": {
                        "output": {"type": "array", "items": {}, "description": "The command's documents."},
                        "messages": {"type": "array", "items": {}, "description": "The command's messages."},
                        "status": {
                            "type": "integer",
                            "description": "Exit status: 0 done, 1 failed, 2 bad usage, 3 damaged data found."
                        }
                    }
                }
            },
            "responses": {
                "Answer": {
                    "description": "The command ran. `status` is its exit status.",
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Answer"}},
                        "text/event-stream": {"schema": {"type": "string"}},
                        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                    }
                },
                "Failed": {
                    "description": "The command failed before it wrote anything (409), or its fields are \
                        wrong (400).",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
                }
            }
        }
    })
}

fn path(verb: &Verb) -> Value {
    let responses = json!({
        "200": {"$ref": "#/components/responses/Answer"},
        "400": {"$ref": "#/components/responses/Failed"},
        "409": {"$ref": "#/components/responses/Failed"}
    });
    let id = |method: &str| format!("{method}-{}", verb.words.join("-"));
    let fields: Map<String, Value> =
        verb.inputs.iter().map(|input| (input.name.clone(), schema(input, true))).collect();
    let required: Vec<&str> =
        verb.inputs.iter().filter(|input| input.is_required).map(|input| &*input.name).collect();
    let mut object = json!({"type": "object", "properties": fields, "additionalProperties": false});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    let post = json!({
        "operationId": id("post"),
        "summary": verb.about,
        "requestBody": {"content": {"application/json": {"schema": object}}},
        "responses": responses
    });
    if verb.looks == Looks::Never {
        return json!({ "post": post });
    }
    let parameters: Vec<Value> = verb
        .inputs
        .iter()
        .map(|input| {
            json!({
                "name": input.name,
                "in": "query",
                "description": input.about,
                "required": input.is_required,
                "schema": schema(input, false)
            })
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

fn schema(input: &Input, with_about: bool) -> Value {
    let mut schema = match input.kind {
        Kind::Flag(_) if input.is_list => json!({"type": ["boolean", "integer"]}),
        Kind::Flag(_) => json!({"type": "boolean"}),
        Kind::Option(_) | Kind::Operand => {
            let mut text = json!({"type": "string"});
            if !input.values.is_empty() {
                text["enum"] = json!(input.values);
            }
            if input.is_list { json!({"type": "array", "items": text}) } else { text }
        }
    };
    if with_about && !input.about.is_empty() {
        schema["description"] = json!(input.about);
    }
    schema
}
