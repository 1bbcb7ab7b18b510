//! Valid names of file systems, snapshots and bookmarks.
//!
//! ```text
//!   pool/a/b        parts of letters, digits and -_.: and blanks, at most 50 deep, 255 bytes in all
//!   pool/a/b@snap   one more part
//!   pool/a/b#mark
//! ```
//!
//! Source: OpenZFS `zfs_namecheck.c` (`entity_namecheck`, `dataset_namecheck`, `snapshot_namecheck`),
//! `libzfs_dataset.c` (`zfs_validate_name`), including the messages.

use cenote_object::{DatasetError, Result};

/// `ZFS_MAX_DATASET_NAME_LEN` without the NUL.
pub const MAX_NAME_BYTES: usize = 255;
/// `zfs_max_dataset_nesting`.
const MAX_NESTING: usize = 50;

/// Whether a dataset is `top` or below it.
pub fn is_at_or_below(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Splits a new file system's or volume's name into parent and last part.
pub fn split_child(name: &str) -> Result<(&str, &str)> {
    check(name, None)?;
    name.rsplit_once('/').ok_or_else(|| bad(name, "operation does not apply to pools"))
}

/// Splits `pool/a@s` or `pool/a#s`.
pub fn split_at(name: &str, delimiter: char) -> Result<(&str, &str)> {
    check(name, Some(delimiter))?;
    name.split_once(delimiter).ok_or_else(|| {
        bad(name, &format!("missing '{delimiter}' delimiter in {} name", version_of(delimiter)))
    })
}

/// Checks a name with only `delimiter` between dataset and version.
pub fn check(name: &str, delimiter: Option<char>) -> Result<()> {
    if name.len() > MAX_NAME_BYTES {
        return Err(bad(name, "name is too long"));
    }
    let (path, version) = match delimiter.and_then(|delimiter| name.split_once(delimiter)) {
        Some((path, version)) => (path, Some(version)),
        None => (name, None),
    };
    if path.matches('/').count() >= MAX_NESTING {
        return Err(bad(name, "maximum name nesting depth exceeded"));
    }
    for part in path.split('/').chain(version) {
        if part.is_empty() {
            return Err(bad(name, "empty component or misplaced '@' or '#' delimiter in name"));
        }
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
        if let Some(odd) = part.chars().find(|c| !is_allowed(*c)) {
            return Err(bad(name, &unexpected(odd)));
        }
    }
    if path.split('/').any(|part| part == "." || part == "..") {
        return Err(bad(name, "self or parent reference, '.' or '..', is found in name"));
    }
    Ok(())
}

/// OpenZFS's message for a misplaced character.
fn unexpected(odd: char) -> String {
    match odd {
        '@' => "snapshot delimiter '@' is not expected here".into(),
        '#' => "bookmark delimiter '#' is not expected here".into(),
        '%' => "invalid character % in name".into(),
        odd => format!("invalid character '{odd}' in name"),
    }
}

fn version_of(delimiter: char) -> &'static str {
    if delimiter == '#' { "bookmark" } else { "snapshot" }
}

fn bad(name: &str, why: &str) -> DatasetError {
    DatasetError::BadName { name: name.into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_odd_ones_refused() {
        assert_eq!(split_child("p/a b/c:1.x").unwrap(), ("p/a b", "c:1.x"));
        assert_eq!(split_at("p/a@s-1", '@').unwrap(), ("p/a", "s-1"));
        assert_eq!(split_at("p@..", '@').unwrap(), ("p", ".."));
        let deep = vec!["a"; MAX_NESTING + 1].join("/");
        let long = format!("p/{}", "x".repeat(254));
        for name in ["p", "", "p/", "/p", "p//a", "p/.", "p/../a", "p/a@s", "p/$a", "p/a%", &deep, &long] {
            assert!(split_child(name).is_err(), "{name}");
        }
        for name in ["p/a", "p/a@", "p/a@b@c", "p/a@b/c", "p/a#b", "p/a@b#c"] {
            assert!(split_at(name, '@').is_err(), "{name}");
        }
    }
}
