//! The language of channel programs, their results, and the limits that end them.

use cenote_program::{DEFAULT_MEMORY_BYTES, Ended, Program, Value, run};

use super::{failure, program, returned, table, text, with_pool};

/// A number or a string.
struct Short(Value);

impl From<i64> for Short {
    fn from(number: i64) -> Short {
        Short(Value::Number(number))
    }
}

impl From<&str> for Short {
    fn from(written: &str) -> Short {
        Short(text(written))
    }
}

#[test]
fn the_language_is_that_of_openzfs() {
    with_pool(async |engine| {
        let script = "
            assert(7 / 2 == 3 and -7 / 2 == -4 and -7 % 3 == 2)
            assert(9223372036854775807 + 1 == -9223372036854775808)
            assert(18446744073709551615 + 1 == (-18446744073709551616))
            assert(tonumber('12') == 12 and tonumber('1.5') == nil and tonumber('-012') == -10)
            assert(tonumber('ff', 16) == 0xff and tonumber({}) == nil)
            assert(2^53 .. '' == '9007199254740992' and -2^2^3 == -256 and 2^64 == 0 and 2^-1 == 0)
            local t = setmetatable({}, {__div = function() return 'div' end,
                                        __pow = function() return 'pow' end,
                                        __add = function(a, b) return type(a) .. type(b) end})
            assert(t / 2 == 'div' and 2 / t == 'div' and t ^ 2 == 'pow' and '2' ^ t == 'pow')
            assert('2' + t == 'stringtable' and t + '2' == 'tablestring')
            return 1";
        assert_eq!(returned(run(&engine, program(script)).await.unwrap()), Value::Number(1));
        let strings =
            "return {'10' + 1, ('7' - 1) .. '', '3' * '4', '7' / 2, '7' % '4', -'2', '010' + 0, '2' ^ '3'}";
        let expected =
            [11.into(), "6".into(), 12.into(), 3.into(), 3.into(), (-2).into(), 8.into(), 8.into()];
        let expected = (1..).zip(expected).map(|(at, value): (u32, Short)| (at.to_string(), value.0));
        let strings = returned(run(&engine, program(strings)).await.unwrap());
        assert_eq!(strings, Value::Table(expected.collect()));
        let gone = "
            local there = {}
            for _, name in ipairs({'pcall', 'xpcall', 'print', 'load', 'dofile', 'require', 'os', 'io',
                                   'math', 'debug', 'utf8', 'package'}) do
                if _G[name] ~= nil then table.insert(there, name) end
            end
            for _, name in ipairs({'dump', 'pack', 'unpack'}) do
                if string[name] ~= nil then table.insert(there, name) end
            end
            if table.move or coroutine.isyieldable then table.insert(there, 'newer') end
            return {there, ..., _VERSION}";
        let argv = table(&[("1", text("one")), ("2", text("two"))]);
        let given = table(&[("1", table(&[])), ("2", table(&[("argv", argv)])), ("3", text("Lua 5.2"))]);
        assert_eq!(returned(run(&engine, program(gone)).await.unwrap()), given);
        let zero = failure(run(&engine, program("\nreturn 1 / 0")).await.unwrap());
        assert_eq!(
            zero.text,
            "[string \"channel program\"]:2: attempt to divide by zero\nstack traceback:\n\t\
             [string \"channel program\"]:2: in main chunk"
        );
    });
}

#[test]
fn results_that_are_no_name_value_lists_are_refused() {
    with_pool(async |engine| {
        for (script, why) in [
            ("return function() end", "Invalid value type 'function' for key 'return'"),
            ("return {[{}]=1}", "Invalid key type 'table' in table"),
            ("return {[1]=true, ['1']=false}", "Collision of key '1' in table"),
            ("return 1, 2", "Multiple return values not supported"),
            ("t = {}; t.t = t; return t", "Maximum table depth (20) exceeded for table"),
            ("retrn 1", "[string \"channel program\"]:1: syntax error near '1'"),
        ] {
            let failed = failure(run(&engine, program(script)).await.unwrap());
            assert_eq!((failed.text.as_str(), failed.instructions), (why, None), "{script}");
        }
        assert_eq!(returned(run(&engine, program("return nil")).await.unwrap()), Value::Nil);
        assert_eq!(run(&engine, program("")).await.unwrap().ended, Ended::Returned(None));
    });
}

/// The text of errors has their place and the stack, as OpenZFS words them.
#[test]
fn errors_are_worded_as_in_openzfs() {
    with_pool(async |engine| {
        let chunk = "[string \"channel program\"]";
        let main = format!("\t{chunk}:1: in main chunk");
        let raised = format!("stack traceback:\n\t[C]: in function 'error'\n{main}");
        let asserted = format!("stack traceback:\n\t[C]: in function 'assert'\n{main}");
        let traced = format!("stack traceback:\n{main}");
        for (script, expected) in [
            ("error('why')", format!("{chunk}:1: why\n{raised}")),
            ("error(0)", format!("0\n{raised}")),
            ("error()", raised.clone()),
            ("error({})", raised.clone()),
            ("error(true)", raised.clone()),
            ("assert(false)", format!("{chunk}:1: assertion failed!\n{asserted}")),
            ("x = nil x.y = 1", format!("{chunk}:1: attempt to index global 'x' (a nil value)\n{traced}")),
            ("abc()", format!("{chunk}:1: attempt to call global 'abc' (a nil value)\n{traced}")),
            ("x = 2 ^ {}", format!("{chunk}:1: attempt to perform arithmetic on a table value\n{traced}")),
            ("x = 'a' + 1", format!("{chunk}:1: attempt to perform arithmetic on a string value\n{traced}")),
            ("x = '1' / 0", format!("{chunk}:1: attempt to divide by zero\n{traced}")),
            (
                "zfs.exists('tank')",
                format!(
                    "{chunk}:1: dataset 'tank' is not in the target pool\nstack traceback:\n\t[C]: \
                     in function 'exists'\n{main}"
                ),
            ),
        ] {
            assert_eq!(failure(run(&engine, program(script)).await.unwrap()).text, expected, "{script}");
        }
        let nested = format!("{}{}", "if true then ".repeat(250), "end ".repeat(250));
        let failed = failure(run(&engine, program(&nested)).await.unwrap());
        assert!(failed.text.contains("too many C levels"), "{}", failed.text);
        // A coroutine takes the place of pcall.
        let caught = "return {coroutine.resume(coroutine.create(function() zfs.list.holds('lua/a') end))}";
        let why = format!("{chunk}:1: bad argument #1 to 'holds' (lua/a is not a snapshot)");
        let expected = table(&[("1", Value::Boolean(false)), ("2", text(&why))]);
        assert_eq!(returned(run(&engine, program(caught)).await.unwrap()), expected);
    });
}

/// Each level has a buffer of its own on the interpreter's stack.
#[test]
fn calls_through_c_functions_end_before_the_stack_does() {
    with_pool(async |engine| {
        for script in [
            "function f(s) return string.gsub(s, '.', f) end return f('foo')",
            "m = {} t = setmetatable({}, m) m.__tostring = function() return ('%s'):format(t) end
             tostring(t)",
            "function f() return coroutine.wrap(f)() end f()",
            "m = {} t = setmetatable({}, m) m.__index = function(_, i) return table.concat(t, '', 1, 2) end
             return table.concat(t, '', 1, 2)",
        ] {
            let failed = failure(run(&engine, program(script)).await.unwrap());
            assert!(failed.text.contains("C stack overflow"), "{}", failed.text);
        }
        let nested = "function f() return coroutine.resume(coroutine.create(f)) end return (f())";
        assert_eq!(returned(run(&engine, program(nested)).await.unwrap()), Value::Boolean(true));
        let deep = "function f(n) if n == 0 then return 0 end return f(n - 1) + 1 end return f('10000')";
        assert_eq!(returned(run(&engine, program(deep)).await.unwrap()), Value::Number(10_000));
    });
}

#[test]
fn limits_end_a_program() {
    with_pool(async |engine| {
        let endless = Program { instructions: 10_000, ..program("while true do end") };
        let failed = failure(run(&engine, endless).await.unwrap());
        let place = "[string \"channel program\"]:1: in main chunk";
        assert_eq!(failed.text, format!("Channel program timed out.\nstack traceback:\n\t{place}"));
        assert!(failed.instructions.is_some_and(|count| (9_900..=10_100).contains(&count)));
        let within = "
            local busy = coroutine.create(function() while true do end end)
            coroutine.resume(busy)
            while true do end";
        let failed = failure(run(&engine, Program { instructions: 1000, ..program(within) }).await.unwrap());
        assert!(failed.instructions.is_some(), "{}", failed.text);
        let grows = "a = {} i = 0 while true do i = i + 1 a[i] = 'entry ' .. i end";
        for memory_bytes in [1, 100_000, DEFAULT_MEMORY_BYTES] {
            let failed = failure(run(&engine, Program { memory_bytes, ..program(grows) }).await.unwrap());
            assert_eq!(failed.text, "Memory limit exhausted.");
        }
        let small = Program { memory_bytes: 100_000, ..program("s = 'test' s = s .. s .. s return s") };
        assert_eq!(returned(run(&engine, small).await.unwrap()), text("testtesttest"));
    });
}
