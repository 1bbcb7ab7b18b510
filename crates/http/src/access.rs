//! Access control: tokens with roles.
//!
//! ```text
//!   # each line: a role, then a token of at least 32 characters
//!   look    0f6c...      may list, and see states and properties
//!   change  91d2...      may run every command
//! ```
//!
//! Idea: a request carries `Authorization: Bearer TOKEN`; there are no cookies. Browsers never send this
//! header by themselves, so neither forged requests from other sites (CSRF) nor DNS rebinding works. Clients
//! of a Unix socket that only the daemon's user and root can open need no token.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cenote_host::own;
use sha2::{Digest, Sha256};

const TOKEN_CHARS_MIN: usize = 32;

/// Role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// May see names, states, properties and counters, but no file content.
    Look,
    /// May do everything.
    Change,
}

impl Access {
    /// Name in token files.
    pub fn name(self) -> &'static str {
        match self {
            Access::Look => "look",
            Access::Change => "change",
        }
    }
}

/// Accepted tokens. Only their hashes are kept.
#[derive(Debug, Default)]
pub struct Tokens(Vec<([u8; 32], Access)>);

impl Tokens {
    /// Reads a token file.
    ///
    /// # Errors
    /// The file is unreadable, is readable by others, or has a malformed line; the text says which.
    pub fn read(path: &Path) -> Result<Tokens, String> {
        Tokens::parse(&own::secret_text(path).map_err(|error| error.to_string())?)
    }

    /// Creates a file, readable only by this user, with a random token of role `change`.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn make(path: &Path, secret: [u8; 32]) -> io::Result<Tokens> {
        let token: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::remove_file(path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "change {token}")?;
        Ok(Tokens(vec![(hash(&token), Access::Change)]))
    }

    /// Parses the text of a token file.
    ///
    /// # Errors
    /// A line is malformed; the text says which.
    pub fn parse(text: &str) -> Result<Tokens, String> {
        let mut tokens = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |why: &str| format!("line {}: {why}", number + 1);
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let access = match line.split_whitespace().next() {
                Some("look") => Access::Look,
                Some("change") => Access::Change,
                _ => return Err(wrong("wanted `look TOKEN` or `change TOKEN`")),
            };
            let mut words = line.split_whitespace().skip(1);
            let (Some(token), None) = (words.next(), words.next()) else {
                return Err(wrong("wanted a role and one token"));
            };
            if token.len() < TOKEN_CHARS_MIN {
                return Err(wrong(
                    "the token is too short: at least 32 characters, as of `openssl rand -hex 32`",
                ));
            }
            tokens.push((hash(token), access));
        }
        match tokens.is_empty() {
            true => Err("has no token".into()),
            false => Ok(Tokens(tokens)),
        }
    }

    /// Role of the bearer of this header.
    pub fn access(&self, authorization: &str) -> Option<Access> {
        let token = authorization.strip_prefix("Bearer ")?.trim();
        // Comparing hashes: timing reveals nothing about tokens.
        let asked = hash(token);
        self.0.iter().find(|(known, _)| *known == asked).map(|(_, access)| *access)
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_the_role_of_its_line() {
        let (one, two) = ("a".repeat(32), "b".repeat(40));
        let tokens = Tokens::parse(&format!("# mine\n\nlook {one}\nchange\t{two}\n")).unwrap();
        assert_eq!(tokens.access(&format!("Bearer {one}")), Some(Access::Look));
        assert_eq!(tokens.access(&format!("Bearer {two}")), Some(Access::Change));
        for wrong in [&format!("Basic {one}"), &one, "Bearer ", "", &format!("Bearer {one}a")] {
            assert_eq!(tokens.access(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        let long = "x".repeat(32);
        for (text, why) in [
            ("", "no token"),
            ("\nadmin x", "line 2"),
            ("look short", "too short"),
            (&format!("look {long} {long}"), "one token"),
        ] {
            let refused = Tokens::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
