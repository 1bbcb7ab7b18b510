//! Tokens of Lua 5.2. Together they are the whole script.
//!
//! Source: Lua 5.2 `llex.c`.

/// Kinds of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Space or a comment.
    Blank,
    /// Name or keyword.
    Name,
    /// Number, perhaps malformed.
    Number,
    /// String in quotes.
    Quoted,
    /// String in long brackets.
    Long,
    Symbol,
}

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// Where it begins.
    pub line: usize,
}

/// Symbols of several characters, the longest first.
const SYMBOLS: [&str; 10] = ["...", "..", "~=", "==", "<=", ">=", "//", "<<", ">>", "::"];

/// Splits a script.
pub(super) fn lex(script: &str) -> Vec<Token<'_>> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), script, 1);
    while let Some(next) = rest.chars().next() {
        let (kind, bytes) = first(rest, next);
        let (text, after) = rest.split_at(bytes);
        tokens.push(Token { kind, text, line });
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Kind and length of the first token.
fn first(rest: &str, next: char) -> (Kind, usize) {
    let until = |end: Option<usize>| end.unwrap_or(rest.len());
    match next {
        next if next.is_ascii_whitespace() || next == '\x0b' => {
            (Kind::Blank, until(rest.find(|c: char| !c.is_ascii_whitespace() && c != '\x0b')))
        }
        '-' if rest.starts_with("--") => {
            let comment = match long_string(&rest[2..]) {
                Some(bytes) => 2 + bytes,
                None => until(rest.find('\n')),
            };
            (Kind::Blank, comment)
        }
        '[' => long_string(rest).map_or((Kind::Symbol, 1), |bytes| (Kind::Long, bytes)),
        '"' | '\'' => (Kind::Quoted, quoted(rest, next)),
        '0'..='9' => (Kind::Number, number(rest)),
        '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => (Kind::Number, number(rest)),
        'a'..='z' | 'A'..='Z' | '_' => {
            (Kind::Name, until(rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')))
        }
        next => {
            let known = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
            (Kind::Symbol, known.map_or(next.len_utf8(), |symbol| symbol.len()))
        }
    }
}

/// Length of a string in quotes, with its escapes. Lua itself reports one that does not end.
fn quoted(rest: &str, quote: char) -> usize {
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, next)) = characters.next() {
        match next {
            '\\' => drop(characters.next()),
            '\n' => return at,
            next if next == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Length of a number, with letters that follow at once.
fn number(rest: &str) -> usize {
    let is_hexadecimal = rest.starts_with("0x") || rest.starts_with("0X");
    let exponent = if is_hexadecimal { ['p', 'P'] } else { ['e', 'E'] };
    let mut end = if is_hexadecimal { 2 } else { 1 };
    let bytes = rest.as_bytes();
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
    end
}

/// Length of a string in long brackets at the beginning: `[[` or `[=[`.
fn long_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix('[')?;
    let rest = after.trim_start_matches('=');
    let level = rest.starts_with('[').then_some(after.len() - rest.len())?;
    let end = format!("]{}]", "=".repeat(level));
    Some(text.find(&end).map_or(text.len(), |at| at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_their_kinds_and_lines() {
        let script = "f(...)--[[\n]]a=[[b\n]] ..'c\\''\n1.5 x";
        let found: Vec<_> = lex(script).iter().map(|token| (token.kind, token.text, token.line)).collect();
        let expected = [
            (Kind::Name, "f", 1),
            (Kind::Symbol, "(", 1),
            (Kind::Symbol, "...", 1),
            (Kind::Symbol, ")", 1),
            (Kind::Blank, "--[[\n]]", 1),
            (Kind::Name, "a", 2),
            (Kind::Symbol, "=", 2),
            (Kind::Long, "[[b\n]]", 2),
            (Kind::Blank, " ", 3),
            (Kind::Symbol, "..", 3),
            (Kind::Quoted, "'c\\''", 3),
            (Kind::Blank, "\n", 3),
            (Kind::Number, "1.5", 4),
            (Kind::Blank, " ", 4),
            (Kind::Name, "x", 4),
        ];
        assert_eq!(found, expected);
    }
}
