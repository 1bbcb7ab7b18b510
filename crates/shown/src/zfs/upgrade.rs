//! `zfs upgrade`: versions of file systems.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_upgrade`), including the wording.

use std::fmt::Write as _;

use cenote_control::zfs::properties::upgrade::{Fate, Raised, Versioned, Versions};
use cenote_format::features::{ZPL_VERSION, ZPL_VERSIONS};
use serde_json::{Map, Value, json};

use crate::json::document;

const OLDER: &str = "The following filesystems are out of date, and can be upgraded.  After being\n\
    upgraded, these filesystems (and any 'zfs send' streams generated from\n\
    subsequent snapshots) will no longer be accessible by older software versions.\n\n\n";
const NEWER: &str = "The following filesystems are formatted using a newer software version and\n\
    cannot be accessed on the current system.\n\n\n";

/// As text.
pub fn text(versions: &Versions) -> String {
    match versions {
        Versions::Listed(all) => listed(all),
        Versions::Upgraded(all) => upgraded(all),
    }
}

fn listed(all: &[Versioned]) -> String {
    let mut out = format!("This system is currently running ZFS filesystem version {ZPL_VERSION}.\n\n");
    let (newer, older): (Vec<&Versioned>, Vec<_>) = all.iter().partition(|one| one.version > ZPL_VERSION);
    for (head, some) in [(OLDER, &older), (NEWER, &newer)] {
        if some.is_empty() {
            continue;
        }
        out += head;
        out += "VER  FILESYSTEM\n---  ------------\n";
        some.iter().for_each(|one| _ = writeln!(out, "{:2}   {}", one.version, one.name));
    }
    if all.is_empty() {
        out += "All filesystems are formatted with the current version.\n";
    }
    out
}

fn upgraded(all: &[Raised]) -> String {
    let mut out = String::new();
    for Raised { name, from, fate } in all {
        match fate {
            Fate::NeedsPool(version) => {
                out += &format!(
                    "{name}: can not be upgraded; the pool version needs to first be upgraded\nto version \
                     {version}\n\n"
                );
            }
            Fate::Newer => {
                out += &format!("{name}: can not be downgraded; it is already at version {from}\n");
            }
            Fate::Done | Fate::Same | Fate::Failed => {}
        }
    }
    let count = |fate| all.iter().filter(|one| one.fate == fate).count();
    out += &format!("{} filesystems upgraded\n", count(Fate::Done));
    match count(Fate::Same) {
        0 => out,
        same => out + &format!("{same} filesystems already at this version\n"),
    }
}

/// As JSON.
pub fn json(versions: &Versions) -> Value {
    let entries: Map<String, Value> = match versions {
        Versions::Listed(all) => {
            let entry =
                |one: &Versioned| (one.name.clone(), json!({"name": one.name, "version": one.version}));
            all.iter().map(entry).collect()
        }
        Versions::Upgraded(all) => all.iter().map(|one| (one.name.clone(), json!(one))).collect(),
    };
    document("zfs upgrade", "datasets", entries)
}

/// All versions and their descriptions.
pub fn known() -> String {
    let mut out = "The following filesystem versions are supported:\n\nVER  DESCRIPTION\n".to_owned();
    out += "---  --------------------------------------------------------\n";
    for (number, about) in (1..).zip(ZPL_VERSIONS) {
        let _ = writeln!(out, "{number:2}   {about}");
    }
    out + "\nFor more information on a particular version, including supported releases,\n\
           see the ZFS Administration Guide.\n\n"
}

/// The same as JSON.
pub fn known_json() -> Value {
    let entry = |(number, about): (u64, &str)| (number.to_string(), json!({"description": about}));
    document("zfs upgrade", "versions", (1..).zip(ZPL_VERSIONS).map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_older_file_systems_first() {
        let versioned = |name: &str, version| Versioned { name: name.into(), version };
        let all = listed(&[versioned("a", 3), versioned("b", 6), versioned("c", 4)]);
        let places = [" 3   a\n", " 4   c\n", "newer software", " 6   b\n"].map(|part| all.find(part));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{all}");
        assert!(listed(&[]).ends_with("with the current version.\n"));
    }

    #[test]
    fn an_upgrade_counts_what_it_did() {
        let one = |fate| Raised { name: "tank/a".into(), from: 4, fate };
        let text = upgraded(&[one(Fate::Done), one(Fate::Same), one(Fate::NeedsPool(24)), one(Fate::Newer)]);
        assert_eq!(
            text,
            "tank/a: can not be upgraded; the pool version needs to first be upgraded\nto version 24\n\n\
             tank/a: can not be downgraded; it is already at version 4\n1 filesystems upgraded\n1 \
             filesystems already at this version\n"
        );
        assert_eq!(upgraded(&[]), "0 filesystems upgraded\n");
    }
}
