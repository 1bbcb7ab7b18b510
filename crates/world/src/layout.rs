//! The pool's layout, its disks and its encryption.

use cenote_control::zfs::properties::settings::Setting;
use cenote_control::zpool::layout::{self, Layout as Vdevs};
use cenote_control::zpool::whole::create::Create;
use cenote_runtime::Rng;

use crate::machine::{POOL, path_of};

/// Disks of a machine: those of the widest layout, and some to replace them.
pub const DISKS: usize = 8;

/// Layouts, in the words of `zpool create`, with numbers for disks.
const LAYOUTS: [&str; 19] = [
    "0",
    "0 1",
    "mirror 0 1",
    "mirror 0 1 2",
    "mirror 0 1 mirror 2 3",
    "raidz1 0 1 2",
    "raidz2 0 1 2 3",
    "raidz3 0 1 2 3 4",
    "draid1:2d:4c:0s 0 1 2 3",
    "draid1:2d:5c:1s 0 1 2 3 4",
    "draid2:2d:6c:1s 0 1 2 3 4 5",
    "mirror 0 1 log 2",
    "mirror 0 1 log mirror 2 3",
    "raidz1 0 1 2 log mirror 3 4",
    "raidz2 0 1 2 3 special mirror 4 5",
    "mirror 0 1 special mirror 2 3 log 4 cache 5",
    "raidz1 0 1 2 cache 3",
    "mirror 0 1 spare 2",
    "raidz1 0 1 2 spare 3 4",
];

/// How keys look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFormat {
    /// 32 bytes.
    Raw,
    /// Text, from which the key is derived.
    Passphrase,
}

/// A pool to be created.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Vdevs, in words.
    pub words: String,
    /// The sector size of each disk of the machine.
    pub sectors_bytes: Vec<u32>,
    /// Everything is encrypted.
    pub key: Option<KeyFormat>,
    /// Several hosts share the disks: multihost is on.
    pub is_shared: bool,
}

impl Layout {
    /// Draws one.
    pub fn draw(rng: &mut Rng) -> Layout {
        let words = LAYOUTS[rng.below(LAYOUTS.len() as u64) as usize].to_owned();
        let sectors_bytes = match rng.below(5) {
            0 | 1 => vec![512; DISKS],
            2 | 3 => vec![4096; DISKS],
            _ => (0..DISKS).map(|_| if rng.chance(0.5) { 512 } else { 4096 }).collect(),
        };
        let key = match rng.below(8) {
            0 | 1 => Some(KeyFormat::Raw),
            2 => Some(KeyFormat::Passphrase),
            _ => None,
        };
        Layout { words, sectors_bytes, key, is_shared: false }
    }

    /// Properties of the root file system; `key_file` is a path.
    pub fn settings(&self, key_file: &str) -> Vec<Setting> {
        let mut all = vec![("canmount", "off".into()), ("atime", "off".into())];
        if let Some(format) = self.key {
            let format = if format == KeyFormat::Raw { "raw" } else { "passphrase" };
            all.extend([
                ("encryption", "on".to_owned()),
                ("keyformat", format.into()),
                ("keylocation", format!("file://{key_file}")),
            ]);
        }
        if self.key == Some(KeyFormat::Passphrase) {
            // The fewest allowed: deriving keys would take most of a world's time.
            all.push(("pbkdf2iters", "100000".into()));
        }
        let setting = |(property, value): (&str, String)| Setting { property: property.into(), value };
        all.into_iter().map(setting).collect()
    }
}

/// The request for the pool, on vdevs in words.
///
/// # Errors
/// The words are wrong.
pub fn new_pool(words: &str, is_shared: bool, root_properties: Vec<Setting>) -> Result<Create, String> {
    let multihost = Setting { property: "multihost".into(), value: "on".into() };
    Ok(Create {
        pool: POOL.into(),
        layout: vdevs(words)?,
        properties: Vec::from_iter(is_shared.then_some(multihost)),
        no_features: false,
        root_properties,
        altroot: None,
        force: true,
        dry_run: false,
    })
}

/// Vdevs, in words, with numbers for disks.
///
/// # Errors
/// The words are wrong.
pub fn vdevs(words: &str) -> Result<Vdevs, String> {
    let word = |word: &str| match word.parse() {
        Ok(disk) => path_of(disk).to_string_lossy().into_owned(),
        Err(_) => word.to_owned(),
    };
    layout::parse(&words.split(' ').map(word).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_layouts_are_valid_and_leave_disks_to_spare() {
        for words in LAYOUTS {
            let vdevs = vdevs(words).unwrap_or_else(|why| panic!("{words}: {why}"));
            assert!(vdevs.devices().len() + 2 <= DISKS, "{words}");
        }
    }
}
