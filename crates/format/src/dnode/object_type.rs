//! Object types, `dmu_object_type_t`: content and treatment of an object's blocks.
//!
//! Idea: types below 54 are a fixed table. Since pool version 5000, new types state their traits in their
//! bits: `0x80` new style, `0x40` metadata, `0x20` encrypted in encrypted datasets, `0x1f` byte-swap class.
//!
//! Source: OpenZFS `dmu.h`, `dmu.c` (`dmu_ot`).

use std::fmt;

/// Object type, `dmu_object_type_t`. Any byte is valid; unknown types have no name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectType(pub u8);

const META: bool = true;
const DATA: bool = false;
const CRYPT: bool = true;
const CLEAR: bool = false;

/// New-style types, `DMU_OT_NEWTYPE`.
const DMU_OT_NEWTYPE: u8 = 0x80;
const DMU_OT_METADATA: u8 = 0x40;
const DMU_OT_ENCRYPTED: u8 = 0x20;
const DMU_OT_BYTESWAP_MASK: u8 = 0x1f;
/// Byte-swap classes.
const DMU_BSWAP_UINT32: u8 = 2;
const DMU_BSWAP_UINT64: u8 = 3;
const DMU_BSWAP_ZAP: u8 = 4;

macro_rules! object_types {
    ($(($name:ident, $meta:expr, $crypt:expr, $text:literal),)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Number { $($name),* }

        /// Numbers of `dmu.h`, without `DMU_OT_`.
        #[allow(missing_docs)]
        impl ObjectType {
            $(pub const $name: ObjectType = ObjectType(Number::$name as u8);)*
        }

        impl ObjectType {
            /// `DMU_OTN_ZAP_METADATA`: later pool ZAPs, and objects converted to ZAPs.
            pub const ZAP_METADATA: ObjectType = ObjectType(DMU_OT_NEWTYPE | DMU_OT_METADATA | DMU_BSWAP_ZAP);
            /// `DMU_OTN_UINT64_METADATA`: later pool arrays of words.
            pub const UINT64_METADATA: ObjectType =
                ObjectType(DMU_OT_NEWTYPE | DMU_OT_METADATA | DMU_BSWAP_UINT64);
            /// `DMU_OTN_UINT32_METADATA`: later pool arrays of half words.
            pub const UINT32_METADATA: ObjectType =
                ObjectType(DMU_OT_NEWTYPE | DMU_OT_METADATA | DMU_BSWAP_UINT32);
        }

        /// (metadata, encrypted, name) by number.
        const TABLE: &[(bool, bool, &str)] = &[$(($meta, $crypt, $text)),*];
    };
}

object_types! {
(NONE, META, CLEAR, "unallocated"),
(OBJECT_DIRECTORY, META, CLEAR, "object directory"),
(OBJECT_ARRAY, META, CLEAR, "object array"),
(PACKED_NVLIST, META, CLEAR, "packed nvlist"),
(PACKED_NVLIST_SIZE, META, CLEAR, "packed nvlist size"),
(BPOBJ, META, CLEAR, "bpobj"),
(BPOBJ_HDR, META, CLEAR, "bpobj header"),
(SPACE_MAP_HEADER, META, CLEAR, "SPA space map header"),
(SPACE_MAP, META, CLEAR, "SPA space map"),
(INTENT_LOG, META, CRYPT, "ZIL intent log"),
(DNODE, META, CRYPT, "DMU dnode"),
(OBJSET, META, CLEAR, "DMU objset"),
(DSL_DIR, META, CLEAR, "DSL directory"),
(DSL_DIR_CHILD_MAP, META, CLEAR, "DSL directory child map"),
(DSL_DS_SNAP_MAP, META, CLEAR, "DSL dataset snap map"),
(DSL_PROPS, META, CLEAR, "DSL props"),
(DSL_DATASET, META, CLEAR, "DSL dataset"),
(ZNODE, META, CLEAR, "ZFS znode"),
(OLDACL, META, CRYPT, "ZFS V0 ACL"),
(PLAIN_FILE_CONTENTS, DATA, CRYPT, "ZFS plain file"),
(DIRECTORY_CONTENTS, META, CRYPT, "ZFS directory"),
(MASTER_NODE, META, CLEAR, "ZFS master node"),
(UNLINKED_SET, META, CRYPT, "ZFS delete queue"),
(ZVOL, DATA, CRYPT, "zvol object"),
(ZVOL_PROP, META, CLEAR, "zvol prop"),
(PLAIN_OTHER, DATA, CRYPT, "other uint8[]"),
(UINT64_OTHER, DATA, CRYPT, "other uint64[]"),
(ZAP_OTHER, META, CLEAR, "other ZAP"),
(ERROR_LOG, META, CLEAR, "persistent error log"),
(SPA_HISTORY, META, CLEAR, "SPA history"),
(SPA_HISTORY_OFFSETS, META, CLEAR, "SPA history offsets"),
(POOL_PROPS, META, CLEAR, "Pool properties"),
(DSL_PERMS, META, CLEAR, "DSL permissions"),
(ACL, META, CRYPT, "ZFS ACL"),
(SYSACL, META, CRYPT, "ZFS SYSACL"),
(FUID, META, CRYPT, "FUID table"),
(FUID_SIZE, META, CLEAR, "FUID table size"),
(NEXT_CLONES, META, CLEAR, "DSL dataset next clones"),
(SCAN_QUEUE, META, CLEAR, "scan work queue"),
(USERGROUP_USED, META, CRYPT, "ZFS user/group/project used"),
(USERGROUP_QUOTA, META, CRYPT, "ZFS user/group/project quota"),
(USERREFS, META, CLEAR, "snapshot refcount tags"),
(DDT_ZAP, META, CLEAR, "DDT ZAP algorithm"),
(DDT_STATS, META, CLEAR, "DDT statistics"),
(SA, META, CRYPT, "System attributes"),
(SA_MASTER_NODE, META, CRYPT, "SA master node"),
(SA_ATTR_REGISTRATION, META, CRYPT, "SA attr registration"),
(SA_ATTR_LAYOUTS, META, CRYPT, "SA attr layouts"),
(SCAN_XLATE, META, CLEAR, "scan translations"),
(DEDUP, DATA, CRYPT, "deduplicated block"),
(DEADLIST, META, CLEAR, "DSL deadlist map"),
(DEADLIST_HDR, META, CLEAR, "DSL deadlist map hdr"),
(DSL_CLONES, META, CLEAR, "DSL dir clones"),
(BPOBJ_SUBOBJ, META, CLEAR, "bpobj subobj"),}

impl ObjectType {
    fn is_new_style(self) -> bool {
        self.0 & DMU_OT_NEWTYPE != 0
    }

    fn row(self) -> Option<&'static (bool, bool, &'static str)> {
        TABLE.get(usize::from(self.0))
    }

    /// Metadata: on the special vdev, with extra copies, accounted as metadata.
    pub fn is_metadata(self) -> bool {
        if self.is_new_style() { self.0 & DMU_OT_METADATA != 0 } else { self.row().is_some_and(|r| r.0) }
    }

    /// Ciphertext in encrypted datasets; other types are only authenticated.
    pub fn is_encrypted(self) -> bool {
        if self.is_new_style() { self.0 & DMU_OT_ENCRYPTED != 0 } else { self.row().is_some_and(|r| r.1) }
    }

    /// Whether the object is a ZAP.
    pub fn is_zap(self) -> bool {
        if self.is_new_style() {
            return self.0 & DMU_OT_BYTESWAP_MASK == DMU_BSWAP_ZAP;
        }
        matches!(
            self,
            Self::OBJECT_DIRECTORY
                | Self::DSL_DIR_CHILD_MAP
                | Self::DSL_DS_SNAP_MAP
                | Self::DSL_PROPS
                | Self::DIRECTORY_CONTENTS
                | Self::MASTER_NODE
                | Self::UNLINKED_SET
                | Self::ZVOL_PROP
                | Self::ZAP_OTHER
                | Self::ERROR_LOG
                | Self::POOL_PROPS
                | Self::DSL_PERMS
                | Self::NEXT_CLONES
                | Self::SCAN_QUEUE
                | Self::USERGROUP_USED
                | Self::USERGROUP_QUOTA
                | Self::USERREFS
                | Self::DDT_ZAP
                | Self::DDT_STATS
                | Self::SA_MASTER_NODE
                | Self::SA_ATTR_REGISTRATION
                | Self::SA_ATTR_LAYOUTS
                | Self::SCAN_XLATE
                | Self::DEADLIST
                | Self::DSL_CLONES
        )
    }
}

impl fmt::Display for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some(row) if !self.is_new_style() => f.pad(row.2),
            _ => write!(f, "type {:#x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_traits_follow_the_table() {
        assert_eq!(ObjectType::DNODE.0, 10);
        assert_eq!(ObjectType::PLAIN_FILE_CONTENTS.0, 19);
        assert_eq!(ObjectType::BPOBJ_SUBOBJ.0, 53);
        assert!(ObjectType::DNODE.is_metadata() && ObjectType::DNODE.is_encrypted());
        assert!(!ObjectType::PLAIN_FILE_CONTENTS.is_metadata());
        assert!(ObjectType::ZAP_OTHER.is_zap());
    }

    #[test]
    fn new_style_types_say_their_traits_themselves() {
        let metadata_zap = ObjectType(0xc4);
        assert!(metadata_zap.is_metadata() && metadata_zap.is_zap() && !metadata_zap.is_encrypted());
        assert_eq!(metadata_zap.to_string(), "type 0xc4");
    }
}
