//! Which features a new pool gets: the named sets of property `compatibility`.
//!
//! Idea: sets grow, so a set is another one and what it adds. `off` is everything, `legacy` nothing; several names, comma-separated, mean what all
//! of them have.
//!
//! Source: the facts of OpenZFS `cmd/zpool/compatibility.d`.

use cenote_format::features::{Feature, SPA_FEATURES};

/// What new pools get: Linux systems in use for years can import them.
pub const DEFAULT: &str = "openzfs-2.1-linux";

/// A set: its names, the set that it extends, what it adds.
struct Set {
    names: &'static [&'static str],
    extends: Option<&'static str>,
    adds: &'static str,
}

const SETS: [Set; 9] = [
    Set { names: &["zol-0.6.1"], extends: None, adds: "async_destroy empty_bpobj lz4_compress" },
    Set {
        names: &["compat-2018", "2018"],
        extends: Some("zol-0.6.1"),
        adds: "bookmarks embedded_data enabled_txg extensible_dataset filesystem_limits hole_birth large_blocks \
               spacemap_histogram",
    },
    Set {
        names: &["zol-0.8", "ubuntu-20.04"],
        extends: Some("compat-2018"),
        adds: "allocation_classes bookmark_v2 device_removal edonr encryption large_dnode multi_vdev_crash_dump \
               obsolete_counts project_quota resilver_defer sha512 skein spacemap_v2 userobj_accounting zpool_checkpoint",
    },
    Set {
        names: &["openzfs-2.0-linux"],
        extends: Some("zol-0.8"),
        adds: "bookmark_written device_rebuild livelist log_spacemap redacted_datasets redaction_bookmarks \
               zstd_compress",
    },
    Set { names: &["openzfs-2.1-linux", "ubuntu-22.04"], extends: Some("openzfs-2.0-linux"), adds: "draid" },
    Set {
        names: &["openzfs-2.2", "openzfs-2.2-linux"],
        extends: Some("openzfs-2.1-linux"),
        adds: "blake3 block_cloning head_errlog vdev_zaps_v2 zilsaxattr",
    },
    Set {
        names: &["openzfs-2.3", "openzfs-2.3-linux"],
        extends: Some("openzfs-2.2"),
        adds: "fast_dedup large_microzap longname raidz_expansion redaction_list_spill",
    },
    Set {
        names: &["grub2-2.06"],
        extends: None,
        adds: "allocation_classes async_destroy block_cloning device_rebuild embedded_data empty_bpobj enabled_txg \
               hole_birth log_spacemap lz4_compress resilver_defer spacemap_histogram spacemap_v2 zpool_checkpoint",
    },
    Set { names: &["legacy"], extends: None, adds: "" },
];

/// The features of a value of property `compatibility`; the error names what can be given.
pub fn features(value: &str) -> Result<Vec<&'static Feature>, String> {
    let mut features: Vec<&'static Feature> = SPA_FEATURES.iter().collect();
    if value == "off" {
        return Ok(features);
    }
    for name in value.split(',') {
        let of_set = of_set(name).ok_or_else(|| {
            let known: Vec<&str> = SETS.iter().flat_map(|set| set.names).copied().collect();
            format!("no compatibility set '{name}' is known; there are off, {}", known.join(", "))
        })?;
        features.retain(|feature| of_set.contains(&feature.name));
    }
    Ok(features)
}

fn of_set(name: &str) -> Option<Vec<&'static str>> {
    let mut names = Vec::new();
    let mut next = Some(name);
    while let Some(name) = next {
        let set = SETS.iter().find(|set| set.names.contains(&name))?;
        names.extend(set.adds.split_whitespace());
        next = set.extends;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_as_many_features_as_openzfs_says_and_all_exist() {
        // Lines of compatibility.d without comments.
        let counts = [
            ("zol-0.6.1", 3),
            ("compat-2018", 11),
            ("zol-0.8", 26),
            ("openzfs-2.0-linux", 33),
            ("openzfs-2.1-linux", 34),
            ("openzfs-2.2", 39),
            ("openzfs-2.3", 44),
            ("grub2-2.06", 14),
            ("legacy", 0),
            ("off", SPA_FEATURES.len()),
            ("zol-0.8,grub2-2.06", 11),
        ];
        for (set, count) in counts {
            assert_eq!(features(set).unwrap().len(), count, "{set}");
        }
        for set in &SETS {
            for name in set.adds.split_whitespace() {
                assert!(Feature::by_name(name).is_some(), "{name}");
            }
            assert!(set.extends.is_none_or(|name| of_set(name).is_some()));
        }
        assert!(features("openzfs-9").unwrap_err().contains("openzfs-2.1-linux"));
    }
}
