//! The interpreter: Lua with OpenZFS's libraries and limits alone.
//!
//! Idea: everything not listed here is taken away, so that no function of a new interpreter appears by
//! itself. Every hundred instructions a hook looks at the limit and at the caller. Lua refuses memory beyond
//! the limit, its own included. A script can't catch an error: `pcall` is missing. A coroutine can, but the
//! hook strikes again.
//!
//! Source: OpenZFS `zcp.c` (`zcp_eval`, `zcp_eval_impl`, `zcp_lua_counthook`), `lbaselib.c`, including the
//! wording.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlua::chunk::ChunkMode;
use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, VmState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::calls::Port;
use crate::value::Value;
use crate::words::First;
use crate::{Program, dialect, library, numbers, words};

/// Instructions between looks at the limit.
const INTERVAL: u32 = 100;

/// Functions and libraries of `_G`.
const BASE: [&str; 21] = [
    "_G",
    "_VERSION",
    "assert",
    "collectgarbage",
    "coroutine",
    "error",
    "getmetatable",
    "ipairs",
    "next",
    "pairs",
    "rawequal",
    "rawget",
    "rawlen",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
];
/// Functions of the libraries.
const LIBRARIES: [(&str, &[&str]); 3] = [
    ("coroutine", &["create", "resume", "running", "status", "wrap", "yield"]),
    (
        "string",
        &[
            "byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep", "reverse",
            "sub", "upper",
        ],
    ),
    ("table", &["concat", "insert", "pack", "remove", "sort", "unpack"]),
];

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// With this value, if any.
    Returned(Option<Value>),
    /// With an error.
    Failed(Failure),
}

/// A program's failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The error, with the stack if any.
    pub text: String,
    /// Instructions run, if it ran too many.
    pub instructions: Option<u64>,
}

impl Ended {
    /// A failure.
    pub(crate) fn failed(text: impl Into<String>) -> Ended {
        Ended::Failed(Failure { text: text.into(), instructions: None })
    }
}

/// Runs a program on this thread.
pub(crate) fn execute(program: &Program, port: Port, stop: &Arc<AtomicBool>) -> Ended {
    let script = match dialect::translate(&program.script) {
        Ok(script) => script,
        Err(text) => return Ended::failed(text),
    };
    let counted = Rc::new(Cell::new(0));
    let prepared = prepare(program, port).and_then(|lua| {
        // Text alone: compiled code could do anything.
        let chunk = lua.load(script).set_name(dialect::CHUNK).set_mode(ChunkMode::Text);
        let main = chunk.into_function().map_err(|error| Error::SyntaxError {
            message: words::compiled(&parts_of(&error).0),
            incomplete_input: false,
        })?;
        limit(&lua, program, &counted, stop)?;
        Ok((lua, main))
    });
    match prepared {
        Ok((lua, main)) => call(&lua, &main, program, &counted),
        Err(Error::SyntaxError { message, .. }) => Ended::failed(message),
        Err(error) => failure(&error, &counted, program),
    }
}

fn prepare(program: &Program, port: Port) -> mlua::Result<Lua> {
    let libraries = StdLib::COROUTINE | StdLib::STRING | StdLib::TABLE;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    let globals = lua.globals();
    keep(&globals, &BASE)?;
    for (name, functions) in LIBRARIES {
        keep(&globals.raw_get(name)?, functions)?;
    }
    globals.raw_set("_VERSION", "Lua 5.2")?;
    numbers::install(&lua)?;
    coroutines(&lua)?;
    // OpenZFS's interpreter has no table of loaded libraries, and so never names functions after them.
    lua.unset_named_registry_value("_LOADED")?;
    library::install(&lua, program, port)?;
    Ok(lua)
}

/// Removes all but these.
fn keep(table: &Table, names: &[&str]) -> mlua::Result<()> {
    let mut gone = Vec::new();
    for pair in table.pairs::<mlua::Value, mlua::Value>() {
        let (key, _) = pair?;
        let is_kept = key.as_string().is_some_and(|key| names.iter().any(|name| *key == *name));
        if !is_kept {
            gone.push(key);
        }
    }
    gone.into_iter().try_for_each(|key| table.raw_set(key, mlua::Value::Nil))
}

/// A coroutine's error is text, even if a function of `zfs` raised it.
fn coroutines(lua: &Lua) -> mlua::Result<()> {
    let library: Table = lua.globals().raw_get("coroutine")?;
    let resume: Function = library.raw_get("resume")?;
    let resume = lua.create_function(move |lua, given: MultiValue| {
        let mut values: MultiValue = resume.call(given)?;
        for value in values.iter_mut() {
            if let mlua::Value::Error(error) = value {
                *value = mlua::Value::String(lua.create_string(parts_of(error).0)?);
            }
        }
        Ok(values)
    })?;
    library.raw_set("resume", resume)
}

fn limit(lua: &Lua, program: &Program, counted: &Rc<Cell<u64>>, stop: &Arc<AtomicBool>) -> mlua::Result<()> {
    let (counted, stop, most) = (counted.clone(), stop.clone(), program.instructions);
    let every = HookTriggers::new().every_nth_instruction(INTERVAL);
    lua.set_global_hook(every, move |lua, _| {
        counted.set(counted.get() + u64::from(INTERVAL));
        let why = match (stop.load(Ordering::Acquire), counted.get() > most) {
            (true, _) => "Channel program was canceled.",
            (false, true) => "Channel program timed out.",
            (false, false) => return Ok(VmState::Continue),
        };
        let traced = lua.traceback(Some(why), 0).map(|traced| traced.to_string_lossy());
        Err(Error::runtime(traced.unwrap_or_else(|_| why.to_owned())))
    })?;
    let memory = usize::try_from(program.memory_bytes).unwrap_or(usize::MAX);
    if lua.used_memory() > memory {
        return Err(Error::MemoryError(String::new()));
    }
    lua.set_memory_limit(memory).map(drop)
}

fn call(lua: &Lua, main: &Function, program: &Program, counted: &Cell<u64>) -> Ended {
    let called = arguments(lua, program).and_then(|arguments| main.call::<MultiValue>(arguments));
    // The result is converted without limits.
    lua.remove_global_hook();
    if let Err(error) = lua.set_memory_limit(0) {
        return failure(&error, counted, program);
    }
    let values = match called {
        Ok(values) => values,
        Err(error) => return failure(&error, counted, program),
    };
    match &values.iter().collect::<Vec<_>>()[..] {
        [] => Ended::Returned(None),
        [value] => match Value::of_lua("return", value) {
            Ok(value) => Ended::Returned(Some(value)),
            Err(text) => Ended::failed(text),
        },
        _ => Ended::failed("Multiple return values not supported"),
    }
}

/// `{argv = {...}}`
fn arguments(lua: &Lua, program: &Program) -> mlua::Result<Table> {
    let arguments = lua.create_table()?;
    arguments.raw_set("argv", program.arguments.as_slice())?;
    Ok(arguments)
}

fn failure(error: &Error, counted: &Cell<u64>, program: &Program) -> Ended {
    let is_late = counted.get() > program.instructions;
    let text = match text_of(error) {
        Some(text) => text,
        None => return Ended::failed("Memory limit exhausted."),
    };
    Ended::Failed(Failure { text, instructions: is_late.then(|| counted.get()) })
}

/// The error with its stack, as OpenZFS words it; `None`: memory was exhausted.
fn text_of(error: &Error) -> Option<String> {
    match parts_of(error) {
        (_, _, true) => None,
        (text, Some(stack), _) => Some(words::traced(&format!("{text}\n{stack}"), First::Raiser)),
        (text, None, _) => Some(words::traced(&text, First::Handler)),
    }
}

/// An error's text, its stack if that is apart, and whether memory was exhausted.
fn parts_of(error: &Error) -> (String, Option<&str>, bool) {
    let (mut cause, mut stack) = (error, None);
    while let Error::CallbackError { traceback, cause: inner } = cause {
        (cause, stack) = (inner, Some(traceback.as_str()));
    }
    match cause {
        Error::MemoryError(text) => (text.clone(), stack, true),
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => (text.clone(), stack, false),
        other => (other.to_string(), stack, false),
    }
}
