//! Arithmetic that Lua would do with fractions: powers, and operators with numbers in strings.
//!
//! Idea: Lua 5.4 leaves arithmetic with strings to their metamethods. These here read strings as OpenZFS
//! does, with integers, octal included. An operand with a metamethod of its own comes before them.
//!
//! Source: OpenZFS `lcompat.c` (`lcompat_pow`, `lcompat_strtoll`), `lvm.c` (`luaV_arith`), `lbaselib.c`
//! (`luaB_tonumber`), including the wording.

use mlua::{Function, Lua, LuaString, MultiValue, ObjectLike, Table, Value};

use crate::dialect::{POWER, number_in};
use crate::library::raise;
use crate::value::type_name;

/// An operation; an error is its text.
type Operation = fn(i64, i64) -> Result<i64, &'static str>;

/// Metamethods of strings.
const OPERATIONS: [(&str, Operation); 6] = [
    ("__add", |a, b| Ok(a.wrapping_add(b))),
    ("__sub", |a, b| Ok(a.wrapping_sub(b))),
    ("__mul", |a, b| Ok(a.wrapping_mul(b))),
    ("__idiv", divided),
    ("__mod", |a, b| match b {
        0 => Err("attempt to perform 'n%%0'"),
        b => Ok(a.wrapping_sub(divided(a, b)?.wrapping_mul(b))),
    }),
    ("__unm", |a, _| Ok(a.wrapping_neg())),
];

/// Installs them.
pub(crate) fn install(lua: &Lua) -> mlua::Result<()> {
    let globals = lua.globals();
    let of_strings = lua.type_metatable::<LuaString>().map_or_else(|| lua.create_table(), Ok)?;
    // Lua's own work with fractions.
    for (name, _) in OPERATIONS.iter().chain(&[("__pow", power as Operation), ("__div", divided)]) {
        of_strings.raw_set(*name, Value::Nil)?;
    }
    for (name, operation) in OPERATIONS {
        of_strings.raw_set(name, operator(lua, name, operation)?)?;
    }
    lua.set_type_metatable::<LuaString>(Some(of_strings));
    globals.raw_get::<Table>("string")?.raw_set(POWER, operator(lua, "__pow", power)?)?;
    globals.raw_set("tonumber", lua.create_function(to_number)?)?;
    let collect: Function = globals.raw_get("collectgarbage")?;
    let collect = lua.create_function(move |_, given: MultiValue| {
        Ok(match collect.call(given)? {
            // The memory in use.
            Value::Number(number) => Value::Integer(number as i64),
            other => other,
        })
    })?;
    globals.raw_set("collectgarbage", collect)
}

fn power(base: i64, exponent: i64) -> Result<i64, &'static str> {
    let (mut power, mut factor, mut left) = (i64::from(exponent >= 0), base, exponent.max(0));
    while left > 0 {
        if left & 1 == 1 {
            power = power.wrapping_mul(factor);
        }
        factor = factor.wrapping_mul(factor);
        left >>= 1;
    }
    Ok(power)
}

/// Rounds down.
fn divided(a: i64, b: i64) -> Result<i64, &'static str> {
    if b == 0 {
        return Err("attempt to divide by zero");
    }
    let (quotient, rest) = (a.wrapping_div(b), a.wrapping_rem(b));
    Ok(if rest != 0 && (rest < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::Number(number) => Some(*number as i64),
        Value::String(text) => number_in(&text.as_bytes()),
        _ => None,
    }
}

fn operator(lua: &Lua, name: &'static str, operation: Operation) -> mlua::Result<Function> {
    lua.create_function(move |lua, (a, b): (Value, Value)| {
        if let (Some(a), Some(b)) = (integer(&a), integer(&b)) {
            return operation(a, b).map(Value::Integer).map_err(|text| raise(lua, text));
        }
        let own = |operand: &Value| match operand {
            Value::Table(table) => table.metatable().map_or(Ok(Value::Nil), |own| own.raw_get(name)),
            _ => Ok(Value::Nil),
        };
        let own = match own(&a)? {
            Value::Nil => own(&b)?,
            found => found,
        };
        match own {
            Value::Nil => {}
            Value::Function(own) => return own.call((a, b)),
            Value::Table(own) => return own.call((a, b)),
            other => return Err(raise(lua, &format!("attempt to call a {} value", type_name(&other)))),
        }
        let wrong = type_name(if integer(&a).is_some() { &b } else { &a });
        Err(raise(lua, &format!("attempt to perform arithmetic on a {wrong} value")))
    })
}

fn to_number(lua: &Lua, given: MultiValue) -> mlua::Result<Option<i64>> {
    let wrong = |at: usize, why: &str| raise(lua, &format!("bad argument #{at} to 'tonumber' ({why})"));
    let (value, base) = match (given.front(), given.get(1)) {
        (None, _) => return Err(wrong(1, "value expected")),
        (Some(value), None | Some(Value::Nil)) => return Ok(integer(value)),
        (Some(value), Some(base)) => (value, base),
    };
    let text = match value {
        Value::String(text) => text.to_string_lossy(),
        Value::Integer(number) => number.to_string(),
        other => return Err(wrong(1, &format!("string expected, got {}", type_name(other)))),
    };
    let found = integer(base);
    let base = found.ok_or_else(|| wrong(2, &format!("number expected, got {}", type_name(base))))?;
    let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base));
    let base = base.ok_or_else(|| wrong(2, "base out of range"))?;
    Ok(in_base(&text, base))
}

/// A number in a base; it wraps.
fn in_base(text: &str, base: u32) -> Option<i64> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut number = 0i64;
    for digit in digits.chars() {
        number = number.wrapping_mul(base.into()).wrapping_add(digit.to_digit(base)?.into());
    }
    (!digits.is_empty()).then_some(if is_negative { number.wrapping_neg() } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_and_quotients_are_integers() {
        let table = [((2, 10), 1024), ((-3, 3), -27), ((2, 63), i64::MIN), ((2, 64), 0), ((2, -1), 0)];
        for ((base, exponent), expected) in table {
            assert_eq!(power(base, exponent), Ok(expected), "{base} ^ {exponent}");
        }
        for ((a, b), expected) in [((7, 2), 3), ((-7, 2), -4), ((7, -2), -4), ((i64::MIN, -1), i64::MIN)] {
            assert_eq!(divided(a, b), Ok(expected), "{a} / {b}");
        }
        assert_eq!(divided(1, 0), Err("attempt to divide by zero"));
    }

    #[test]
    fn numbers_in_a_base_wrap() {
        assert_eq!(in_base("  -1z  ", 36), Some(-71));
        assert_eq!(in_base(&"1".repeat(42), 2), Some((1 << 42) - 1));
        assert_eq!(in_base(&"f".repeat(17), 16), Some(-1));
        assert_eq!((in_base("fFfa", 15), in_base("", 8), in_base("- 1", 10)), (None, None, None));
    }
}
