//! Properties: which exist, their defaults, and the names of their values.
//!
//! Idea: a property that was set is an entry, a number or text, in the ZAP of its `dsl_dir` (or of its
//! snapshot, or of the pool). Everything else comes from this table. A setting of an ancestor is inherited
//! if the kind allows it. `NAME$recvd` is a received value, `NAME$inherit` hides it, `NAME$iuv` marks a
//! user property as inherited. A name with a colon is a user property, whose value is always text.
//!
//! The tables are in the order in which `zfs get all` and `zpool get all` print them.
//!
//! Source: OpenZFS `zfs_prop.c`, `zpool_prop.c`, `zfs_prop.h`, `dsl_prop.h`.

mod dataset;
mod index;
mod pool;

pub use dataset::ZFS_PROPS;
pub use index::{SPA_COMPRESSBITS, ZIO_CHECKSUM_VERIFY};
pub use pool::ZPOOL_PROPS;

/// Suffix of a received value's key, `ZPROP_RECVD_SUFFIX`.
pub const ZPROP_RECVD_SUFFIX: &str = "$recvd";
/// Suffix of the key that says a received value is overridden by inheritance, `ZPROP_INHERIT_SUFFIX`.
pub const ZPROP_INHERIT_SUFFIX: &str = "$inherit";

/// A name of an index property's value, and its number on disk.
pub type IndexValue = (&'static str, u64);

/// The type of a property's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropType {
    /// A number, with its default.
    Number {
        /// Value if it is set nowhere.
        default: u64,
    },
    /// Text, with its default.
    String {
        /// Value if it is set nowhere.
        default: Option<&'static str>,
    },
    /// One of a list of names, stored as a number.
    Index {
        /// Value if it is set nowhere.
        default: u64,
        /// The names and numbers.
        values: &'static [IndexValue],
    },
}

/// Who sets a property, and where its value comes from otherwise, `zprop_attr_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropKind {
    /// Can be set; not inherited.
    Default,
    /// Informs only; can't be set.
    ReadOnly,
    /// Can be set; inherited by descendants.
    Inherit,
    /// Can be set only at creation; inherited otherwise.
    OneTime,
    /// Can be set only at creation; the default otherwise.
    OneTimeDefault,
}

/// What a property applies to: a set of `FS`, `SNAP`, `VOL`, `POOL`, `MARK`, with OpenZFS's bits
/// (`zfs_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliesTo(u8);

impl AppliesTo {
    /// File systems.
    pub const FS: AppliesTo = AppliesTo(1 << 0);
    /// Snapshots.
    pub const SNAP: AppliesTo = AppliesTo(1 << 1);
    /// Volumes.
    pub const VOL: AppliesTo = AppliesTo(1 << 2);
    /// Pools.
    pub const POOL: AppliesTo = AppliesTo(1 << 3);
    /// Bookmarks.
    pub const MARK: AppliesTo = AppliesTo(1 << 4);

    /// Whether the sets have a member in common.
    pub const fn overlaps(self, other: AppliesTo) -> bool {
        self.0 & other.0 != 0
    }
}

/// A property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prop {
    /// Its name.
    pub name: &'static str,
    /// Heading of its column in `zfs list -o` and `zpool list -o`.
    pub column: &'static str,
    /// The type of its value.
    pub value: PropType,
    /// Who sets it, and whether it is inherited.
    pub kind: PropKind,
    /// The kinds of dataset that have it.
    pub applies: AppliesTo,
    /// Shown by `get all`; others are internal or obsolete.
    pub visible: bool,
}

impl Prop {
    /// The dataset property with this name.
    pub fn zfs(name: &str) -> Option<&'static Prop> {
        ZFS_PROPS.iter().find(|p| p.name == name)
    }

    /// The pool property with this name.
    pub fn zpool(name: &str) -> Option<&'static Prop> {
        ZPOOL_PROPS.iter().find(|p| p.name == name)
    }

    /// Whether this is its name or its column heading (in any case).
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.column.eq_ignore_ascii_case(name)
    }

    /// Whether descendants inherit the value.
    pub fn is_inheritable(&self) -> bool {
        matches!(self.kind, PropKind::Inherit | PropKind::OneTime)
    }

    /// Whether nobody can set it.
    pub fn is_read_only(&self) -> bool {
        self.kind == PropKind::ReadOnly
    }

    /// Whether it can be set only at creation.
    pub fn is_one_time(&self) -> bool {
        matches!(self.kind, PropKind::OneTime | PropKind::OneTimeDefault)
    }

    /// Name of an index property's value; `None` for other types and unknown numbers.
    pub fn index_name(&self, number: u64) -> Option<&'static str> {
        self.index_values().iter().find(|(_, n)| *n == number).map(|(name, _)| *name)
    }

    /// Number of an index property's value.
    pub fn index_number(&self, name: &str) -> Option<u64> {
        self.index_values().iter().find(|(n, _)| *n == name).map(|(_, number)| *number)
    }

    fn index_values(&self) -> &'static [IndexValue] {
        match self.value {
            PropType::Index { values, .. } => values,
            _ => &[],
        }
    }
}

/// Shorthand for writing the tables.
mod row {
    pub(super) use super::PropKind::{Default, Inherit, OneTime, OneTimeDefault, ReadOnly};
    use super::{AppliesTo, IndexValue, Prop, PropKind, PropType};

    pub(super) const FS: u8 = AppliesTo::FS.0;
    pub(super) const SNAP: u8 = AppliesTo::SNAP.0;
    pub(super) const VOL: u8 = AppliesTo::VOL.0;
    pub(super) const POOL: u8 = AppliesTo::POOL.0;
    pub(super) const MARK: u8 = AppliesTo::MARK.0;
    pub(super) const ALL: u8 = FS | SNAP | VOL;

    type Str = &'static str;

    const fn prop(name: Str, column: Str, kind: PropKind, applies: u8, value: PropType) -> Prop {
        Prop { name, column, value, kind, applies: AppliesTo(applies), visible: true }
    }

    pub(super) const fn number(name: Str, column: Str, kind: PropKind, applies: u8, default: u64) -> Prop {
        prop(name, column, kind, applies, PropType::Number { default })
    }

    pub(super) const fn string(
        name: Str,
        column: Str,
        kind: PropKind,
        applies: u8,
        default: Option<Str>,
    ) -> Prop {
        prop(name, column, kind, applies, PropType::String { default })
    }

    pub(super) const fn index(
        name: Str,
        column: Str,
        kind: PropKind,
        applies: u8,
        default: u64,
        values: &'static [IndexValue],
    ) -> Prop {
        prop(name, column, kind, applies, PropType::Index { default, values })
    }

    pub(super) const fn hidden(prop: Prop) -> Prop {
        Prop { visible: false, ..prop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_have_names() {
        for table in [&ZFS_PROPS[..], &ZPOOL_PROPS[..]] {
            for (i, prop) in table.iter().enumerate() {
                assert!(table[i + 1..].iter().all(|p| p.name != prop.name), "{}", prop.name);
                if let PropType::Index { default, .. } = prop.value
                    && prop.name != "version"
                {
                    assert!(prop.index_name(default).is_some(), "{}", prop.name);
                }
            }
        }
    }

    #[test]
    fn numbers_and_names_go_both_ways() {
        for prop in ZFS_PROPS.iter().chain(&ZPOOL_PROPS) {
            for (name, number) in prop.index_values() {
                assert_eq!(prop.index_number(name), Some(*number));
                let shown = prop.index_name(*number).unwrap();
                assert_eq!(prop.index_number(shown), Some(*number), "{} {name}", prop.name);
            }
        }
    }

    #[test]
    fn values_are_those_on_disk() {
        let compression = Prop::zfs("compression").unwrap();
        assert_eq!(compression.index_name(10), Some("gzip"));
        assert_eq!(compression.index_name(16 | 19 << 7), Some("zstd-19"));
        assert_eq!(compression.index_number("zstd-fast-1000"), Some(16 | 123 << 7));
        assert_eq!(compression.index_name(99), None);
        assert_eq!(Prop::zfs("dedup").unwrap().index_name(8 | 256), Some("sha256,verify"));
        assert!(compression.is_inheritable() && Prop::zfs("encryption").unwrap().is_one_time());
        assert!(Prop::zpool("health").unwrap().is_read_only());
    }

    #[test]
    fn tables_have_what_get_all_prints() {
        let visible = |applies| ZFS_PROPS.iter().filter(|p| p.visible && p.applies.overlaps(applies)).count();
        assert_eq!(ZFS_PROPS[0].name, "type");
        assert!(visible(AppliesTo::FS) > visible(AppliesTo::SNAP));
        assert_eq!(ZPOOL_PROPS.iter().find(|p| p.visible).unwrap().name, "size");
    }
}
