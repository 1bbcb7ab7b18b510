//! Keys of encrypted datasets: from what the user gives to what opens blocks.
//!
//! Idea: each encryption root has a wrapping key, which the user holds; every directory below it has a key
//! object in the MOS whose master key is wrapped with it. Clones and snapshots share their directory's.
//! Opening one:
//!
//! ```text
//!   dsl_dir --crypto_key_obj--> key object: suite, guid, iv, mac, wrapped keys
//!                                 |  root_ddobj --> encryption root: name, keyformat, salt, rounds
//!   KeySource(root) --> passphrase | hex | raw --> WrappingKey --unwrap--> DatasetKey
//! ```
//!
//! Deriving a key from a passphrase takes a tenth of a second by design: wrapping keys are kept by root,
//! unwrapped keys by key object. A wrong key is noticed here, by the MAC over the wrapped keys, before
//! anything is decrypted with it.
//!
//! A pool that stays open asks nobody: its keys are loaded and unloaded ([`Keyring::load`],
//! [`Keyring::unload`]), and a new key is asked of whoever makes it.
//!
//! Source: OpenZFS `dsl_crypt.c`, `libzfs_crypto.c`.

mod keyring;

use std::sync::Arc;

pub use keyring::{EncryptionInfo, KeyFormat, KeyStatus};
pub use keyring::{Keyring, ask_key};

/// What the user holds for an encryption root, as typed or read: a line with a passphrase or 64 hex digits,
/// or 32 bytes.
#[derive(Clone)]
pub struct UserKey(pub Vec<u8>);

// Keys do not belong in a log.
impl std::fmt::Debug for UserKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UserKey({} bytes)", self.0.len())
    }
}

/// Where keys come from: asked once for each encryption root, with what is known of it.
///
/// The call may block (it may ask at a terminal); it runs where that hurts nobody.
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
    /// Keys from a function; `None` means that there is none, and the dataset stays locked.
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
