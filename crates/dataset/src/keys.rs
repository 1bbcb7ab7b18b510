//! Keys of encrypted datasets: from the user's key to the key of a block.
//!
//! Idea: each encryption root has a wrapping key, derived from the user's key. Every directory below it has a
//! key object in the MOS with a master key wrapped by it. Clones and snapshots share their directory's key.
//! To open a dataset:
//!
//! ```text
//!   dsl_dir --crypto_key_obj--> key object: suite, guid, iv, mac, wrapped keys
//!                                 |  root_ddobj --> encryption root: name, keyformat, salt, rounds
//!   KeySource(root) --> passphrase | hex | raw --> WrappingKey --unwrap--> DatasetKey
//! ```
//!
//! Deriving a key from a passphrase takes a tenth of a second by design, so wrapping keys and unwrapped keys
//! are cached. The MAC over the wrapped keys detects a wrong key.
//!
//! A pool that stays open never asks for keys: they are loaded and unloaded explicitly ([`Keyring::load`],
//! [`Keyring::unload`]), and a command that makes a new key supplies it.
//!
//! Source: OpenZFS `dsl_crypt.c`, `libzfs_crypto.c`.

mod keyring;

use std::sync::Arc;

pub use keyring::{EncryptionInfo, KeyFormat, KeyStatus};
pub use keyring::{Keyring, ask_key};

/// User's key of an encryption root, as typed or read: a line with a passphrase or 64 hex digits, or 32
/// bytes.
#[derive(Clone)]
pub struct UserKey(pub Vec<u8>);

// Keys must not appear in logs.
impl std::fmt::Debug for UserKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UserKey({} bytes)", self.0.len())
    }
}

/// Source of keys, called once for each encryption root with its parameters.
///
/// The call may block (for a terminal prompt), so it runs on a blocking thread.
#[derive(Clone, Default)]
pub struct KeySource(Place);

type Ask = dyn Fn(&EncryptionInfo) -> Option<UserKey> + Send + Sync;

#[derive(Clone, Default)]
enum Place {
    #[default]
    Nowhere,
    Ask(Arc<Ask>),
}

impl KeySource {
    /// Keys from a function; `None` leaves the dataset locked.
    pub fn new(ask: impl Fn(&EncryptionInfo) -> Option<UserKey> + Send + Sync + 'static) -> KeySource {
        KeySource(Place::Ask(Arc::new(ask)))
    }

    /// Asks for a key.
    pub fn ask(&self, info: &EncryptionInfo) -> Option<UserKey> {
        match &self.0 {
            Place::Nowhere => None,
            Place::Ask(ask) => ask(info),
        }
    }
}

impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self.0, Place::Nowhere) { "KeySource(none)" } else { "KeySource(some)" })
    }
}
