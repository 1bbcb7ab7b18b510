//! Keys of encrypted datasets: given by `--key`, kept in files, typed, or piped in.
//!
//! Forms of `--key`: `DATASET=pass:TEXT`, `hex:HEX` (also for a raw key), `file:PATH` (32 raw bytes, or a
//! first line with 64 hex digits or a passphrase, depending on the dataset's keyformat) and `env:NAME`. A key
//! belongs to an encryption root and unlocks all datasets that inherit from it. Creating a root, or changing
//! its key, asks for the new key in the same ways.
//!
//! Prompts appear at the caller's console, on threads that may block.
//!
//! Files are read with the caller's rights; an administrator has the daemon's. A location stored in a pool is
//! followed only if no one else can have written it: the daemon accepts no location from other users, and no
//! device of the pool may be writable by them.
//!
//! This module fetches no more bytes than a key can have. The engine decides which part is the key.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::Arc;

use cenote_dataset::keys::KeyFormat;
use cenote_dataset::{Credentials, EncryptionInfo, KeySource, UserKey};
use cenote_fuse::mount::hand;
use serde::{Deserialize, Serialize};

use crate::caller::{Caller, Input, Rights};
use crate::error::ControlError;

/// One byte more than the longest key, to detect longer ones.
const MAX_KEY_BYTES: u64 = 513;

/// Keys by encryption root. If a root's key is changed, the first key is its current one and the last its new
/// one.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(from = "Carried", into = "Carried")]
pub struct GivenKeys(Arc<HashMap<String, Vec<Given>>>);

/// The same as sent to a daemon: for each root, keys and their bytes decoded from hex.
type Carried = BTreeMap<String, Vec<(Vec<u8>, Option<Vec<u8>>)>>;

#[derive(Clone)]
struct Given {
    key: UserKey,
    /// Decoded bytes, if given in hex.
    of_hex: Option<UserKey>,
}

/// Shows the roots, never the keys.
impl std::fmt::Debug for GivenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl From<Carried> for GivenKeys {
    fn from(carried: Carried) -> GivenKeys {
        let given = |(key, of_hex): (Vec<u8>, Option<Vec<u8>>)| Given {
            key: UserKey(key),
            of_hex: of_hex.map(UserKey),
        };
        let all = carried.into_iter().map(|(root, keys)| (root, keys.into_iter().map(given).collect()));
        GivenKeys(Arc::new(all.collect()))
    }
}

impl From<GivenKeys> for Carried {
    fn from(GivenKeys(all): GivenKeys) -> Carried {
        let carried = |given: &Given| (given.key.0.clone(), given.of_hex.as_ref().map(|key| key.0.clone()));
        all.iter().map(|(root, keys)| (root.clone(), keys.iter().map(carried).collect())).collect()
    }
}

impl GivenKeys {
    /// Parses the values of all `--key` options.
    ///
    /// # Errors
    /// An invalid form, or a source that the caller can't read.
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

    /// Uses only the given keys.
    pub fn given(&self) -> KeySource {
        let keys = self.clone();
        KeySource::new(move |info: &EncryptionInfo| keys.find(info))
    }

    /// Uses the given keys, then the file, terminal or pipe that `location` names. Without `location`, uses
    /// the dataset's keylocation if `follows`.
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
                None | Some("prompt") => ask(&caller, &info, true),
                Some(_) => from_file(&info, &caller, follows),
            };
            keys.find(&info).or_else(from_place)
        })
    }

    /// The engine's key source: given keys, then the file of the dataset's keylocation, then the terminal. An
    /// existing dataset may have its keylocation from others, unless `follows`; a new one has it from the
    /// caller.
    pub fn source(&self, caller: &Caller, follows: bool) -> KeySource {
        let (keys, caller) = (self.clone(), caller.clone());
        KeySource::new(move |info: &EncryptionInfo| {
            let typed = || ask(&caller, info, info.is_new());
            let from_file = || from_file(info, &caller, follows || info.is_new());
            keys.find(info).or_else(from_file).or_else(typed)
        })
    }
}

fn is_raw(info: &EncryptionInfo) -> bool {
    KeyFormat::from_number(info.keyformat) == Some(KeyFormat::Raw)
}

fn material(stream: impl Read) -> io::Result<UserKey> {
    let mut bytes = Vec::new();
    stream.take(MAX_KEY_BYTES).read_to_end(&mut bytes)?;
    Ok(UserKey(bytes))
}

/// Reads the key from the file in `keylocation`. Unless it is to be followed, only the user's own rights
/// apply.
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
    let key = read_key(Path::new(path), caller);
    key.inspect_err(|error| caller.note(format!("key of {}: {path}: {error}", info.root))).ok()
}

/// Reads a key from a regular file with the caller's rights.
pub fn read_key(path: &Path, caller: &Caller) -> io::Result<UserKey> {
    match caller.rights {
        // The path may come from the pool: it may be a pipe without a writer.
        Rights::All if !std::fs::metadata(path)?.is_file() => Err(not_regular()),
        _ => material(opened(path, caller)?),
    }
}

fn opened(path: &Path, caller: &Caller) -> io::Result<File> {
    match caller.rights {
        Rights::All => File::open(path),
        Rights::Look => Err(io::ErrorKind::PermissionDenied.into()),
        Rights::Delegated => open_as(path, &caller.who),
    }
}

/// Opens a file with the rights of an unprivileged user.
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

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| Some(char::from(c).to_digit(16)? as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Prompts for a key at the terminal, twice for a new key; some may also be piped in. `None` without terminal
/// or pipe, or if the answer is empty.
fn ask(caller: &Caller, info: &EncryptionInfo, may_be_piped: bool) -> Option<UserKey> {
    match caller.console.input() {
        Input::Terminal => typed(caller, info, |text| caller.console.prompt(&text)),
        Input::Pipe(pipe) if may_be_piped => piped(pipe, info),
        Input::Pipe(_) | Input::None => None,
    }
}

/// Reads one line from the pipe and leaves the rest for later prompts; reads a raw key to the end.
fn piped(pipe: impl BufRead, info: &EncryptionInfo) -> Option<UserKey> {
    let key = match is_raw(info) {
        true => material(pipe).ok()?.0,
        false => {
            let mut line = Vec::new();
            pipe.take(MAX_KEY_BYTES).read_until(b'\n', &mut line).ok()?;
            line
        }
    };
    (!key.is_empty()).then_some(UserKey(key))
}

fn typed(
    caller: &Caller,
    info: &EncryptionInfo,
    mut prompt: impl FnMut(String) -> Option<String>,
) -> Option<UserKey> {
    let root = &info.root;
    if is_raw(info) {
        caller.note(format!(
            "the key of '{root}' is raw and can't be typed; give it with --key {root}=file:PATH"
        ));
        return None;
    }
    let mut ask = |text| prompt(text).filter(|answer| !answer.is_empty());
    if !info.is_new() {
        return ask(format!("Key for {root} (Enter to continue without it): "))
            .map(|key| UserKey(key.into_bytes()));
    }
    let key = ask(format!("Enter new key for '{root}': "))?;
    if ask(format!("Re-enter new key for '{root}': "))? != key {
        caller.note("the keys do not match");
        return None;
    }
    Some(UserKey(key.into_bytes()))
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

    #[test]
    fn a_key_from_a_pipe_is_a_line_but_a_raw_one_is_all() {
        let mut pipe = &b"first line\nsecond\n"[..];
        assert_eq!(piped(&mut pipe, &info(3)).unwrap().0, b"first line\n");
        assert_eq!(piped(&mut pipe, &info(2)).unwrap().0, b"second\n");
        assert!(piped(&mut pipe, &info(3)).is_none());
        assert_eq!(piped(&b"a\nb\n"[..], &info(1)).unwrap().0, b"a\nb\n");
        let endless = io::BufReader::new(io::repeat(b'x'));
        assert_eq!(piped(endless, &info(3)).unwrap().0.len() as u64, MAX_KEY_BYTES);
    }

    #[test]
    fn a_new_key_is_typed_twice() {
        let new = EncryptionInfo { key_object: ObjectId(0), ..info(3) };
        let type_in = |info: &EncryptionInfo, answers: &[&str]| {
            let mut answers = answers.iter();
            let key = typed(&nobody(), info, |_| answers.next().map(|answer| answer.to_string()));
            assert!(answers.next().is_none(), "all are asked for");
            key.map(|key| key.0)
        };
        assert_eq!(type_in(&new, &["longpassword", "longpassword"]).unwrap(), b"longpassword");
        assert!(type_in(&new, &["longpassword", "longpasswort"]).is_none());
        assert_eq!(type_in(&info(3), &["any"]).unwrap(), b"any");
        assert!(type_in(&info(3), &[""]).is_none() && type_in(&info(1), &[]).is_none());
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
