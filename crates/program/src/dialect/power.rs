//! The operator `^`, which is a call here, because Lua's own makes fractions.
//!
//! Idea: `a ^ b` becomes `(("")["^"](a, b))`: the method `^` of all strings needs no name that a script could
//! hide, and the outer parentheses keep the call from becoming a tail call, which would lose its line. The
//! operands are found from the tokens, without a parser:
//!
//! ```text
//!   x.y[i]:m(z) ^ -u.v ^ 2
//!   `---------´   `------´   the right one: signs, a primary expression, the powers that follow
//!   the left one: back over brackets, arguments and names to where the primary expression begins
//! ```
//!
//! A `^` in a place where Lua allows none, or beside a function's body, stays: Lua reports it.
//!
//! Source: Lua 5.2 `lparser.c` (`subexpr`, `suffixedexp`).

use std::borrow::Cow;

use super::tokens::{Kind, Token};

/// Name of the function, as a field of the library of strings.
pub(crate) const POWER: &str = "^";
const OPEN: &str = "((\"\")[\"^\"](";
const CLOSE: &str = "))";

const KEYWORDS: [&str; 22] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// The script of these tokens with their translations.
pub(super) fn joined(tokens: &[Token<'_>], translated: &[Cow<'_, str>]) -> String {
    with_calls(tokens, translated, (OPEN, CLOSE))
}

fn with_calls(tokens: &[Token<'_>], translated: &[Cow<'_, str>], (open, close): (&str, &str)) -> String {
    let places = (0..tokens.len()).filter(|at| tokens[*at].kind != Kind::Blank);
    let (places, code): (Vec<usize>, Vec<Token<'_>>) = places.map(|at| (at, tokens[at])).unzip();
    let code = Code { partners: partners(&code), tokens: code };
    let (mut opened, mut closed) = (vec![0; tokens.len()], vec![0; tokens.len()]);
    let (mut is_call, mut ends) = (vec![false; tokens.len()], vec![None; code.tokens.len()]);
    // The last one first: `a ^ b ^ c` is `a ^ (b ^ c)`.
    for at in (0..code.tokens.len()).rev().filter(|at| code.is(*at, "^")) {
        let (Some(begin), Some(end)) = (code.begin_before(at), code.end_after(at, &ends)) else { continue };
        ends[at] = Some(end);
        opened[places[begin]] += 1;
        closed[places[end]] += 1;
        is_call[places[at]] = true;
    }
    let mut out = String::new();
    for (at, text) in translated.iter().enumerate() {
        (0..opened[at]).for_each(|_| out.push_str(open));
        out.push_str(if is_call[at] { "," } else { text });
        (0..closed[at]).for_each(|_| out.push_str(close));
    }
    out
}

/// Tokens without blanks.
struct Code<'a> {
    tokens: Vec<Token<'a>>,
    /// The other bracket of each.
    partners: Vec<Option<usize>>,
}

fn partners(tokens: &[Token<'_>]) -> Vec<Option<usize>> {
    let (mut partners, mut open) = (vec![None; tokens.len()], Vec::new());
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.kind == Kind::Symbol) {
        match token.text {
            "(" | "[" | "{" => open.push(at),
            ")" | "]" | "}" => {
                if let Some(other) = open.pop() {
                    (partners[at], partners[other]) = (Some(other), Some(at));
                }
            }
            _ => {}
        }
    }
    partners
}

impl Code<'_> {
    fn is(&self, at: usize, symbol: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.kind == Kind::Symbol && token.text == symbol)
    }

    fn is_string(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| matches!(token.kind, Kind::Quoted | Kind::Long))
    }

    fn is_name(&self, at: usize) -> bool {
        let is_name = |token: &Token<'_>| token.kind == Kind::Name && !KEYWORDS.contains(&token.text);
        self.tokens.get(at).is_some_and(is_name)
    }

    /// A value that nothing is called on.
    fn is_constant(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| match token.kind {
            Kind::Number => true,
            Kind::Name | Kind::Symbol => matches!(token.text, "nil" | "true" | "false" | "..."),
            _ => false,
        })
    }

    /// Whether arguments after this token would be those of a call.
    fn may_be_called(&self, at: usize) -> bool {
        self.is_name(at) || self.is_string(at) || [")", "]", "}"].iter().any(|close| self.is(at, close))
    }

    /// Where the operand on the left of a token begins.
    fn begin_before(&self, at: usize) -> Option<usize> {
        let mut at = at.checked_sub(1)?;
        loop {
            if self.is_constant(at) {
                return Some(at);
            }
            if self.is_name(at) {
                match at.checked_sub(1) {
                    Some(dot) if self.is(dot, ".") || self.is(dot, ":") => at = dot.checked_sub(1)?,
                    _ => return Some(at),
                }
                continue;
            }
            let is_index = self.is(at, "]");
            let begin = match self.is_string(at) {
                true => at,
                false if [")", "]", "}"].iter().any(|close| self.is(at, close)) => self.partners[at]?,
                false => return None,
            };
            match begin.checked_sub(1) {
                Some(before) if self.may_be_called(before) => at = before,
                _ if is_index => return None,
                _ => return Some(begin),
            }
        }
    }

    /// Where the operand on the right of a token ends. `ends`: of powers further right.
    fn end_after(&self, at: usize, ends: &[Option<usize>]) -> Option<usize> {
        let mut at = at + 1;
        while self.is(at, "-") || self.is(at, "#") || self.tokens.get(at)?.text == "not" {
            at += 1;
        }
        if self.is(at, "{") {
            at = self.partners[at]?;
        } else if self.is_name(at) || self.is(at, "(") {
            at = self.partners[at].unwrap_or(at);
            loop {
                let next = at + 1;
                at = if (self.is(next, ".") || self.is(next, ":")) && self.is_name(next + 1) {
                    next + 1
                } else if ["(", "[", "{"].iter().any(|open| self.is(next, open)) {
                    self.partners[next]?
                } else if self.is_string(next) {
                    next
                } else {
                    break;
                };
            }
        } else if !self.is_constant(at) && !self.is_string(at) {
            return None;
        }
        match self.is(at + 1, "^") {
            true => ends[at + 1],
            false => Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::tokens::lex;

    /// The script with calls as `P{a, b}`.
    fn shown(script: &str) -> String {
        let tokens = lex(script);
        let same: Vec<_> = tokens.iter().map(|token| Cow::Borrowed(token.text)).collect();
        with_calls(&tokens, &same, ("P{", "}"))
    }

    #[test]
    fn operands_are_found() {
        for (script, expected) in [
            ("return 2 ^ 3", "return P{2 , 3}"),
            ("x = -2^31-1", "x = -P{2,31}-1"),
            ("x = a ^ b ^ c * d", "x = P{a , P{b , c}} * d"),
            ("x = a ^ -b ^ #c", "x = P{a , -P{b , #c}}"),
            (
                "x = not a.b[c ^ 2]:d(e)^ not f.g'h'(i) .. j",
                "x = not P{a.b[P{c , 2}]:d(e), not f.g'h'(i)} .. j",
            ),
            ("return (a)^{1}, f{2} ^ (b)(c)", "return P{(a),{1}}, P{f{2} , (b)(c)}"),
            ("y = 2 --[[^]] ^\n 3 x()", "y = P{2 --[[^]] ,\n 3} x()"),
            ("t = {[2^3]=...^2, 'a'^\"b\"}", "t = {[P{2,3}]=P{...,2}, P{'a',\"b\"}}"),
            ("if a and (b)^2 then end", "if a and P{(b),2} then end"),
        ] {
            assert_eq!(shown(script), expected);
        }
    }

    #[test]
    fn a_power_in_a_wrong_place_is_left_to_lua() {
        let wrong =
            ["return ^ 2", "return 2 ^", "x = function() end ^ 2", "x = 2 ^ function() end", "a] ^ 2"];
        for script in wrong {
            assert_eq!(shown(script), script);
        }
        assert_eq!(shown("(a ^ b"), "(P{a , b}");
    }
}
