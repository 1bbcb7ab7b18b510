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
use crate::{Program, dialect, library};

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
        let main = chunk.into_function()?;
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
    globals.raw_set("tonumber", integers_only(&lua, globals.raw_get("tonumber")?)?)?;
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

/// `tonumber` without fractions, which the dialect does not know.
fn integers_only(lua: &Lua, tonumber: Function) -> mlua::Result<Function> {
    lua.create_function(move |_, arguments: MultiValue| {
        let number: mlua::Value = tonumber.call(arguments)?;
        Ok(if number.is_number() { mlua::Value::Nil } else { number })
    })
}

fn limit(lua: &Lua, program: &Program, counted: &Rc<Cell<u64>>, stop: &Arc<AtomicBool>) -> mlua::Result<()> {
    let (counted, stop, most) = (counted.clone(), stop.clone(), program.instructions);
    let every = HookTriggers::new().every_nth_instruction(INTERVAL);
    lua.set_global_hook(every, move |_, _| {
        if stop.load(Ordering::Acquire) {
            return Err(Error::runtime("Channel program was canceled."));
        }
        counted.set(counted.get() + u64::from(INTERVAL));
        match counted.get() > most {
            true => Err(Error::runtime("Channel program timed out.")),
            false => Ok(VmState::Continue),
        }
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
    let (mut cause, mut stack) = (error, None);
    while let Error::CallbackError { traceback, cause: inner } = cause {
        (cause, stack) = (inner, Some(traceback));
    }
    let text = match cause {
        Error::MemoryError(_) => return None,
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => text.clone(),
        other => other.to_string(),
    };
    Some(match stack {
        Some(stack) => worded(&format!("{text}\n{stack}"), ""),
        // The first frame is the handler that added the stack.
        None => worded(&text, "\t[C]: in "),
    })
}

/// Takes the frames of the interpreter's own surroundings away, the first one if it begins like `first`, and
/// words a division by zero.
fn worded(text: &str, first: &str) -> String {
    const OURS: &str = "\t[C]: in ?";
    let text = text.replace("attempt to perform 'n//0'", "attempt to divide by zero");
    let mut lines: Vec<&str> = text.lines().collect();
    while lines.last() == Some(&OURS) {
        lines.pop();
    }
    if let Some(at) = lines.iter().position(|line| *line == "stack traceback:")
        && lines.get(at + 1).is_some_and(|line| *line == OURS || !first.is_empty() && line.starts_with(first))
    {
        lines.remove(at + 1);
    }
    lines.join("\n")
}
