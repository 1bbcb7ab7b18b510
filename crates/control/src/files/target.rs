//! `pool/dataset[@snapshot][:/path]`.
//!
//! Input is taken byte for byte. The quoted form printed by this program is accepted wherever a name can be
//! typed:
//!
//! * A target that begins with `$'` is expanded as bash would: no dataset name begins that way.
//! * Later in a target, `$'...'` is expanded only if no file has the literal name: this allows
//!   `tank:/folder/` followed by a name from `ls`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use cenote_format::text_or_bytes::maybe;
use cenote_fs::{Filesystem, LastLink};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::session::pool_of;
use crate::text::{quoted, unquoted};

/// A dataset, with an optional path in it. In JSON, `"pool/dataset:/path"` stands for it, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written")]
pub struct Target {
    /// `pool/dataset[@snapshot]`.
    pub dataset: String,
    /// The path from the dataset's root, if given.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    #[schemars(with = "Option<cenote_format::text_or_bytes::TextOrBytes>")]
    pub path: Option<Vec<u8>>,
    /// The path as a shell would expand it, if that differs.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    #[schemars(with = "Option<cenote_format::text_or_bytes::TextOrBytes>")]
    unquoted: Option<Vec<u8>>,
}

/// A target in JSON.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    /// As typed.
    Text(String),
    /// In parts, which may be other than UTF-8.
    Parts {
        /// `pool/dataset[@snapshot]`.
        dataset: String,
        /// The path from the dataset's root.
        #[serde(default, with = "maybe")]
        #[schemars(with = "Option<cenote_format::text_or_bytes::TextOrBytes>")]
        path: Option<Vec<u8>>,
        /// The path as a shell would expand it, if that differs.
        #[serde(default, with = "maybe")]
        #[schemars(with = "Option<cenote_format::text_or_bytes::TextOrBytes>")]
        unquoted: Option<Vec<u8>>,
    },
}

impl TryFrom<Written> for Target {
    type Error = String;

    fn try_from(written: Written) -> Result<Target, String> {
        match written {
            Written::Text(text) => text.parse(),
            Written::Parts { dataset, path, unquoted } => Ok(Target { dataset, path, unquoted }),
        }
    }
}

impl Target {
    /// Parses a typed target.
    pub fn parse(typed: &OsStr) -> Result<Target, String> {
        let typed = typed.as_bytes();
        let wrong = || {
            let typed = quoted(typed);
            format!("'{typed}' names no dataset: give POOL/DATASET[@SNAPSHOT][:/PATH]")
        };
        if typed.starts_with(b"$'") {
            let target = Target::read(&unquoted(typed).ok_or_else(wrong)?).ok_or_else(wrong)?;
            return Ok(Target { unquoted: None, ..target });
        }
        Target::read(typed).ok_or_else(wrong)
    }

    fn read(bytes: &[u8]) -> Option<Target> {
        // Names of datasets and snapshots may contain a colon, so a path starts at ":/". A final colon means
        // the root.
        let (dataset, path) = match (bytes.windows(2).position(|two| two == b":/"), bytes.strip_suffix(b":"))
        {
            (Some(at), _) => (&bytes[..at], Some(bytes[at + 1..].to_vec())),
            (None, Some(dataset)) => (dataset, Some(b"/".to_vec())),
            (None, None) => (bytes, None),
        };
        let dataset = std::str::from_utf8(dataset).ok()?;
        if dataset.is_empty() || dataset.starts_with('/') || dataset.ends_with('/') || dataset.contains("//")
        {
            return None;
        }
        let unquoted = path.as_deref().and_then(unquoted);
        Some(Target { dataset: dataset.into(), path, unquoted })
    }

    /// The pool's name.
    pub fn pool(&self) -> &str {
        pool_of(&self.dataset)
    }

    /// The path, or `/` if none was given.
    pub fn path_or_root(&self) -> &[u8] {
        self.path.as_deref().unwrap_or(b"/")
    }

    /// The path to use in this file system: as typed, unless only the shell-expanded form or its parent
    /// folder exists.
    pub async fn path_in(&self, fs: &Filesystem) -> &[u8] {
        let typed = self.path_or_root();
        let Some(other) = &self.unquoted else { return typed };
        let is_there = async |path: &[u8]| fs.resolve(path, LastLink::Keep).await.is_ok();
        for (typed_part, other_part) in [(typed, &**other), (split_path(typed).0, split_path(other).0)] {
            if is_there(typed_part).await {
                return typed;
            }
            if is_there(other_part).await {
                return other;
            }
        }
        typed
    }
}

/// A path's parent folder and last name; the name is empty for the root.
pub fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    (&path[..start], &path[start..end])
}

/// In a form that can be typed back.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dataset = self.dataset.as_bytes();
        f.write_str(&match &self.path {
            Some(path) => quoted(&[dataset, b":", path].concat()),
            None => quoted(dataset),
        })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        Target::parse(OsStr::new(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_begins_with_colon_slash() {
        let target: Target = "tank/home:x@snap:/a:/b".parse().unwrap();
        assert_eq!(target.dataset, "tank/home:x@snap");
        assert_eq!(target.path.as_deref(), Some(&b"/a:/b"[..]));
        assert_eq!(target.pool(), "tank");
        assert_eq!("tank@s".parse::<Target>().unwrap().pool(), "tank");
        assert_eq!("tank/a:".parse::<Target>().unwrap(), "tank/a:/".parse().unwrap());
        assert!("/tank".parse::<Target>().is_err());
        assert!(":/x".parse::<Target>().is_err());
    }

    #[test]
    fn a_path_is_split_at_its_last_name() {
        for (path, folder, name) in
            [("/a/b", "/a/", "b"), ("/a/b//", "/a/", "b"), ("/a", "/", "a"), ("//", "", "")]
        {
            assert_eq!(split_path(path.as_bytes()), (folder.as_bytes(), name.as_bytes()), "{path}");
        }
    }

    #[test]
    fn targets_are_bytes_unless_they_begin_quoted() {
        for path in [&b"/\xff"[..], b"/a\\x41", b"/a\nb", b"/$'a'", b"/it's"] {
            let typed = [b"tank/home:", path].concat();
            let target = Target::parse(OsStr::from_bytes(&typed)).unwrap();
            assert_eq!(target.path_or_root(), path);
            let again: Target = target.to_string().parse().unwrap();
            assert_eq!((&again.dataset, again.path_or_root()), (&target.dataset, path));
        }
        assert!("$'tank:/open".parse::<Target>().is_err());
        assert!(Target::parse(OsStr::from_bytes(b"\xff:/a")).is_err());
    }
}
