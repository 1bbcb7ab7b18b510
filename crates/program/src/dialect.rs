//! OpenZFS's dialect of Lua 5.2, translated to Lua 5.4.
//!
//! Idea: OpenZFS made all numbers of its Lua 64-bit integers, with the division of Lua 5.4. So Lua 5.4 runs
//! such scripts unchanged, but for some tokens:
//!
//! | OpenZFS | here |
//! |---|---|
//! | `a / b`, `__div` | `a // b`, which rounds down alike, and `__idiv` |
//! | `a ^ b` is an integer | a call of a function (`power`) |
//! | `1.5`, `1e3` | refused: malformed number |
//! | `010` is octal; too large numbers wrap | written in decimal, or in hexadecimal where 5.4 wraps alike |
//! | no `//`, `&`, `\|`, `~`, `<<`, `>>`, `local a <const>` | refused: unexpected symbol |
//!
//! Lines stay the same, for error texts. Strings and comments are copied.
//!
//! Source: OpenZFS `module/lua` (`lcompat_strtoll`, `luaV_div`), Lua 5.2 `llex.c` (`read_numeral`).

mod power;
mod tokens;

use std::borrow::Cow;

pub(crate) use self::power::POWER;
use self::tokens::{Kind, Token, lex};

/// Name of the script in error texts.
pub(crate) const CHUNK: &str = "channel program";

/// Translates a script.
///
/// # Errors
/// The text of a syntax error.
pub(crate) fn translate(script: &str) -> Result<String, String> {
    let tokens = lex(script);
    let translated = tokens.iter().map(translated).collect::<Result<Vec<_>, _>>()?;
    refuse_attributes(&tokens)?;
    Ok(power::joined(&tokens, &translated))
}

/// A script that is not UTF-8, such as one in Latin-1, as UTF-8 text with the same meaning: other bytes
/// become escapes in strings in quotes, and question marks in comments. `None`: there are more elsewhere.
pub fn script_of(bytes: &[u8]) -> Option<String> {
    let (mut text, mut others) = (String::with_capacity(bytes.len()), Vec::new());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for &byte in chunk.invalid() {
            others.push((text.len(), byte));
            text.push('?');
        }
    }
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut end, mut others) = (0, 0, others.into_iter().peekable());
    for token in lex(&text) {
        end += token.text.len();
        while let Some((at, byte)) = others.next_if(|(at, _)| *at < end) {
            match token.kind {
                Kind::Blank => {}
                Kind::Quoted => {
                    out.push_str(&text[copied..at]);
                    out.push_str(&format!("\\{byte:03}"));
                    copied = at + 1;
                }
                Kind::Name | Kind::Number | Kind::Long | Kind::Symbol => return None,
            }
        }
    }
    out.push_str(&text[copied..]);
    Some(out)
}

/// A token in Lua 5.4. `^` stays.
fn translated<'a>(token: &Token<'a>) -> Result<Cow<'a, str>, String> {
    let refused = |near: &str| Err(error(token.line, &format!("unexpected symbol near '{near}'")));
    Ok(match (token.kind, token.text) {
        (Kind::Symbol, "/") => Cow::Borrowed("//"),
        (Kind::Symbol, "//" | "<<" | ">>") => return refused(&token.text[..1]),
        (Kind::Symbol, "&" | "|" | "~") => return refused(token.text),
        (Kind::Name, "__div") => Cow::Borrowed("__idiv"),
        (Kind::Quoted, "'__div'" | "\"__div\"") => Cow::Borrowed("'__idiv'"),
        (Kind::Number, typed) => {
            let number = value(typed);
            let number = number.ok_or_else(|| error(token.line, &format!("malformed number near '{typed}'")));
            let number = number?;
            // Lua wraps hexadecimal numbers alone.
            match i64::try_from(number) {
                Ok(number) => Cow::Owned(number.to_string()),
                Err(_) => Cow::Owned(format!("{number:#x}")),
            }
        }
        (_, text) => Cow::Borrowed(text),
    })
}

/// Refuses `local a <const>`.
fn refuse_attributes(tokens: &[Token<'_>]) -> Result<(), String> {
    let code: Vec<&Token<'_>> = tokens.iter().filter(|token| token.kind != Kind::Blank).collect();
    let attribute = code
        .windows(3)
        .find(|three| three[0].text == "local" && three[1].kind == Kind::Name && three[2].text == "<");
    match attribute {
        Some(three) => Err(error(three[2].line, "unexpected symbol near '<'")),
        None => Ok(()),
    }
}

fn error(line: usize, why: &str) -> String {
    format!("[string \"{CHUNK}\"]:{line}: {why}")
}

/// The value of a literal, which wraps.
fn value(typed: &str) -> Option<u64> {
    let (digits, base) = match typed.strip_prefix('0') {
        Some("") => return Some(0),
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(digits) => (digits, 16),
            None => (rest, 8),
        },
        None => (typed, 10),
    };
    let mut value = 0u64;
    for digit in digits.chars() {
        value = value.wrapping_mul(base.into()).wrapping_add(digit.to_digit(base)?.into());
    }
    (!digits.is_empty()).then_some(value)
}

/// The value of a number in a string, as `tonumber` and arithmetic read it.
pub(crate) fn number_in(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let is_hexadecimal = text.contains(['x', 'X']);
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        // Decimal numbers have no plus sign.
        None => (false, text.strip_prefix('+').filter(|_| is_hexadecimal).unwrap_or(text)),
    };
    let value = value(digits)? as i64;
    Some(if is_negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(why: &str) -> String {
        format!("[string \"channel program\"]:1: {why}")
    }

    #[test]
    fn divisions_round_and_numbers_wrap() {
        assert_eq!(translate("return a / 2").unwrap(), "return a // 2");
        assert_eq!(translate("x = 010 + 0x1F + 7").unwrap(), "x = 8 + 31 + 7");
        assert_eq!(translate("18446744073709551615").unwrap(), "0xffffffffffffffff");
        assert_eq!(translate("18446744073709551616").unwrap(), "0");
        assert_eq!(translate("a1 = b..c").unwrap(), "a1 = b..c");
        assert_eq!(translate("f(...)").unwrap(), "f(...)");
        assert_eq!(translate("t = {__div = f, ['__div'] = g}").unwrap(), "t = {__idiv = f, ['__idiv'] = g}");
    }

    #[test]
    fn strings_and_comments_stay() {
        for script in [
            "-- a / 1.5 ^ b\nx()",
            "--[[ 1.5\n / ]] x()",
            "--[==[ ]] 1.5 ]==] x()",
            "s = \"1.5 / \\\" ^\" .. 'a // \\' b'",
            "s = [[ 1.5 ^ ]]",
            "s = [=[ ]] / ]=]",
            "x ~= y <= z >= w == v",
            "größe = \"ä / ö\"",
            "s = \"does not end",
            "::here:: goto here",
        ] {
            assert_eq!(translate(script).unwrap(), script);
        }
    }

    #[test]
    fn tokens_that_the_dialect_lacks_are_refused_with_their_line() {
        assert_eq!(translate("return 1.5").unwrap_err(), line("malformed number near '1.5'"));
        assert_eq!(translate("return .5").unwrap_err(), line("malformed number near '.5'"));
        assert_eq!(translate("return 1e+3").unwrap_err(), line("malformed number near '1e+3'"));
        assert_eq!(translate("return 08").unwrap_err(), line("malformed number near '08'"));
        assert_eq!(translate("return 0x").unwrap_err(), line("malformed number near '0x'"));
        assert_eq!(translate("a // b").unwrap_err(), line("unexpected symbol near '/'"));
        assert_eq!(translate("a << b").unwrap_err(), line("unexpected symbol near '<'"));
        assert_eq!(translate("a & b").unwrap_err(), line("unexpected symbol near '&'"));
        assert_eq!(translate("local a <const> = 1").unwrap_err(), line("unexpected symbol near '<'"));
        let late = translate("x()\n\n--[[\n]]\nreturn a ~ 2").unwrap_err();
        assert_eq!(late, "[string \"channel program\"]:5: unexpected symbol near '~'");
    }

    #[test]
    fn numbers_in_strings_are_read_like_literals() {
        for (text, number) in [
            ("12", Some(12)),
            ("  -012\t", Some(-10)),
            ("0x10", Some(16)),
            ("+0x2", Some(2)),
            ("-0xffFFFfff", Some(-0xffff_ffff)),
            ("18446744073709551616", Some(0)),
            ("+5", None),
            ("08", None),
            ("1.5", None),
            ("1e3", None),
            ("nan", None),
            ("- 1", None),
            ("0x", None),
            ("-", None),
            ("", None),
            ("1\0", None),
        ] {
            assert_eq!(number_in(text.as_bytes()), number, "{text:?}");
        }
    }

    #[test]
    fn scripts_in_latin_1_become_utf_8() {
        assert_eq!(script_of("s = 'ä' -- ö".as_bytes()).as_deref(), Some("s = 'ä' -- ö"));
        let latin = b"s = 'a\xe4b\xff' -- \xf6\nreturn s";
        assert_eq!(script_of(latin).as_deref(), Some("s = 'a\\228b\\255' -- ?\nreturn s"));
        assert_eq!(script_of(b"s = [[\xe4]]"), None);
        assert_eq!(script_of(b"gr\xf6\xdfe = 1"), None);
    }
}
