//! The functions of `zfs`, and the names of error numbers.
//!
//! Source: OpenZFS `zcp_synctask.c`, `zcp_iter.c`, `zcp_get.c`, zfs-program(8).

use std::rc::Rc;

use mlua::{Error, Function, IntoLuaMulti, Lua, MultiValue, Table, Value};

use crate::arguments::{Arguments, Signature};
use crate::calls::{Call, Change, Given, Listing, Port, Raised, Reply};
use crate::{Program, errno};

const DEBUG: Signature = Signature { name: "debug", strings: &["debug string"], keyword: None };
const EXISTS: Signature = Signature { name: "exists", strings: &["dataset"], keyword: None };
const GET_PROP: Signature = Signature { name: "get_prop", strings: &["dataset", "property"], keyword: None };

const ANY_HEAD: &[&str] = &["filesystem | volume"];
const ANY: &[&str] = &["filesystem | snapshot | volume"];

/// `zfs.list`.
const LISTS: [(&str, &[&str], Listing); 8] = [
    ("bookmarks", &["dataset"], Listing::Bookmarks),
    ("children", ANY_HEAD, Listing::Children),
    ("clones", &["snapshot"], Listing::Clones),
    ("holds", &["snapshot"], Listing::Holds),
    ("properties", ANY, Listing::UserProperties),
    ("snapshots", ANY_HEAD, Listing::Snapshots),
    ("system_properties", &["dataset"], Listing::SystemProperties),
    ("user_properties", ANY, Listing::UserProperties),
];

type MakeChange = fn(Arguments) -> Option<Change>;

/// `zfs.sync` and `zfs.check`.
const CHANGES: [(Signature, MakeChange); 9] = [
    (signature("bookmark", &["snapshot | bookmark", "bookmark"]), |given| {
        let [source, mark] = given.strings.try_into().ok()?;
        Some(Change::Bookmark(source, mark))
    }),
    (signature("clone", &["snapshot", "newdataset"]), |given| {
        let [snapshot, name] = given.strings.try_into().ok()?;
        Some(Change::Clone(snapshot, name))
    }),
    (Signature { name: "destroy", strings: &["filesystem | snapshot"], keyword: Some("defer") }, |given| {
        let [name] = given.strings.try_into().ok()?;
        Some(Change::Destroy { name, defer: given.keyword })
    }),
    (signature("inherit", &["dataset", "property"]), |given| {
        let [dataset, property] = given.strings.try_into().ok()?;
        Some(Change::Inherit { dataset, property })
    }),
    (signature("promote", &["clone"]), |given| {
        let [clone] = given.strings.try_into().ok()?;
        Some(Change::Promote(clone))
    }),
    (signature("rename_snapshot", &["filesystem | volume", "oldsnapname", "newsnapname"]), |given| {
        let [dataset, old, new] = given.strings.try_into().ok()?;
        Some(Change::RenameSnapshot { dataset, old, new })
    }),
    (signature("rollback", &["filesystem"]), |given| {
        let [dataset] = given.strings.try_into().ok()?;
        Some(Change::Rollback(dataset))
    }),
    (signature("set_prop", &["dataset", "property", "value"]), |given| {
        let [dataset, property, value] = given.strings.try_into().ok()?;
        Some(Change::SetProp { dataset, property, value })
    }),
    (signature("snapshot", &["filesystem@snapname | volume@snapname"]), |given| {
        let [snapshot] = given.strings.try_into().ok()?;
        Some(Change::Snapshot(snapshot))
    }),
];

/// OpenZFS's words for a change in a program with `-n`.
const READ_ONLY: &str = "running functions from the zfs.sync submodule requires passing sync=TRUE to \
                         lzc_channel_program() (i.e. do not specify the \"-n\" command line argument)";

const fn signature(name: &'static str, strings: &'static [&'static str]) -> Signature {
    Signature { name, strings, keyword: None }
}

/// Adds the globals.
pub(crate) fn install(lua: &Lua, program: &Program, port: Port) -> mlua::Result<()> {
    let (globals, port) = (lua.globals(), Rc::new(port));
    for (name, number) in errno::NAMES {
        globals.raw_set(name, number)?;
    }
    let zfs = lua.create_table()?;
    zfs.raw_set(DEBUG.name, function(lua, &port, DEBUG, |given| one(given).map(Call::Debug))?)?;
    zfs.raw_set(EXISTS.name, function(lua, &port, EXISTS, |given| one(given).map(Call::Exists))?)?;
    let property = |given: Arguments| {
        let [dataset, property] = given.strings.try_into().ok()?;
        Some(Call::Property { dataset, property })
    };
    zfs.raw_set(GET_PROP.name, function(lua, &port, GET_PROP, property)?)?;
    zfs.raw_set("list", lists(lua, &port)?)?;
    zfs.raw_set("check", changes(lua, &port, Makes::Nothing)?)?;
    let sync = if program.is_read_only { Makes::NothingAndSaysSo } else { Makes::Changes };
    zfs.raw_set("sync", changes(lua, &port, sync)?)?;
    globals.raw_set("zfs", zfs)
}

fn one(given: Arguments) -> Option<String> {
    given.strings.into_iter().next()
}

fn lists(lua: &Lua, port: &Rc<Port>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, strings, listing) in LISTS {
        let call = move |given: Arguments| one(given).map(|name| Call::List(listing, name));
        table.raw_set(name, function(lua, port, signature(name, strings), call)?)?;
    }
    Ok(table)
}

/// Effect of the functions of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Makes {
    Changes,
    Nothing,
    NothingAndSaysSo,
}

fn changes(lua: &Lua, port: &Rc<Port>, makes: Makes) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (signature, change) in CHANGES {
        let port = port.clone();
        let function = lua.create_function(move |lua, given: MultiValue| {
            let given = signature.read(given).map_err(|text| raise(lua, &text))?;
            let change = change(given).ok_or_else(|| raise(lua, "wrong arguments"))?;
            let call = Call::Change { change, is_made: makes == Makes::Changes };
            let reply = ask(lua, &port, signature, call)?;
            match makes {
                Makes::NothingAndSaysSo => Err(raise(lua, READ_ONLY)),
                _ => Ok(reply),
            }
        })?;
        table.raw_set(signature.name, function)?;
    }
    Ok(table)
}

fn function(
    lua: &Lua,
    port: &Rc<Port>,
    signature: Signature,
    call: impl Fn(Arguments) -> Option<Call> + 'static,
) -> mlua::Result<Function> {
    let port = port.clone();
    lua.create_function(move |lua, given: MultiValue| {
        let given = signature.read(given).map_err(|text| raise(lua, &text))?;
        let call = call(given).ok_or_else(|| raise(lua, "wrong arguments"))?;
        ask(lua, &port, signature, call)
    })
}

fn ask(lua: &Lua, port: &Port, signature: Signature, call: Call) -> mlua::Result<MultiValue> {
    match port.ask(call) {
        Ok(Reply::Values(values)) => given(lua, values),
        Ok(Reply::Rows(rows)) => {
            let mut rows = rows.into_iter();
            let next = lua.create_function_mut(move |lua, _: MultiValue| match rows.next() {
                Some(row) => given(lua, row),
                None => Ok(MultiValue::new()),
            })?;
            next.into_lua_multi(lua)
        }
        Err(Raised::Argument(why)) => {
            Err(raise(lua, &format!("bad argument #1 to '{}' ({why})", signature.name)))
        }
        Err(Raised::Error(text)) => Err(raise(lua, &text)),
    }
}

fn given(lua: &Lua, values: Vec<Given>) -> mlua::Result<MultiValue> {
    let value = |given| {
        Ok(match given {
            Given::Nil => Value::Nil,
            Given::Boolean(flag) => Value::Boolean(flag),
            Given::Number(number) => Value::Integer(number),
            Given::Text(text) => Value::String(lua.create_string(text)?),
            Given::Names(names) => Value::Table(lua.create_sequence_from(names)?),
        })
    };
    values.into_iter().map(value).collect()
}

/// An error with the place of the call.
pub(crate) fn raise(lua: &Lua, text: &str) -> Error {
    let place = |level| {
        lua.inspect_stack(level, |frame| {
            let line = frame.current_line()?;
            Some(format!("{}:{line}: ", frame.source().short_src?))
        })
    };
    // Level 0 is the function itself.
    Error::runtime(place(1).flatten().unwrap_or_default() + text)
}
