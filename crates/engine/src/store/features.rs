//! Pool features that change how blocks are written.

use cenote_codec::compress::Compression;
use cenote_dataset::{FeatureState, Mos};
use cenote_object::Result;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    /// Holes record their birth txg.
    pub(crate) hole_birth: bool,
    /// Small blocks are stored in their pointers.
    pub(crate) embedded_data: bool,
    /// Gang headers use all of their space.
    pub(crate) large_gang_headers: bool,
    /// Algorithm of `compression=on` and of metadata.
    pub(crate) compression: Compression,
}

impl Features {
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
    /// Without feature flags.
    fn default() -> Features {
        Features {
            hole_birth: false,
            embedded_data: false,
            large_gang_headers: false,
            compression: Compression::Lzjb,
        }
    }
}
