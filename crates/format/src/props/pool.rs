//! Pool properties. For the `feature@NAME` properties, see `features`.

use super::Prop;
use super::index::*;
use super::row::*;

/// OpenZFS 2.3's pool properties, in its order.
#[rustfmt::skip]
pub static ZPOOL_PROPS: [Prop; 40] = [
    hidden(string("name", "NAME", ReadOnly, POOL, None)),
    number("size", "SIZE", ReadOnly, POOL, 0),
    number("capacity", "CAP", ReadOnly, POOL, 0),
    string("altroot", "ALTROOT", Default, POOL, None),
    number("health", "HEALTH", ReadOnly, POOL, 0),
    number("guid", "GUID", ReadOnly, POOL, 0),
    number("version", "VERSION", Default, POOL, 5000),
    string("bootfs", "BOOTFS", Default, POOL, None),
    index("delegation", "DELEGATION", Default, POOL, 1, BOOLEAN),
    index("autoreplace", "REPLACE", Default, POOL, 0, BOOLEAN),
    string("cachefile", "CACHEFILE", Default, POOL, None),
    index("failmode", "FAILMODE", Default, POOL, 0, FAILUREMODE),
    index("listsnapshots", "LISTSNAPS", Default, POOL, 0, BOOLEAN),
    index("autoexpand", "EXPAND", Default, POOL, 0, BOOLEAN),
    hidden(number("dedupditto", "DEDUPDITTO", Default, POOL, 0)),
    number("dedupratio", "DEDUP", ReadOnly, POOL, 0),
    number("free", "FREE", ReadOnly, POOL, 0),
    number("allocated", "ALLOC", ReadOnly, POOL, 0),
    index("readonly", "RDONLY", Default, POOL, 0, BOOLEAN),
    number("ashift", "ASHIFT", Default, POOL, 0),
    string("comment", "COMMENT", Default, POOL, None),
    number("expandsize", "EXPANDSZ", ReadOnly, POOL, 0),
    number("freeing", "FREEING", ReadOnly, POOL, 0),
    number("fragmentation", "FRAG", ReadOnly, POOL, 0),
    number("leaked", "LEAKED", ReadOnly, POOL, 0),
    hidden(number("maxblocksize", "MAXBLOCKSIZE", ReadOnly, POOL, 0)),
    hidden(string("tname", "TNAME", OneTime, POOL, None)),
    hidden(number("maxdnodesize", "MAXDNODESIZE", ReadOnly, POOL, 0)),
    index("multihost", "MULTIHOST", Default, POOL, 0, BOOLEAN),
    number("checkpoint", "CKPOINT", ReadOnly, POOL, 0),
    number("load_guid", "LOAD_GUID", ReadOnly, POOL, 0),
    index("autotrim", "AUTOTRIM", Default, POOL, 0, BOOLEAN),
    string("compatibility", "COMPATIBILITY", Default, POOL, Some("off")),
    number("bcloneused", "BCLONE_USED", ReadOnly, POOL, 0),
    number("bclonesaved", "BCLONE_SAVED", ReadOnly, POOL, 0),
    number("bcloneratio", "BCLONE_RATIO", ReadOnly, POOL, 0),
    number("dedup_table_size", "DDTSIZE", ReadOnly, POOL, 0),
    number("dedup_table_quota", "DDTQUOTA", Default, POOL, u64::MAX),
    hidden(number("dedupcached", "DEDUPCACHED", ReadOnly, POOL, 0)),
    number("last_scrubbed_txg", "LAST_SCRUBBED_TXG", ReadOnly, POOL, 0),
];
