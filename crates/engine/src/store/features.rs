//! How the pool's features have blocks written.

use cenote_codec::compress::Compression;
use cenote_dataset::{FeatureState, Mos};
use cenote_object::Result;

/// Features that change how blocks are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    /// Holes say in which txg they were made.
    pub(crate) hole_birth: bool,
    /// Small blocks stay in their pointers.
    pub(crate) embedded_data: bool,
    /// Gang headers fill the space that they take.
    pub(crate) large_gang_headers: bool,
    /// What `compression=on` means, and metadata has.
    pub(crate) compression: Compression,
}

impl Features {
    /// Those of the pool.
    pub(crate) async fn of(mos: &Mos) -> Result<Features> {
        let mut features = Features::default();
        for (feature, state) in mos.features().await? {
            match feature.guid {
                "com.delphix:hole_birth" => features.hole_birth = state == FeatureState::Active,
                "org.illumos:lz4_compress" if state == FeatureState::Active => {
                    features.compression = Compression::Lz4;
                }
                "com.klarasystems:dynamic_gang_header" => {
                    features.large_gang_headers = state == FeatureState::Active;
                }
                "com.delphix:embedded_data" => features.embedded_data = state != FeatureState::Disabled,
                _ => {}
            }
        }
        Ok(features)
    }
}

impl Default for Features {
    /// Those of a pool without feature flags.
    fn default() -> Features {
        Features {
            hole_birth: false,
            embedded_data: false,
            large_gang_headers: false,
            compression: Compression::Lzjb,
        }
    }
}
