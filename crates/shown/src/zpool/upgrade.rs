//! `zpool upgrade`: features that pools lack, features enabled, and all features.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_upgrade`), including the wording.

use std::fmt::Write as _;

use cenote_control::zpool::properties::upgrade::{Features, Lacking, Upgraded};
use cenote_format::features::{Feature, SPA_FEATURES, SPA_VERSION_FEATURES};
use serde_json::{Value, json};

use crate::json::document;

/// As text. `is_of_all`: the pools were not named.
pub fn text(features: &Features, is_of_all: bool) -> String {
    match features {
        Features::Lacking(all) => list_text(all),
        Features::Enabled { pools, failed } => enabled_text(pools, *failed, is_of_all),
    }
}

/// As JSON.
pub fn json(features: &Features) -> Value {
    match features {
        Features::Lacking(all) => list_json(all),
        Features::Enabled { pools, .. } => {
            let entries = pools.iter().map(|one| (one.pool.clone(), upgraded_json(one)));
            document("zpool upgrade", "pools", entries.collect())
        }
    }
}

fn enabled_text(pools: &[Upgraded], failed: u64, is_of_all: bool) -> String {
    // With -a, only pools that would be upgraded are named.
    let named = pools.iter().filter(|one| !is_of_all || !is_nothing(one));
    let text: String = named.map(upgraded_text).collect();
    match is_of_all && failed == 0 && text.is_empty() {
        true => "All pools are already formatted using feature flags.\n\n\
             Every feature flags pool already has all supported and requested features enabled.\n"
            .into(),
        false => text,
    }
}

fn list_json(all: &[Lacking]) -> Value {
    let entry = |Lacking { pool, version, features }: &Lacking| {
        let names: Vec<&str> = features.iter().map(|feature| &*feature.name).collect();
        (pool.clone(), json!({"name": pool, "version": version, "disabled_features": names}))
    };
    document("zpool upgrade", "pools", all.iter().map(entry).collect())
}

fn list_text(all: &[Lacking]) -> String {
    let (mut lacking, mut older) = (String::new(), String::new());
    for Lacking { pool, version, features } in all {
        if *version < SPA_VERSION_FEATURES {
            let _ = writeln!(older, "{version:2}   {pool}");
        } else if !features.is_empty() {
            let _ = writeln!(lacking, "{pool}");
        }
        for feature in features {
            let mark = if feature.by_name_only { "(*)" } else { "" };
            let _ = writeln!(lacking, "      {}{mark}", feature.name);
        }
    }
    let formats = match older.is_empty() {
        true => "All pools are formatted using feature flags.\n\n".into(),
        false => format!(
            "The following pools are formatted with legacy version numbers and can\n\
             be upgraded to use feature flags.  After being upgraded, these pools\n\
             will no longer be accessible by software that does not support feature\n\
             flags.\n\nVER  POOL\n---  ------------\n{older}\n"
        ),
    };
    formats
        + &match lacking.is_empty() {
            true => "Every feature flags pool has all supported and requested features enabled.\n".to_owned(),
            false => format!(
                "Some supported features are not enabled on the following pools. Once a\n\
                 feature is enabled the pool may become incompatible with software\n\
                 that does not support the feature. See zpool-features(7) for details.\n\n\
                 Note that the pool 'compatibility' feature can be used to inhibit\n\
                 feature upgrades.\n\n\
                 Features marked with (*) are not applied automatically on upgrade, and\n\
                 must be applied explicitly with zpool-set(7).\n\n\
                 POOL  FEATURE\n---------------\n{lacking}\n"
            ),
        }
}

fn is_nothing(upgraded: &Upgraded) -> bool {
    upgraded.from_version.is_none() && upgraded.enabled.is_empty()
}

fn upgraded_text(upgraded: &Upgraded) -> String {
    let (mut out, name) = (String::new(), &upgraded.pool);
    if let Some(version) = upgraded.from_version {
        let _ = writeln!(out, "Successfully upgraded '{name}' from version {version} to feature flags.");
    }
    if upgraded.enabled.is_empty() {
        return format!("Pool '{name}' already has all supported and requested features enabled.\n");
    }
    let _ = writeln!(out, "Enabled the following features on '{name}':");
    upgraded.enabled.iter().for_each(|feature| _ = writeln!(out, "  {feature}"));
    out + "\n"
}

fn upgraded_json(upgraded: &Upgraded) -> Value {
    let Upgraded { pool, from_version, enabled } = upgraded;
    json!({"name": pool, "upgraded_from": from_version, "enabled_features": enabled})
}

/// All features and their descriptions.
pub fn known() -> String {
    let rule = "-------------------------------------------------------------";
    let mut out = format!("The following features are supported:\n\nFEAT DESCRIPTION\n{rule}\n");
    for feature in SPA_FEATURES.iter() {
        let read_only = if feature.readonly_compatible { " (read-only compatible)" } else { "" };
        let _ = writeln!(out, "{:<37}{read_only}\n     {}", feature.name, feature.description);
    }
    out + "\n"
}

/// The same as JSON.
pub fn known_json() -> Value {
    let entry = |feature: &Feature| {
        let about = json!({
            "guid": feature.guid,
            "description": feature.description,
            "readonly_compatible": feature.readonly_compatible,
            "depends": feature.depends,
            "active_from": format!("the first {}", feature.first_use),
            "upgraded": !feature.no_upgrade,
        });
        (feature.name.to_owned(), about)
    };
    document("zpool upgrade", "features", SPA_FEATURES.iter().map(entry).collect())
}
