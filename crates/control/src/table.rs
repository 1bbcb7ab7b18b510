//! The table of all verbs: the rights that each needs, where it runs, whether it only reads, and its types.
//!
//! Idea: the command line asks here (does a daemon run it?), the socket and HTTP (which code runs this
//! name?), and the API's description (which fields?). A verb's declaration carries its row; its name and the
//! JSON request suffice to run it. The verbs in [`OF_PROGRAMS`] run in their user's program alone, and are
//! offered nowhere else.

mod verbs;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use schemars::Schema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::Value;

use crate::error::ControlError;
use crate::session::{Session, pool_of};
use crate::verb::{Answered, InParts, Looks, Needs, Runs, Verb};

pub use crate::remote::Json;
use verbs::OF_PROGRAMS;
pub use verbs::VERBS;

/// A verb, without its types.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// As typed.
    pub name: &'static str,
    /// Rights it needs.
    pub needs: Needs,
    /// Whether it only reads.
    pub looks: Looks,
    /// Where it runs.
    pub runs: Runs,
    /// See [`Verb::SEES_ALL`].
    pub sees_all: bool,
    run: Run,
    only_looks: fn(&[u8]) -> Result<(), ControlError>,
    types: fn(&mut Types) -> Shape,
}

type Run = for<'a> fn(&'a Session, &'a [u8]) -> LocalBoxFuture<'a, Result<Json, ControlError>>;

/// JSON schemas of a verb.
#[derive(Debug)]
pub struct Shape {
    /// Request; complete.
    pub request: Schema,
    /// Answer; refers to [`Types::shared`].
    pub answer: Schema,
    /// Parts of the answer, if it comes in parts; likewise.
    pub part: Option<Schema>,
}

/// Generates the schemas of verbs, and collects those that they share.
#[derive(Debug)]
pub struct Types {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Types {
    /// Shared schemas will be found at this JSON pointer of the document.
    pub fn at(pointer: &str) -> Types {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = pointer.to_owned().into();
            settings.meta_schema = None;
        });
        let mut inline = settings.clone();
        inline.inline_subschemas = true;
        Types {
            requests: inline.for_deserialize().into_generator(),
            answers: settings.for_serialize().into_generator(),
        }
    }

    /// The schemas shared by answers, by name.
    pub fn shared(mut self) -> serde_json::Map<String, serde_json::Value> {
        self.answers.take_definitions(true)
    }
}

/// The row of a verb.
pub fn row(name: &str) -> Option<&'static Row> {
    VERBS.binary_search_by(|row| row.name.cmp(name)).ok().map(|at| &VERBS[at])
}

/// The row of a verb, or of one that only its user's program runs.
pub(crate) fn row_here(name: &str) -> Option<&'static Row> {
    row(name).or_else(|| OF_PROGRAMS.iter().find(|row| row.name == name))
}

impl Row {
    const fn of<V: Verb>() -> Row {
        Row {
            name: V::NAME,
            needs: V::NEEDS,
            looks: V::LOOKS,
            runs: V::RUNS,
            sees_all: V::SEES_ALL,
            run: run::<V>,
            only_looks: only_looks::<V>,
            types: shape::<V>,
        }
    }

    const fn in_parts<V: InParts>() -> Row {
        let part: fn(&mut Types) -> Shape = |types| {
            let part = Some(types.answers.subschema_for::<V::Part>());
            Shape { part, ..shape::<V>(types) }
        };
        Row { types: part, ..Row::of::<V>() }
    }

    /// Runs its request for the session's caller.
    ///
    /// # Errors
    /// An invalid request; errors of [`Session::run`].
    pub async fn run(&self, session: &Session, request: &[u8]) -> Result<Json, ControlError> {
        (self.run)(session, request).await
    }

    /// Checks that a request only reads, and shows no file contents.
    ///
    /// # Errors
    /// [`ControlError::MayOnlyLook`]; an invalid request.
    pub fn only_looks(&self, request: &[u8]) -> Result<(), ControlError> {
        (self.only_looks)(request)
    }

    /// The types of its request and answer.
    pub fn shape(&self, types: &mut Types) -> Shape {
        (self.types)(types)
    }
}

fn run<'a, V: Verb>(
    session: &'a Session,
    request: &'a [u8],
) -> LocalBoxFuture<'a, Result<Json, ControlError>> {
    async move {
        let done = session.run_here(read::<V>(request)?).await;
        let Answered { answer, outcome } = done.map_err(|error| without_pool(error, V::NAME, request))?;
        Ok((serde_json::to_vec(&answer).map_err(wrong::<V>)?, outcome))
    }
    .boxed_local()
}

fn only_looks<V: Verb>(request: &[u8]) -> Result<(), ControlError> {
    if read::<V>(request)?.only_looks() { Ok(()) } else { Err(ControlError::MayOnlyLook) }
}

fn wrong<V: Verb>(error: serde_json::Error) -> ControlError {
    ControlError::Usage(format!("{}: this is not its request: {error}", V::NAME))
}

fn read<V: Verb>(request: &[u8]) -> Result<V, ControlError> {
    let mut unknown = None;
    let mut json = serde_json::Deserializer::from_slice(request);
    let read = serde_ignored::deserialize(&mut json, |field| _ = unknown.get_or_insert(field.to_string()));
    let request: V = read.and_then(|request| json.end().map(|()| request)).map_err(wrong::<V>)?;
    match unknown {
        Some(field) => Err(ControlError::Usage(format!("{}: its request has no field '{field}'", V::NAME))),
        None => Ok(request),
    }
}

/// A missing pool, in the words of a verb of `zfs`: it is asked for datasets.
fn without_pool(error: ControlError, verb: &str, request: &[u8]) -> ControlError {
    let ControlError::NoPool { pool, .. } = &error else { return error };
    if !verb.starts_with("zfs ") {
        return error;
    }
    let request: Value = serde_json::from_slice(request).unwrap_or_default();
    match dataset_of(&request, pool).map(str::to_owned) {
        Some(name) if verb == "zfs create" => {
            ControlError::NotFound(format!("cannot create '{name}': no such pool '{pool}'"))
        }
        Some(name) => error.of_dataset(&name),
        None => error,
    }
}

/// The first name of a dataset of a pool in a request.
fn dataset_of<'a>(request: &'a Value, pool: &str) -> Option<&'a str> {
    match request {
        Value::String(name) => Some(&name[..]).filter(|name| pool_of(name) == pool),
        Value::Array(values) => values.iter().find_map(|value| dataset_of(value, pool)),
        Value::Object(fields) => fields.values().find_map(|value| dataset_of(value, pool)),
        _ => None,
    }
}

fn shape<V: Verb>(types: &mut Types) -> Shape {
    Shape {
        request: V::json_schema(&mut types.requests),
        answer: types.answers.subschema_for::<V::Answer>(),
        part: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_found_by_name() {
        assert!(VERBS.is_sorted_by(|a, b| a.name < b.name));
        assert!(row("zfs wait").is_some_and(|row| row.needs == Needs::Nothing));
        assert!(row("zfs explode").is_none());
    }

    #[test]
    fn a_verb_that_shows_content_or_changes_anything_is_not_for_everybody() {
        for row in VERBS.iter().filter(|row| row.needs == Needs::Nothing) {
            assert_eq!(row.looks, Looks::Always, "{}", row.name);
        }
    }
}
