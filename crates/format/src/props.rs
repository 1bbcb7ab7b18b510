//! Properties, their defaults and the names of their values.
//!
//! Idea: a set property is a number or text in the ZAP of its `dsl_dir` (or of its snapshot or pool).
//! Inheritable kinds then take an ancestor's setting, others the default from this table. `NAME$recvd` is a
//! received value, `NAME$inherit` hides it, `NAME$iuv` marks a user property as inherited. A name with a
//! colon is a user property, always text.
//!
//! The tables follow the order of `zfs get all` and `zpool get all`.
//!
//! Source: OpenZFS `zfs_prop.c`, `zpool_prop.c`, `zfs_prop.h`, `dsl_prop.h`.

mod dataset;
mod index;
mod pool;

pub use dataset::ZFS_PROPS;
pub use index::{SPA_COMPRESSBITS, SPA_COMPRESSMASK, ZIO_CHECKSUM_VERIFY};
pub use pool::ZPOOL_PROPS;

/// Key suffix of a received value, `ZPROP_RECVD_SUFFIX`.
pub const ZPROP_RECVD_SUFFIX: &str = "$recvd";
/// Key suffix: inheritance overrides the received value, `ZPROP_INHERIT_SUFFIX`.
pub const ZPROP_INHERIT_SUFFIX: &str = "$inherit";

/// Name and on-disk number of an index value.
pub type IndexValue = (&'static str, u64);

/// Value type with its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropType {
    /// Number.
    Number {
        /// Default value.
        default: u64,
    },
    /// Text.
    String {
        /// Default value.
        default: Option<&'static str>,
    },
    /// Enumeration stored as a number.
    Index {
        /// Default value.
        default: u64,
        /// Names and numbers.
        values: &'static [IndexValue],
    },
}

/// Whether a property can be set, and its fallback, `zprop_attr_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropKind {
    /// Settable, not inherited.
    Default,
    /// Read-only.
    ReadOnly,
    /// Settable, inherited.
    Inherit,
    /// Settable at creation, else inherited.
    OneTime,
    /// Settable at creation, else default.
    OneTimeDefault,
}

/// Set of `FS`, `SNAP`, `VOL`, `POOL`, `MARK`, with OpenZFS's bits (`zfs_type_t`).
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

    /// Whether the sets intersect.
    pub const fn overlaps(self, other: AppliesTo) -> bool {
        self.0 & other.0 != 0
    }
}

/// Property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prop {
    /// Property name.
    pub name: &'static str,
    /// Column heading in `zfs list -o` and `zpool list -o`.
    pub column: &'static str,
    /// Value type.
    pub value: PropType,
    /// Settability and inheritance.
    pub kind: PropKind,
    /// Datasets with it.
    pub applies: AppliesTo,
    /// Shown by `get all`; the rest are internal or obsolete.
    pub visible: bool,
}

impl Prop {
    /// Finds a dataset property.
    pub fn zfs(name: &str) -> Option<&'static Prop> {
        ZFS_PROPS.iter().find(|p| p.name == name)
    }

    /// Finds a pool property.
    pub fn zpool(name: &str) -> Option<&'static Prop> {
        ZPOOL_PROPS.iter().find(|p| p.name == name)
    }

    /// Whether this is its name or column heading (ignoring case).
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.column.eq_ignore_ascii_case(name)
    }

    /// Whether descendants inherit it.
    pub fn is_inheritable(&self) -> bool {
        matches!(self.kind, PropKind::Inherit | PropKind::OneTime)
    }

    /// Whether it is read-only.
    pub fn is_read_only(&self) -> bool {
        self.kind == PropKind::ReadOnly
    }

    /// Whether only creation can set it.
    pub fn is_one_time(&self) -> bool {
        matches!(self.kind, PropKind::OneTime | PropKind::OneTimeDefault)
    }

    /// Name of an index value; `None` for other types and unknown numbers.
    pub fn index_name(&self, number: u64) -> Option<&'static str> {
        self.index_values().iter().find(|(_, n)| *n == number).map(|(name, _)| *name)
    }

    /// Number of an index value.
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
