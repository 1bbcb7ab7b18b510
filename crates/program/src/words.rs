//! Words of Lua 5.4's errors and stacks, as OpenZFS's Lua 5.2 has them.
//!
//! | Lua 5.4 | OpenZFS |
//! |---|---|
//! | `attempt to index a nil value (global 'x')` | `attempt to index global 'x' (a nil value)` |
//! | `attempt to perform 'n//0'` | `attempt to divide by zero` |
//! | `C stack overflow` in the compiler | `too many C levels (limit is 200)` |
//! | `in field 'f'`, `in global 'f'` ... | `in function 'f'` |
//! | `...`, `(skipping 3 levels)` | `...` |
//! | an error that is no text, such as `table: 0x7f3a` | the stack alone |
//!
//! Frames of the interpreter's own surroundings are left out.
//!
//! Source: Lua 5.2 `ldebug.c` (`luaG_typeerror`), `lauxlib.c` (`luaL_traceback`).

use crate::dialect::{CHUNK, POWER};

/// Kinds of names in Lua's errors and stacks.
const KINDS: [&str; 6] = ["global", "local", "method", "field", "upvalue", "constant"];
/// Values without text.
const TEXTLESS: [&str; 4] = ["table: 0x", "function: 0x", "thread: 0x", "userdata: 0x"];
const HEADER: &str = "stack traceback:";

/// An error of the compiler.
pub(crate) fn compiled(text: &str) -> String {
    match text.contains("C stack overflow") {
        true => format!("[string \"{CHUNK}\"]: too many C levels (limit is 200)"),
        false => text.to_owned(),
    }
}

/// The first frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// Lua's handler that adds the stack, under the name of the failed operation.
    Handler,
    /// The function that raised the error.
    Raiser,
}

/// An error with its stack.
pub(crate) fn traced(text: &str, first: First) -> String {
    let mut lines: Vec<String> = Vec::new();
    let (mut is_stack, mut is_own) = (false, false);
    for line in text.lines() {
        if is_stack {
            if !(is_own && is_own_frame(line, first)) {
                lines.push(frame(line));
            }
            is_own = false;
        } else if line == HEADER {
            (is_stack, is_own) = (true, true);
            lines.push(line.to_owned());
        } else {
            lines.push(message(line));
        }
    }
    while is_stack && lines.last().is_some_and(|line| line == "\t[C]: in ?") {
        lines.pop();
    }
    if lines.get(1).is_some_and(|second| second == HEADER) && is_textless(&lines[0]) {
        lines.remove(0);
    }
    lines.join("\n")
}

fn is_textless(line: &str) -> bool {
    ["nil", "true", "false"].contains(&line) || TEXTLESS.iter().any(|start| line.starts_with(start))
}

fn is_own_frame(line: &str, first: First) -> bool {
    let is_operator = line.contains(": in metamethod '") || line.ends_with(&format!(" '{POWER}'"));
    line.starts_with("\t[C]: in ") && (first == First::Handler || is_operator || line == "\t[C]: in ?")
}

fn frame(line: &str) -> String {
    if line.starts_with("\t...\t(skipping ") {
        return "\t...".into();
    }
    for kind in KINDS {
        if let Some((place, name)) = line.split_once(&format!(": in {kind} '")) {
            return format!("{place}: in function '{name}");
        }
    }
    line.to_owned()
}

fn message(line: &str) -> String {
    let line = line.replace("attempt to perform 'n//0'", "attempt to divide by zero");
    let parts = || {
        let (before, named) = line.strip_suffix("')")?.rsplit_once(" value (")?;
        let (before, of_type) = before.rsplit_once(" a ")?;
        let (kind, name) = named.split_once(" '")?;
        let is_known = before.contains("attempt to ") && KINDS.contains(&kind);
        is_known.then(|| format!("{before} {kind} '{name}' (a {of_type} value)"))
    };
    parts().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_named_before_their_types() {
        for (said, expected) in [
            (
                "x:1: attempt to index a nil value (global 'x')",
                "x:1: attempt to index global 'x' (a nil value)",
            ),
            ("attempt to call a nil value (method 'f')", "attempt to call method 'f' (a nil value)"),
            (
                "attempt to perform arithmetic on a table value (local 't')",
                "attempt to perform arithmetic on local 't' (a table value)",
            ),
            ("attempt to call a nil value", "attempt to call a nil value"),
            ("I like a nil value (global 'x')", "I like a nil value (global 'x')"),
            ("x:2: attempt to perform 'n//0'", "x:2: attempt to divide by zero"),
        ] {
            assert_eq!(traced(said, First::Raiser), expected);
        }
    }

    #[test]
    fn stacks_have_the_frames_of_the_script() {
        let said = "table: 0x7f3a\nstack traceback:\n\t[C]: in ?\n\t[C]: in global 'error'\n\
                    \tx:1: in upvalue 'f'\n\
                    \t...\t(skipping 3 levels)\n\tx:2: in main chunk\n\t[C]: in ?\n\t[C]: in ?";
        let frames = "\t[C]: in function 'error'\n\tx:1: in function 'f'\n\t...\n\tx:2: in main chunk";
        assert_eq!(traced(said, First::Handler), format!("stack traceback:\n{frames}"));
        let own = "why\nstack traceback:\n\t[C]: in metamethod 'add'\n\tx:2: in main chunk\n\t[C]: in ?";
        assert_eq!(traced(own, First::Raiser), "why\nstack traceback:\n\tx:2: in main chunk");
        let limit = "[string \"channel program\"]: too many C levels (limit is 200)";
        assert_eq!(compiled("C stack overflow"), limit);
    }
}
