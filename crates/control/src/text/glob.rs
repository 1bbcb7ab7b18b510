//! Shell patterns on bytes: `*`, `?`, `[a-z]`, `[!x]`; `\` makes the next character literal.

/// Whether `pattern` matches all of `name`. The time is bounded by the product of their lengths.
pub fn glob_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to backtrack to: after the last star, and one byte further into the name.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match step(&pattern[p..], name[n]) {
            Step::Star => {
                p += 1;
                star = Some((p, n));
            }
            Step::Matched(len) => {
                p += len;
                n += 1;
            }
            Step::No => match &mut star {
                Some((after, from)) => {
                    *from += 1;
                    (p, n) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

enum Step {
    Star,
    Matched(usize),
    No,
}

/// Matches one byte against the first element of `pattern`.
fn step(pattern: &[u8], byte: u8) -> Step {
    let matched = |is: bool, len: usize| if is { Step::Matched(len) } else { Step::No };
    match pattern {
        [b'*', ..] => Step::Star,
        [b'?', ..] => Step::Matched(1),
        [b'\\', literal, ..] => matched(*literal == byte, 2),
        [b'[', class @ ..] => match class.iter().skip(1).position(|&b| b == b']') {
            Some(end) => matched(in_class(&class[..end + 1], byte), end + 3),
            None => matched(byte == b'[', 1),
        },
        [literal, ..] => matched(*literal == byte, 1),
        [] => Step::No,
    }
}

fn in_class(class: &[u8], byte: u8) -> bool {
    let (negated, mut rest) = match class {
        [b'!' | b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    while let [first, tail @ ..] = rest {
        rest = match tail {
            [b'-', last, tail @ ..] => {
                found |= (*first..=*last).contains(&byte);
                tail
            }
            _ => {
                found |= *first == byte;
                tail
            }
        };
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_patterns() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*.jpg", "a.b.jpg", true),
            ("*.jpg", "a.jpeg", false),
            ("auto-2026-??-*", "auto-2026-11-21", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[", "[", true),
            ("a", "ab", false),
        ] {
            assert_eq!(glob_matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!glob_matches("*a".repeat(50).as_bytes(), "a".repeat(49).as_bytes()));
        assert!(!glob_matches(b"*a*a*a*a*a*a*b", "a".repeat(20_000).as_bytes()));
    }
}
