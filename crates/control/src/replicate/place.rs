//! A side of a replication: where its dataset is, and how its commands are run.
//!
//! On another machine, the shell that ssh starts runs Cenote, or else OpenZFS. Words are quoted for that
//! shell; a host can't pass for an option of ssh.

use std::ffi::OsString;
use std::fmt;
use std::process::Command;

use crate::error::ControlError;

/// A dataset, here or elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// `[USER@]HOST`; none: this machine.
    pub host: Option<String>,
    /// `POOL/DATASET`.
    pub dataset: String,
}

impl Place {
    /// Reads `[USER@]HOST:POOL/DATASET` or `POOL/DATASET`. Names of datasets may have colons after a `/`.
    pub fn parse(typed: &str) -> Result<Place, ControlError> {
        let wrong = |why: &str| Err(ControlError::Usage(format!("'{typed}': {why}")));
        let first = typed.split('/').next().unwrap_or_default();
        let (host, dataset) = match first.split_once(':') {
            Some((host, _)) => (Some(host), &typed[host.len() + 1..]),
            None => (None, typed),
        };
        if host.is_some_and(|host| host.is_empty() || host.starts_with('-')) {
            return wrong("there is no such host");
        }
        if dataset.is_empty() || dataset.starts_with(['-', '/']) || dataset.contains(['@', '#']) {
            return wrong("name a dataset: POOL/DATASET or [USER@]HOST:POOL/DATASET");
        }
        Ok(Place { host: host.map(str::to_owned), dataset: dataset.into() })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{host}:{}", self.dataset),
            None => f.write_str(&self.dataset),
        }
    }
}

/// Runs commands of `zfs` for a place.
#[derive(Debug, Clone)]
pub struct Side {
    /// The dataset.
    pub place: Place,
    ssh: Vec<String>,
    /// This program, and its options about pools here.
    own: Vec<OsString>,
}

impl Side {
    /// A side with the words that begin a command there, and here.
    pub fn new(place: Place, ssh: Vec<String>, own: Vec<OsString>) -> Side {
        Side { place, ssh, own }
    }

    /// `zfs WORDS`, here or there.
    pub fn command(&self, words: &[&str]) -> Command {
        match &self.place.host {
            None => {
                let mut command = Command::new(&self.own[0]);
                command.args(&self.own[1..]).arg("zfs").args(words);
                command
            }
            Some(host) => {
                let mut command = Command::new(&self.ssh[0]);
                command.args(&self.ssh[1..]).arg(host).arg(remote(words));
                command
            }
        }
    }
}

/// The line for the other machine's shell, which may be of any kind.
fn remote(words: &[&str]) -> String {
    let words: String = words.iter().map(|word| format!(" {}", quoted(word))).collect();
    let script = format!(
        "if command -v cenote >/dev/null 2>&1; then exec cenote zfs{words}; else exec zfs{words}; fi"
    );
    format!("exec sh -c {}", quoted(&script))
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_end_at_the_first_colon_before_a_slash() {
        let place = |typed| Place::parse(typed).map(|place| (place.host, place.dataset)).unwrap();
        assert_eq!(place("tank/a:b"), (None, "tank/a:b".into()));
        assert_eq!(place("me@vault:tank/a:b"), (Some("me@vault".into()), "tank/a:b".into()));
        assert_eq!(place("vault:tank"), (Some("vault".into()), "tank".into()));
        for wrong in ["", "vault:", ":tank", "-oProxyCommand=x:tank", "tank@s", "tank#m", "/tank", "-tank"] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_reach_the_other_shell_as_they_are() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        let line = remote(&["list", "a b"]);
        assert!(line.starts_with("exec sh -c 'if command -v cenote"), "{line}");
        assert!(line.contains(r"exec cenote zfs '\''list'\'' '\''a b'\''"), "{line}");
    }
}
