//! Keys of encrypted datasets, as given by `--key` or asked for at the terminal.
//!
//! `DATASET=pass:TEXT`, `hex:HEX`, `file:PATH` (the file's content: 32 raw bytes, 64 hex digits or a passphrase, as the
//! dataset's keyformat says) and `env:NAME`. A key is for an encryption root and serves all datasets below that inherit it.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::sync::Arc;

use cenote_dataset::keys::{EncryptionInfo, KeySource, UserKey};

use crate::outcome::CliError;

/// Keys by encryption root.
#[derive(Clone, Default)]
pub struct GivenKeys(Arc<HashMap<String, UserKey>>);

impl GivenKeys {
    /// Reads the values of all `--key` options.
    pub fn parse(options: &[String]) -> Result<GivenKeys, CliError> {
        let mut keys = HashMap::new();
        for option in options {
            let (dataset, key) = option.split_once('=').ok_or_else(|| {
                CliError::Usage("--key: write DATASET=pass:TEXT, hex:, file: or env:".into())
            })?;
            keys.insert(dataset.to_string(), parse_key(dataset, key)?);
        }
        Ok(GivenKeys(Arc::new(keys)))
    }

    /// Only the keys that were given.
    pub fn given(&self) -> KeySource {
        let keys = self.0.clone();
        KeySource::new(move |info: &EncryptionInfo| keys.get(&info.root).cloned())
    }

    /// What the engine asks for keys: those given, then the terminal if there is one.
    pub fn source(&self) -> KeySource {
        let keys = self.0.clone();
        KeySource::new(move |info: &EncryptionInfo| match keys.get(&info.root) {
            Some(key) => Some(key.clone()),
            None => ask(info),
        })
    }
}

fn parse_key(dataset: &str, key: &str) -> Result<UserKey, CliError> {
    let wrong = |why: String| CliError::Usage(format!("--key {dataset}: {why}"));
    let bytes = match key.split_once(':') {
        Some(("pass" | "hex", text)) => text.as_bytes().to_vec(),
        Some(("file", path)) => {
            std::fs::read(path).map_err(CliError::io(format!("--key {dataset}: {path}")))?
        }
        Some(("env", name)) => std::env::var_os(name)
            .ok_or_else(|| wrong(format!("there is no environment variable {name}")))?
            .into_encoded_bytes(),
        _ => return Err(wrong("write pass:TEXT, hex:HEX, file:PATH or env:NAME".into())),
    };
    Ok(UserKey(bytes))
}

/// Asks for a passphrase or hex key. Returns nothing if there is no terminal or the answer is empty.
fn ask(info: &EncryptionInfo) -> Option<UserKey> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let answer =
        rpassword::prompt_password(format!("Key for {} (enter to go on without): ", info.root)).ok()?;
    (!answer.is_empty()).then(|| UserKey(answer.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_forms_are_refused_with_the_right_one() {
        for option in ["tank", "tank=", "tank=secret", "tank=env:CENOTE_NO_SUCH_VARIABLE"] {
            assert!(GivenKeys::parse(&[option.into()]).is_err(), "{option}");
        }
        let keys = GivenKeys::parse(&["tank/a=pass:x:y=z".into()]).unwrap();
        assert_eq!(keys.0["tank/a"].0, b"x:y=z");
    }
}
