//! Keys of encrypted datasets, as given by `--key` or asked for at the terminal.
//!
//! `DATASET=pass:TEXT`, `hex:HEX` (also for a raw key), `file:PATH` (the file's content: 32 raw bytes, 64 hex digits or a passphrase,
//! as the dataset's keyformat says) and `env:NAME`. A key is for an encryption root and serves all datasets below that inherit it.
//! A root that is made or gets another key asks for the new one in the same ways.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Read};
use std::sync::Arc;

use cenote_dataset::keys::{EncryptionInfo, KeyFormat, KeySource, UserKey};

use crate::outcome::CliError;

/// The longest key, with its end of line.
const MAX_KEY_BYTES: u64 = 513;

/// Keys by encryption root. Of a root that gets another key the first is that which it has, the last that which it gets.
#[derive(Clone, Default)]
pub struct GivenKeys(Arc<HashMap<String, Vec<Given>>>);

#[derive(Clone)]
struct Given {
    key: UserKey,
    /// The bytes that its digits mean, if it was given in hex.
    of_hex: Option<UserKey>,
}

impl GivenKeys {
    /// Reads the values of all `--key` options.
    pub fn parse(options: &[String]) -> Result<GivenKeys, CliError> {
        let mut keys: HashMap<String, Vec<Given>> = HashMap::new();
        for option in options {
            let (dataset, key) = option.split_once('=').ok_or_else(|| {
                CliError::Usage("--key: write DATASET=pass:TEXT, hex:, file: or env:".into())
            })?;
            keys.entry(dataset.to_string()).or_default().push(parse_key(dataset, key)?);
        }
        Ok(GivenKeys(Arc::new(keys)))
    }

    fn find(&self, info: &EncryptionInfo) -> Option<UserKey> {
        let keys = self.0.get(&info.root)?;
        let Given { key, of_hex } = if is_new(info) { keys.last() } else { keys.first() }?;
        let is_raw = KeyFormat::from_number(info.keyformat) == Some(KeyFormat::Raw);
        Some(of_hex.as_ref().filter(|_| is_raw).unwrap_or(key).clone())
    }

    /// Only the keys that were given.
    pub fn given(&self) -> KeySource {
        let keys = self.clone();
        KeySource::new(move |info: &EncryptionInfo| keys.find(info))
    }

    /// What the engine asks for keys: those given, then the file that the dataset says has it, then the terminal.
    pub fn source(&self) -> KeySource {
        let keys = self.clone();
        KeySource::new(move |info: &EncryptionInfo| {
            keys.find(info).or_else(|| from_file(info)).or_else(|| ask(info))
        })
    }
}

/// The key is that of a root which is to be made, or gets another one.
fn is_new(info: &EncryptionInfo) -> bool {
    info.key_object.0 == 0
}

/// The key in the file that `keylocation` names.
fn from_file(info: &EncryptionInfo) -> Option<UserKey> {
    let path = info.keylocation.as_deref()?.strip_prefix("file://")?;
    let read = || -> io::Result<Vec<u8>> {
        let mut key = Vec::new();
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("is no file"));
        }
        std::fs::File::open(path)?.take(MAX_KEY_BYTES).read_to_end(&mut key)?;
        Ok(key)
    };
    let key = read().inspect_err(|error| eprintln!("cenote: key of {}: {path}: {error}", info.root));
    key.ok().map(UserKey)
}

fn parse_key(dataset: &str, key: &str) -> Result<Given, CliError> {
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
    let of_hex = key.strip_prefix("hex:").and_then(bytes_of_hex).map(UserKey);
    Ok(Given { key: UserKey(bytes), of_hex })
}

/// `None` if it is not in pairs of hexadecimal digits.
fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| Some(char::from(c).to_digit(16)? as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Asks for a passphrase or hex key at the terminal, for a new one twice. Returns nothing if there is no terminal or the answer is empty. A
/// new key may come through a pipe.
fn ask(info: &EncryptionInfo) -> Option<UserKey> {
    if !io::stdin().is_terminal() {
        return if is_new(info) { piped() } else { None };
    }
    if !io::stderr().is_terminal() {
        return None;
    }
    let root = &info.root;
    if !is_new(info) {
        return prompt(&format!("Key for {root} (enter to go on without): "));
    }
    let key = prompt(&format!("Enter new key for '{root}': "))?;
    let again = prompt(&format!("Re-enter new key for '{root}': "))?;
    if again.0 != key.0 {
        eprintln!("cenote: the keys do not match");
        return None;
    }
    Some(key)
}

fn piped() -> Option<UserKey> {
    let mut key = Vec::new();
    io::stdin().take(MAX_KEY_BYTES).read_to_end(&mut key).ok()?;
    (!key.is_empty()).then_some(UserKey(key))
}

fn prompt(text: &str) -> Option<UserKey> {
    let answer = rpassword::prompt_password(text).ok()?;
    (!answer.is_empty()).then(|| UserKey(answer.into_bytes()))
}

#[cfg(test)]
mod tests {
    use cenote_format::units::{Guid, ObjectId};

    use super::*;

    #[test]
    fn wrong_forms_are_refused_with_the_right_one() {
        for option in ["tank", "tank=", "tank=secret", "tank=env:CENOTE_NO_SUCH_VARIABLE"] {
            assert!(GivenKeys::parse(&[option.into()]).is_err(), "{option}");
        }
        let keys = GivenKeys::parse(&["tank/a=pass:x:y=z".into()]).unwrap();
        assert_eq!(keys.0["tank/a"][0].key.0, b"x:y=z");
    }

    #[test]
    fn digits_are_a_hex_key_and_the_bytes_of_a_raw_one() {
        let digits = "6b".repeat(32);
        let keys = GivenKeys::parse(&[format!("tank=hex:{digits}")]).unwrap();
        let key_of = |keyformat| keys.find(&info(keyformat)).unwrap().0;
        assert_eq!(key_of(1), [b'k'; 32]);
        assert_eq!(key_of(2), digits.as_bytes());
    }

    fn info(keyformat: u64) -> EncryptionInfo {
        EncryptionInfo {
            root: "tank".into(),
            root_dir: ObjectId(2),
            suite: 8,
            keyformat,
            keylocation: None,
            pbkdf2_salt: 0,
            pbkdf2_iters: 0,
            key_guid: Guid(1),
            key_object: ObjectId(3),
        }
    }
}
