//! Whether this engine may change a pool.
//!
//! It refuses pools with features that each write or free must maintain and that it does not write, such as
//! accounts of the oldest versions. Reading needs none.

use cenote_dataset::Mos;
use cenote_format::bytes::Endian;
use cenote_format::features::Since;
use cenote_object::{DatasetError, Result};

/// Refuses a pool that this engine would damage.
pub(crate) async fn check(mos: &Mos) -> Result<()> {
    let refused = |why: &str| {
        let why = format!("can be read here but not changed: {why}; OpenZFS can change it");
        Err(DatasetError::Unsuitable { name: mos.pool().name().into(), why: why.into() })
    };
    if mos.uberblock().endian != Endian::NATIVE {
        return refused("it was written by a machine of the other byte order");
    }
    if !mos.uberblock().has(Since::Unique) {
        return refused("its version is older than 9: `zpool upgrade` brings it up to date");
    }
    // Missing log devices are acceptable.
    if !mos.pool().status().is_importable() {
        let why =
            "can be read in part but not changed: devices that it can't do without are missing or cut short";
        return Err(DatasetError::Unsuitable { name: mos.pool().name().into(), why: why.into() });
    }
    let in_the_way = mos.features_in_the_way().await?;
    match &in_the_way[..] {
        [] => Ok(()),
        [one] => refused(&format!("it uses the feature {one}, which is not written here")),
        several => refused(&format!("it uses features that are not written here: {}", several.join(", "))),
    }
}
