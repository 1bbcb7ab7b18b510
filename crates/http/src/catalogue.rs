//! The verbs of the API, with the schemas of their requests and answers.

use std::collections::BTreeMap;

use cenote_control::table::{Row, Types, VERBS};
use cenote_control::verb::{Looks, Runs};
use serde_json::{Map, Value};

/// Place of shared schemas in the document.
const SHARED: &str = "/components/schemas";

/// All verbs, by path.
#[derive(Debug)]
pub struct Catalogue {
    verbs: BTreeMap<String, Verb>,
    /// Schemas that answers share, by name.
    pub shared: Map<String, Value>,
}

/// A verb.
#[derive(Debug)]
pub struct Verb {
    /// Its row in the table of verbs.
    pub row: &'static Row,
    /// Summary, from the request's documentation.
    pub about: String,
    /// Schema of the request.
    pub request: Value,
    /// Schema of the answer.
    pub answer: Value,
    /// Schema of its parts, if the answer comes in parts.
    pub part: Option<Value>,
}

impl Catalogue {
    /// The verbs that work without a terminal.
    pub fn new() -> Catalogue {
        let mut types = Types::at(SHARED);
        let mut verbs = BTreeMap::new();
        for row in VERBS.iter().filter(|row| row.runs != Runs::AtTerminal) {
            let shape = row.shape(&mut types);
            let mut request = plain(shape.request.to_value());
            let about = request.get_mut("description").map(Value::take);
            let about = about.and_then(|about| about.as_str().map(str::to_owned)).unwrap_or_default();
            if let Some(fields) = request.as_object_mut() {
                fields.remove("title");
                fields.remove("description");
            }
            let (answer, part) =
                (plain(shape.answer.to_value()), shape.part.map(|part| plain(part.to_value())));
            verbs.insert(row.name.replace(' ', "/"), Verb { row, about, request, answer, part });
        }
        let shared = types.shared().into_iter().map(|(name, schema)| (name, plain(schema))).collect();
        Catalogue { verbs, shared }
    }

    /// The verb at a path: `zfs/list`.
    pub fn get(&self, path: &str) -> Option<&Verb> {
        self.verbs.get(path)
    }

    /// All verbs with their paths.
    pub fn verbs(&self) -> impl Iterator<Item = (&str, &Verb)> {
        self.verbs.iter().map(|(path, verb)| (path.as_str(), verb))
    }
}

impl Default for Catalogue {
    fn default() -> Catalogue {
        Catalogue::new()
    }
}

impl Verb {
    /// Whether it may answer GET, depending on the request.
    pub fn may_look(&self) -> bool {
        self.row.looks != Looks::Never
    }
}

/// Descriptions are documentation comments: their links to code mean nothing here.
fn plain(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => {
                        *text = text.replace("[`", "`").replace("`]", "`").replace('\n', " ");
                    }
                    value => *value = plain(value.take()),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| *value = plain(value.take())),
        _ => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_verb_says_what_it_does_and_no_terminal_is_needed() {
        let catalogue = Catalogue::new();
        assert!(catalogue.verbs().count() > 70);
        for (path, verb) in catalogue.verbs() {
            assert!(verb.about.ends_with('.'), "{path}: {}", verb.about);
            assert_eq!(verb.request["type"], "object", "{path}");
        }
        assert!(catalogue.get("top").is_none() && catalogue.get("zfs/list").is_some());
    }

    /// The page must never send a GET answered with 405, not even at its sign-in.
    #[test]
    fn the_page_looks_only_at_verbs_that_always_answer_get() {
        let catalogue = Catalogue::new();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let scripts = files.filter(|path| path.extension().is_some_and(|end| end == "js"));
        let text: String = scripts.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        let calls = ["look(\"", "watch(\""].into_iter().flat_map(|call| text.split(call).skip(1));
        let asked: BTreeSet<&str> = calls.filter_map(|rest| rest.split('"').next()).collect();
        assert!(asked.len() > 6 && asked.contains("zpool/version"), "{asked:?}");
        for path in asked {
            let verb = catalogue.get(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(verb.row.looks, Looks::Always, "{path}");
        }
    }
}
