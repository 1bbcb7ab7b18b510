//! Keys of encrypted datasets: given by `--key`, kept in files, typed, or piped in.
//!
//! Forms of `--key`: `DATASET=pass:TEXT`, `hex:HEX` (also for a raw key), `file:PATH` (32 raw bytes, or a
//! first line with 64 hex digits or a passphrase, depending on the dataset's keyformat) and `env:NAME`. A key
//! belongs to an encryption root and unlocks all datasets that inherit from it. Creating a root, or changing
//! its key, asks for the new key in the same ways.
//!
//! Keys are asked for on threads where blocking hurts nobody, at the console of the caller.
//!
//! Files are read with the rights of the caller, which are the daemon's for administrators. They and
//! the daemon itself follow a location that a pool remembers only if nobody else can have written it there:
//! the daemon takes none from others, and no device of the pool may be theirs to write.
//!
//! This module only fetches key material, never more bytes than a key can have. The engine alone decides
//! which part of it is the key.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use cenote_dataset::keys::KeyFormat;
use cenote_dataset::{Credentials, EncryptionInfo, KeySource, UserKey};
use cenote_fuse::mount::hand;

use crate::caller::Caller;
use crate::error::ControlError;

/// One byte more than the longest key, so that a longer one is noticed.
pub const MAX_KEY_BYTES: u64 = 513;

/// Keys by encryption root. When a root's key is changed, the first key given is its current one and the last
/// its new one.
#[derive(Clone, Default)]
pub struct GivenKeys(Arc<HashMap<String, Vec<Given>>>);

#[derive(Clone)]
struct Given {
    key: UserKey,
    /// The bytes that its digits stand for, if it was given in hex.
    of_hex: Option<UserKey>,
}

impl GivenKeys {
    /// Parses the values of all `--key` options of a caller.
    ///
    /// # Errors
    /// One has another form, or names what the caller can't read.
    pub fn parse(options: &[String], caller: &Caller) -> Result<GivenKeys, ControlError> {
        let mut keys: HashMap<String, Vec<Given>> = HashMap::new();
        for option in options {
            let (dataset, key) = option.split_once('=').ok_or_else(|| {
                ControlError::Usage("--key: give DATASET=pass:TEXT, hex:, file: or env:".into())
            })?;
            keys.entry(dataset.to_string()).or_default().push(parse_key(dataset, key, caller)?);
        }
        Ok(GivenKeys(Arc::new(keys)))
    }

    fn find(&self, info: &EncryptionInfo) -> Option<UserKey> {
        let keys = self.0.get(&info.root)?;
        let Given { key, of_hex } = if info.is_new() { keys.last() } else { keys.first() }?;
        Some(of_hex.as_ref().filter(|_| is_raw(info)).unwrap_or(key).clone())
    }

    /// Uses only the keys that were given.
    pub fn given(&self) -> KeySource {
        let keys = self.clone();
        KeySource::new(move |info: &EncryptionInfo| keys.find(info))
    }

    /// Uses the keys given, then the file, terminal or pipe that `location` names; without one, what the
    /// dataset's keylocation names, if that of this root is to be followed.
    pub fn to_load(
        &self,
        caller: &Caller,
        location: Option<&str>,
        follows: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> KeySource {
        let (keys, caller, location) = (self.clone(), caller.clone(), location.map(str::to_owned));
        KeySource::new(move |info: &EncryptionInfo| {
            let follows = location.is_some() || follows(&info.root);
            let location = location.clone().or_else(|| info.keylocation.clone());
            let info = EncryptionInfo { keylocation: location, ..info.clone() };
            let from_place = || match info.keylocation.as_deref() {
                None | Some("prompt") => caller.console.ask_key(&info, true),
                Some(_) => from_file(&info, &caller, follows),
            };
            keys.find(&info).or_else(from_place)
        })
    }

    /// Where the engine gets keys: those given, then the file that the dataset's keylocation names, if that
    /// is to be followed, then the terminal.
    pub fn source(&self, caller: &Caller, follows: bool) -> KeySource {
        let (keys, caller) = (self.clone(), caller.clone());
        KeySource::new(move |info: &EncryptionInfo| {
            let typed = || caller.console.ask_key(info, info.is_new());
            keys.find(info).or_else(|| from_file(info, &caller, follows)).or_else(typed)
        })
    }
}

/// Whether the key is 32 bytes, not text.
pub fn is_raw(info: &EncryptionInfo) -> bool {
    KeyFormat::from_number(info.keyformat) == Some(KeyFormat::Raw)
}

/// Reads as many bytes of a stream as a key can have.
pub fn material(stream: impl Read) -> io::Result<UserKey> {
    let mut bytes = Vec::new();
    stream.take(MAX_KEY_BYTES).read_to_end(&mut bytes)?;
    Ok(UserKey(bytes))
}

/// The key in the file that `keylocation` names. Unless that is to be followed, nobody's rights but a user's
/// own are used.
fn from_file(info: &EncryptionInfo, caller: &Caller, follows: bool) -> Option<UserKey> {
    let path = info.keylocation.as_deref()?.strip_prefix("file://")?;
    if !follows && caller.may_do_all() {
        caller.note(format!(
            "key of {}: {path}: is not read: others can write devices of the pool, and may have chosen this \
             file; name it with -L or --key",
            info.root
        ));
        return None;
    }
    let read = || match caller.delegated() {
        Some(who) => material(open_as(Path::new(path), who)?),
        None if std::fs::metadata(path)?.is_file() => material(File::open(path)?),
        // The path comes from the pool: it may be a pipe without a writer.
        None => Err(not_regular()),
    };
    let key = read().inspect_err(|error| caller.note(format!("key of {}: {path}: {error}", info.root)));
    key.ok()
}

/// Opens a file that a caller names.
fn opened(path: &Path, caller: &Caller) -> io::Result<File> {
    caller.delegated().map_or_else(|| File::open(path), |who| open_as(path, who))
}

/// Opens a file for a user who is no administrator, with the user's rights.
fn open_as(path: &Path, who: &Credentials) -> io::Result<File> {
    let file = hand::open_as(path, who.uid, &who.gids)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

fn not_regular() -> io::Error {
    io::Error::other("not a regular file")
}

fn parse_key(dataset: &str, key: &str, caller: &Caller) -> Result<Given, ControlError> {
    let wrong = |why: String| ControlError::Usage(format!("--key {dataset}: {why}"));
    let given = match key.split_once(':') {
        Some(("pass" | "hex", text)) => UserKey(text.as_bytes().to_vec()),
        Some(("file", path)) => opened(&caller.local(Path::new(path)), caller)
            .and_then(material)
            .map_err(ControlError::io(format!("--key {dataset}: {path}")))?,
        Some(("env", name)) => UserKey(
            caller
                .variable(name)
                .ok_or_else(|| wrong(format!("environment variable {name} is not set")))?
                .into_encoded_bytes(),
        ),
        _ => return Err(wrong("give pass:TEXT, hex:HEX, file:PATH or env:NAME".into())),
    };
    let of_hex = key.strip_prefix("hex:").and_then(bytes_of_hex).map(UserKey);
    Ok(Given { key: given, of_hex })
}

/// `None` unless the text consists of pairs of hex digits.
fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| Some(char::from(c).to_digit(16)? as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use cenote_format::units::{Guid, ObjectId};

    use super::*;
    use crate::caller::Silent;

    fn nobody() -> Caller {
        Caller::own(Arc::new(Silent))
    }

    #[test]
    fn wrong_forms_are_refused_with_the_right_one() {
        for option in ["tank", "tank=", "tank=secret", "tank=env:CENOTE_NO_SUCH_VARIABLE"] {
            assert!(GivenKeys::parse(&[option.into()], &nobody()).is_err(), "{option}");
        }
        let keys = GivenKeys::parse(&["tank/a=pass:x:y=z".into()], &nobody()).unwrap();
        assert_eq!(keys.0["tank/a"][0].key.0, b"x:y=z");
    }

    #[test]
    fn digits_are_a_hex_key_and_the_bytes_of_a_raw_one() {
        let digits = "6b".repeat(32);
        let keys = GivenKeys::parse(&[format!("tank=hex:{digits}")], &nobody()).unwrap();
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
