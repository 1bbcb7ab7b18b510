//! OpenZFS's dialect of Lua 5.2, translated to Lua 5.3.
//!
//! Idea: OpenZFS made all numbers of its Lua 64-bit integers, with the division of Lua 5.3. So Lua 5.3 runs
//! such scripts unchanged, but for some tokens:
//!
//! | OpenZFS | here |
//! |---|---|
//! | `a / b` | `a // b`, which rounds down alike |
//! | `1.5`, `1e3` | refused: malformed number |
//! | `010` is octal; too large numbers wrap | written in decimal, or in hexadecimal where 5.3 wraps alike |
//! | no `//`, `&`, `\|`, `~`, `<<`, `>>` | refused: unexpected symbol |
//! | `a ^ b` is an integer | refused: Lua 5.3 has no such power |
//!
//! Lines stay the same, for error texts. Strings and comments are copied.
//!
//! Source: OpenZFS `module/lua` (`lcompat_strtoll`, `luaV_div`), Lua 5.2 `llex.c` (`read_numeral`).

/// Name of the script in error texts.
pub(crate) const CHUNK: &str = "channel program";

/// Translates a script.
///
/// # Errors
/// The text of a syntax error.
pub(crate) fn translate(script: &str) -> Result<String, String> {
    let mut reader = Reader { rest: script, line: 1, out: String::with_capacity(script.len() + 64) };
    while let Some(next) = reader.rest.chars().next() {
        reader.token(next)?;
    }
    Ok(reader.out)
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    out: String,
}

impl<'a> Reader<'a> {
    fn token(&mut self, next: char) -> Result<(), String> {
        let rest = self.rest;
        match next {
            '-' if rest.starts_with("--") => self.comment(),
            '[' if long_bracket(rest).is_some() => self.long_string(),
            '"' | '\'' => self.string(next),
            '0'..='9' => return self.number(),
            '.' if rest.starts_with("..") => self.copy(rest.len() - rest.trim_start_matches('.').len()),
            '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => return self.number(),
            'a'..='z' | 'A'..='Z' | '_' => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                self.copy(end.unwrap_or(rest.len()));
            }
            '~' if rest.starts_with("~=") => self.copy(2),
            '/' if !rest.starts_with("//") => {
                self.skip(1);
                self.out.push_str("//");
            }
            '/' | '&' | '|' | '~' => return Err(self.error(&format!("unexpected symbol near '{next}'"))),
            '<' | '>' if rest[1..].starts_with(next) => {
                return Err(self.error(&format!("unexpected symbol near '{next}'")));
            }
            '^' => return Err(self.error("the operator '^' is not available")),
            _ => self.copy(next.len_utf8()),
        }
        Ok(())
    }

    fn skip(&mut self, bytes: usize) -> &'a str {
        let (skipped, rest) = self.rest.split_at(bytes);
        self.line += skipped.matches('\n').count();
        self.rest = rest;
        skipped
    }

    fn copy(&mut self, bytes: usize) {
        let copied = self.skip(bytes);
        self.out.push_str(copied);
    }

    fn comment(&mut self) {
        self.copy(2);
        match long_bracket(self.rest) {
            Some(_) => self.long_string(),
            None => self.copy(self.rest.find('\n').unwrap_or(self.rest.len())),
        }
    }

    fn long_string(&mut self) {
        let Some(level) = long_bracket(self.rest) else { return };
        let end = format!("]{}]", "=".repeat(level));
        let found = self.rest.find(&end).map(|at| at + end.len());
        self.copy(found.unwrap_or(self.rest.len()));
    }

    /// A string in quotes, with its escapes. Lua itself reports one that does not end.
    fn string(&mut self, quote: char) {
        let mut characters = self.rest.char_indices().skip(1);
        let mut end = self.rest.len();
        while let Some((at, next)) = characters.next() {
            match next {
                '\\' => drop(characters.next()),
                '\n' => {
                    end = at;
                    break;
                }
                next if next == quote => {
                    end = at + 1;
                    break;
                }
                _ => {}
            }
        }
        self.copy(end);
    }

    fn number(&mut self) -> Result<(), String> {
        let is_hexadecimal = self.rest.starts_with("0x") || self.rest.starts_with("0X");
        let exponent = if is_hexadecimal { ['p', 'P'] } else { ['e', 'E'] };
        let mut end = if is_hexadecimal { 2 } else { 1 };
        let bytes = self.rest.as_bytes();
        while let Some(&next) = bytes.get(end) {
            let next = char::from(next);
            if exponent.contains(&next) {
                end += 1;
                end += usize::from(matches!(bytes.get(end), Some(b'+' | b'-')));
            } else if next.is_ascii_hexdigit() || next == '.' {
                end += 1;
            } else {
                break;
            }
        }
        let typed = &self.rest[..end];
        let Some(number) = value(typed) else {
            return Err(self.error(&format!("malformed number near '{typed}'")));
        };
        self.skip(end);
        match i64::try_from(number) {
            Ok(number) => self.out.push_str(&number.to_string()),
            // Lua 5.3 wraps hexadecimal numbers alone.
            Err(_) => self.out.push_str(&format!("{number:#x}")),
        }
        Ok(())
    }

    fn error(&self, why: &str) -> String {
        format!("[string \"{CHUNK}\"]:{}: {why}", self.line)
    }
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

/// The level of a long bracket at the beginning: 0 for `[[`, 1 for `[=[`.
fn long_bracket(text: &str) -> Option<usize> {
    let after = text.strip_prefix('[')?;
    let rest = after.trim_start_matches('=');
    rest.starts_with('[').then_some(after.len() - rest.len())
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
            "x ~= y",
            "größe = \"ä / ö\"",
            "s = \"does not end",
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
        let late = translate("x()\n\n--[[\n]]\nreturn a ^ 2").unwrap_err();
        assert_eq!(late, "[string \"channel program\"]:5: the operator '^' is not available");
    }
}
