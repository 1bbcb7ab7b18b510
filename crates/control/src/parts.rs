//! Long answers, which come in parts.
//!
//! Idea: a listing may have more rows than memory holds. Its verb gives each part to the caller at once
//! ([`crate::Caller::give`]), as a value in one program, as JSON from a daemon. A slow caller slows the verb.

use std::any::Any;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ControlError;

/// A part of any type.
pub struct Part(Form);

enum Form {
    Value(Box<dyn Value>),
    Json(Vec<u8>),
}

trait Value: Send {
    fn json(&self) -> serde_json::Result<Vec<u8>>;
    fn any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Serialize + Send + 'static> Value for T {
    fn json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    fn any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Part {
    /// A part of a verb that runs here.
    pub fn of(value: impl Serialize + Send + 'static) -> Part {
        Part(Form::Value(Box::new(value)))
    }

    /// A part from a daemon.
    pub fn of_json(json: Vec<u8>) -> Part {
        Part(Form::Json(json))
    }

    /// As JSON.
    ///
    /// # Errors
    /// The part has no JSON form.
    pub fn into_json(self) -> Result<Vec<u8>, ControlError> {
        match self.0 {
            Form::Json(json) => Ok(json),
            Form::Value(value) => value.json().map_err(|error| unreadable(&error)),
        }
    }

    /// The value.
    ///
    /// # Errors
    /// It belongs to another verb, or the daemon has another version.
    pub(crate) fn read<T: DeserializeOwned + 'static>(self) -> Result<T, ControlError> {
        match self.0 {
            Form::Json(json) => serde_json::from_slice(&json).map_err(|error| unreadable(&error)),
            Form::Value(value) => match value.any().downcast() {
                Ok(value) => Ok(*value),
                Err(_) => Err(unreadable(&"it belongs to another verb")),
            },
        }
    }
}

fn unreadable(why: &dyn std::fmt::Display) -> ControlError {
    ControlError::Refused(format!("a part of the answer can't be read: {why}"))
}

/// Takes parts.
#[derive(Clone)]
pub struct Taker {
    take: Arc<Take>,
    takes_json: bool,
}

type Take = dyn Fn(Part) -> Result<(), ControlError> + Send + Sync;

impl Taker {
    /// A taker of values.
    pub fn of_values(take: impl Fn(Part) -> Result<(), ControlError> + Send + Sync + 'static) -> Taker {
        Taker { take: Arc::new(take), takes_json: false }
    }

    /// A taker of JSON.
    pub fn of_json(take: impl Fn(Vec<u8>) -> Result<(), ControlError> + Send + Sync + 'static) -> Taker {
        Taker { take: Arc::new(move |part| take(part.into_json()?)), takes_json: true }
    }

    /// Encodes the part as this taker needs it, so that workers can encode in parallel.
    pub fn ready(&self, part: Part) -> Result<Part, ControlError> {
        if self.takes_json { part.into_json().map(Part::of_json) } else { Ok(part) }
    }

    /// Hands it over. Blocks until taken.
    ///
    /// # Errors
    /// No more is taken: the verb must end.
    pub fn take(&self, part: Part) -> Result<(), ControlError> {
        (self.take)(part)
    }
}
