//! Delegated permissions: the tables of `zfs allow`.
//!
//! ```text
//!   directory --dd_deleg_zapobj--> ZAP: key --> ZAP whose names are permissions or sets; their values are 0
//!
//!   u l $ 1000    user 1000, the dataset itself          g d $ 4     group 4, its descendants
//!   e l $         everyone                               c - $       creator of a dataset below
//!   s - $ @set    contents of a set                      U G E C S   as above, but names of sets
//! ```
//!
//! Source: OpenZFS `zfs_deleg.c` (`zfs_deleg_whokey`, `zfs_deleg_perm_tab`), `zfs_namecheck.c`
//! (`permset_namecheck`).

use std::fmt;

use crate::props::Prop;

/// `ZFS_PERMSET_MAXLEN` without the NUL.
const MAX_SET_NAME_BYTES: usize = 63;

/// Permissions other than properties.
pub const PERMISSIONS: [&str; 34] = [
    "allow",
    "bookmark",
    "change-key",
    "clone",
    "create",
    "destroy",
    "diff",
    "groupobjquota",
    "groupobjused",
    "groupquota",
    "groupused",
    "hold",
    "load-key",
    "mount",
    "projectobjquota",
    "projectobjused",
    "projectquota",
    "projectused",
    "promote",
    "receive",
    "receive:append",
    "release",
    "rename",
    "rollback",
    "send",
    "send:encrypted",
    "send:raw",
    "share",
    "snapshot",
    "userobjquota",
    "userobjused",
    "userprop",
    "userquota",
    "userused",
];

/// Whether the permission exists: a verb, or a settable property.
pub fn is_permission(name: &str) -> bool {
    let is_delegatable = |prop: &Prop| !prop.is_read_only() && prop.name != "mlslabel";
    PERMISSIONS.contains(&name) || Prop::zfs(name).is_some_and(is_delegatable)
}

/// Whether the name is valid for a permission set.
pub fn is_set_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
    let own = name.strip_prefix('@').filter(|_| name.len() <= MAX_SET_NAME_BYTES);
    own.is_some_and(|own| !own.is_empty() && own.chars().all(is_allowed))
}

/// Grantee.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Permission set, with `@`.
    Set(String),
    /// Creator of a descendant dataset.
    Creator,
    /// User.
    User(u64),
    /// Group.
    Group(u64),
    /// Everyone.
    Everyone,
}

/// Scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Dataset itself.
    Local,
    /// Descendants and snapshots.
    Descendent,
    /// Unspecified, for sets and creators.
    Any,
}

/// Key of a directory's table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelegKey {
    /// Grantee.
    pub who: Who,
    /// Scope.
    pub reach: Reach,
    /// Whether the entries are sets, not permissions.
    pub of_sets: bool,
}

impl DelegKey {
    /// Parses a key; `None` if its kind is unknown.
    pub fn parse(key: &str) -> Option<DelegKey> {
        let (kind, name) = key.split_once('$')?;
        let mut kind = kind.chars();
        let (Some(letter), Some(reach), None) = (kind.next(), kind.next(), kind.next()) else { return None };
        let is_digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let id = || name.parse().ok().filter(|_| is_digits);
        let who = match letter.to_ascii_lowercase() {
            'u' => Who::User(id()?),
            'g' => Who::Group(id()?),
            'e' if name.is_empty() => Who::Everyone,
            'c' if name.is_empty() => Who::Creator,
            's' => Who::Set(name.to_owned()),
            _ => return None,
        };
        let reach = match (reach, &who) {
            ('-', Who::Set(_) | Who::Creator) => Reach::Any,
            ('l', Who::User(_) | Who::Group(_) | Who::Everyone) => Reach::Local,
            ('d', Who::User(_) | Who::Group(_) | Who::Everyone) => Reach::Descendent,
            _ => return None,
        };
        Some(DelegKey { who, reach, of_sets: letter.is_ascii_uppercase() })
    }
}

impl fmt::Display for DelegKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.who {
            Who::Set(_) => 's',
            Who::Creator => 'c',
            Who::User(_) => 'u',
            Who::Group(_) => 'g',
            Who::Everyone => 'e',
        };
        let letter = if self.of_sets { letter.to_ascii_uppercase() } else { letter };
        let reach = match self.reach {
            Reach::Local => 'l',
            Reach::Descendent => 'd',
            Reach::Any => '-',
        };
        write!(f, "{letter}{reach}$")?;
        match &self.who {
            Who::Set(name) => f.write_str(name),
            Who::User(id) | Who::Group(id) => write!(f, "{id}"),
            Who::Creator | Who::Everyone => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        for key in ["ul$1000", "Ud$0", "gd$4", "el$", "Ed$", "c-$", "C-$", "s-$@a", "S-$@a.b"] {
            assert_eq!(DelegKey::parse(key).unwrap().to_string(), key);
        }
        for key in ["", "ul", "u-$1", "ul$", "ul$+1", "xl$1", "e-$", "el$1", "c-$x", "sl$@a", "uld$1"] {
            assert_eq!(DelegKey::parse(key), None, "{key}");
        }
    }

    #[test]
    fn what_can_be_delegated() {
        for name in ["create", "send:raw", "compression", "quota"] {
            assert!(is_permission(name), "{name}");
        }
        for name in ["creation", "mlslabel", "@set", "nonsense", ""] {
            assert!(!is_permission(name), "{name}");
        }
        assert!(is_set_name("@a-b") && !is_set_name("@") && !is_set_name("a") && !is_set_name("@a/b"));
        assert!(!is_set_name(&format!("@{}", "x".repeat(63))));
    }
}
