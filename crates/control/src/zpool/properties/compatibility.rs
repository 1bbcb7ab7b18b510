//! Features of a new pool: the named sets of the property `compatibility`.
//!
//! Idea: sets grow, so each is defined as another set plus additions. `off` means all features, `legacy`
//! none; several comma-separated names mean the features common to all.
//!
//! Source: the facts of OpenZFS `cmd/zpool/compatibility.d`.

use cenote_format::features::{Feature, SPA_FEATURES};

/// Default of new pools: Linux systems of recent years can import them.
pub const DEFAULT: &str = "openzfs-2.1-linux";

/// A set: its names, its base set, its additions.
struct Set {
    names: &'static [&'static str],
    extends: Option<&'static str>,
    adds: &'static str,
}

const SETS: [Set; 21] = [
    Set { names: &["legacy"], extends: None, adds: "" },
    Set { names: &["zol-0.6.1"], extends: None, adds: "async_destroy empty_bpobj lz4_compress" },
    Set {
        names: &["zol-0.6.4"],
        extends: Some("zol-0.6.1"),
        adds: "bookmarks embedded_data enabled_txg extensible_dataset hole_birth spacemap_histogram",
    },
    Set {
        names: &["zol-0.6.5", "compat-2018", "2018"],
        extends: Some("zol-0.6.4"),
        adds: "filesystem_limits large_blocks",
    },
    Set { names: &["freenas-9.10.2"], extends: Some("zol-0.6.5"), adds: "multi_vdev_crash_dump" },
    Set {
        names: &[
            "freebsd-11.0",
            "freebsd-11.1",
            "freenas-11.0",
            "freenas-11.1",
            "compat-2019",
            "2019",
            "compat-2020",
            "2020",
        ],
        extends: Some("freenas-9.10.2"),
        adds: "sha512 skein",
    },
    Set {
        names: &["freebsd-11.2", "freenas-11.2"],
        extends: Some("freebsd-11.0"),
        adds: "device_removal obsolete_counts zpool_checkpoint",
    },
    Set {
        names: &[
            "freebsd-11.3",
            "freebsd-11.4",
            "freebsd-12.0",
            "freebsd-12.1",
            "freebsd-12.2",
            "freebsd-12.3",
            "freebsd-12.4",
            "freenas-11.3",
            "compat-2021",
            "2021",
        ],
        extends: Some("freebsd-11.2"),
        adds: "spacemap_v2",
    },
    Set { names: &["openzfsonosx-1.7.0"], extends: Some("freebsd-11.0"), adds: "edonr" },
    Set { names: &["openzfsonosx-1.8.1"], extends: Some("freebsd-11.3"), adds: "edonr" },
    Set {
        names: &["zol-0.7", "ubuntu-18.04"],
        extends: Some("openzfsonosx-1.7.0"),
        adds: "large_dnode userobj_accounting",
    },
    Set {
        names: &["zol-0.8", "ubuntu-20.04", "openzfsonosx-1.9.3", "openzfsonosx-1.9.4"],
        extends: Some("zol-0.7"),
        adds: "allocation_classes bookmark_v2 device_removal encryption obsolete_counts project_quota \
               resilver_defer spacemap_v2 zpool_checkpoint",
    },
    Set {
        names: &["openzfs-2.0-freebsd", "truenas-12.0"],
        extends: Some("freebsd-11.3"),
        adds: "allocation_classes bookmark_v2 bookmark_written device_rebuild encryption large_dnode \
            livelist log_spacemap project_quota redacted_datasets redaction_bookmarks resilver_defer \
            userobj_accounting zstd_compress",
    },
    Set {
        names: &["openzfs-2.1-freebsd", "freebsd-13.0", "freebsd-13.1", "freebsd-13.2"],
        extends: Some("openzfs-2.0-freebsd"),
        adds: "draid",
    },
    Set { names: &["openzfs-2.0-linux"], extends: Some("openzfs-2.0-freebsd"), adds: "edonr" },
    Set {
        names: &["openzfs-2.1-linux", "ubuntu-22.04"],
        extends: Some("openzfs-2.1-freebsd"),
        adds: "edonr",
    },
    Set {
        names: &["openzfs-2.2", "openzfs-2.2-linux", "openzfs-2.2-freebsd"],
        extends: Some("openzfs-2.1-linux"),
        adds: "blake3 block_cloning head_errlog vdev_zaps_v2 zilsaxattr",
    },
    Set {
        names: &["openzfs-2.3", "openzfs-2.3-linux", "openzfs-2.3-freebsd"],
        extends: Some("openzfs-2.2"),
        adds: "fast_dedup large_microzap longname raidz_expansion redaction_list_spill",
    },
    Set {
        names: &["openzfs-2.4", "openzfs-2.4-linux", "openzfs-2.4-freebsd"],
        extends: Some("openzfs-2.3"),
        adds: "block_cloning_endian dynamic_gang_header physical_rewrite",
    },
    Set {
        names: &["grub2-2.06"],
        extends: None,
        adds: "allocation_classes async_destroy block_cloning device_rebuild embedded_data empty_bpobj \
               enabled_txg hole_birth log_spacemap lz4_compress resilver_defer spacemap_histogram \
               spacemap_v2 zpool_checkpoint",
    },
    Set {
        names: &["grub2-2.12", "grub2"],
        extends: Some("grub2-2.06"),
        adds: "bookmarks extensible_dataset filesystem_limits large_blocks livelist project_quota \
               userobj_accounting zilsaxattr",
    },
];

/// The features of a value of `compatibility`; the error lists the valid names.
pub fn features(value: &str) -> Result<Vec<&'static Feature>, String> {
    let mut features: Vec<&'static Feature> = SPA_FEATURES.iter().collect();
    if value == "off" {
        return Ok(features);
    }
    for name in value.split(',') {
        let of_set = of_set(name).ok_or_else(|| {
            let known: Vec<&str> = SETS.iter().flat_map(|set| set.names).copied().collect();
            format!("unknown compatibility set '{name}'; use off, {}", known.join(", "))
        })?;
        features.retain(|feature| of_set.contains(&feature.name));
    }
    Ok(features)
}

/// Versions of OpenZFS on Linux that have more features than those before, oldest first, and their sets.
pub const VERSIONS: [(&str, &str); 10] = [
    ("0.6.1", "zol-0.6.1"),
    ("0.6.4", "zol-0.6.4"),
    ("0.6.5", "zol-0.6.5"),
    ("0.7", "zol-0.7"),
    ("0.8", "zol-0.8"),
    ("2.0", "openzfs-2.0-linux"),
    ("2.1", "openzfs-2.1-linux"),
    ("2.2", "openzfs-2.2"),
    ("2.3", "openzfs-2.3"),
    ("2.4", "openzfs-2.4"),
];

/// The first version that has the feature.
pub fn since(feature: &Feature) -> Option<&'static str> {
    let has = |set: &str| of_set(set).is_some_and(|names| names.contains(&feature.name));
    VERSIONS.iter().find(|(_, set)| has(set)).map(|(version, _)| *version)
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

    /// Lines of each file of `compatibility.d` in OpenZFS 2.4.4 without comments; links are followed.
    const COUNTS: [(&str, usize); 23] = [
        ("legacy", 0),
        ("zol-0.6.1", 3),
        ("zol-0.6.4", 9),
        ("zol-0.6.5 compat-2018 2018", 11),
        ("freenas-9.10.2", 12),
        ("compat-2019 2019 compat-2020 2020 freebsd-11.0 freebsd-11.1 freenas-11.0 freenas-11.1", 14),
        ("freebsd-11.2 freenas-11.2", 17),
        ("compat-2021 2021 freebsd-11.3 freebsd-11.4 freebsd-12.0 freebsd-12.1 freebsd-12.2", 18),
        ("freebsd-12.3 freebsd-12.4 freenas-11.3", 18),
        ("openzfsonosx-1.7.0", 15),
        ("openzfsonosx-1.8.1", 19),
        ("openzfsonosx-1.9.3 openzfsonosx-1.9.4", 26),
        ("zol-0.7 ubuntu-18.04", 17),
        ("zol-0.8 ubuntu-20.04", 26),
        ("openzfs-2.0-freebsd truenas-12.0", 32),
        ("openzfs-2.1-freebsd freebsd-13.0 freebsd-13.1 freebsd-13.2", 33),
        ("openzfs-2.0-linux", 33),
        ("openzfs-2.1-linux ubuntu-22.04", 34),
        ("openzfs-2.2 openzfs-2.2-linux openzfs-2.2-freebsd", 39),
        ("openzfs-2.3 openzfs-2.3-linux openzfs-2.3-freebsd", 44),
        ("openzfs-2.4 openzfs-2.4-linux openzfs-2.4-freebsd", 47),
        ("grub2-2.06", 14),
        ("grub2-2.12 grub2", 22),
    ];

    #[test]
    fn sets_are_those_of_openzfs_and_have_as_many_features() {
        let mut names = 0;
        for (set, count) in
            COUNTS.iter().flat_map(|(names, count)| names.split(' ').map(move |name| (name, *count)))
        {
            assert_eq!(features(set).unwrap().len(), count, "{set}");
            names += 1;
        }
        assert_eq!(SETS.iter().map(|set| set.names.len()).sum::<usize>(), names);
        assert_eq!(features("off").unwrap().len(), SPA_FEATURES.len());
        assert_eq!(features("zol-0.8,grub2-2.06").unwrap().len(), 11);
        let mut words = SETS.iter().flat_map(|set| set.adds.split_whitespace());
        assert_eq!(words.find(|name| Feature::by_name(name).is_none()), None);
        assert!(features("openzfs-9").unwrap_err().contains("openzfs-2.1-linux"));
    }

    /// Compares the sets with the files of an installed OpenZFS.
    #[test]
    fn each_set_has_the_features_of_its_file() {
        let folder = std::path::Path::new("/usr/share/zfs/compatibility.d");
        let Ok(files) = folder.read_dir() else {
            eprintln!("skipped: no {}", folder.display());
            return;
        };
        for file in files.map(|file| file.unwrap()) {
            let (name, text) = (file.file_name(), std::fs::read_to_string(file.path()).unwrap());
            let words =
                text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split([',', ' ']));
            let mut wanted: Vec<&str> = words.map(str::trim).filter(|word| !word.is_empty()).collect();
            // Features of versions after 2.4 are unknown here.
            if wanted.iter().any(|name| Feature::by_name(name).is_none()) {
                continue;
            }
            let mut found: Vec<&str> =
                features(name.to_str().unwrap()).unwrap().iter().map(|it| it.name).collect();
            wanted.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, wanted, "{name:?}");
        }
    }
}
