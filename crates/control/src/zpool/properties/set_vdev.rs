//! `zpool set PROPERTY=VALUE POOL VDEV`: properties of a vdev.
//!
//! Source: OpenZFS `libzfs_pool.c` (`zpool_set_vdev_prop`), `vdev.c` (`vdev_prop_set`).

use std::time::Duration;

use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{VdevClass, VdevKind};
use cenote_tasks::VdevSetting;

use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::zfs::properties::settings::Setting;
use crate::zpool::shown::vdev_properties::{LIMITS, SWITCHES, named};

const MOST_TEXT_BYTES: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// In the pool.
    Setting(VdevSetting),
    /// Of the open pool: whether a disk sits out reads.
    SitOut(bool),
}

/// Sets a property of one vdev.
///
/// # Errors
/// An unknown or unsuitable property or value; no such vdev; several.
pub async fn set_vdev(
    session: &Session,
    setting: &Setting,
    pool: &str,
    vdev: &str,
) -> Result<Outcome, ControlError> {
    let Setting { property, value } = setting;
    let what = format!("set property for '{vdev}' in '{pool}'");
    let refused = |why: String| ControlError::Refused(format!("cannot {what}: {why}"));
    let health = session.find_pool(pool).await?.status();
    let found = named(&health, vdev);
    let [found] = &found[..] else {
        return Err(refused(format!("{} vdevs have that name: use a path or guid", found.len())));
    };
    let (guid, kind) = (found.status().guid, &found.status().kind);
    let change = change(property, value).map_err(refused)?;
    if property == "autosit" && !matches!(kind, VdevKind::Raidz | VdevKind::Draid) {
        return Err(refused("only the disks of a RAID-Z or dRAID sit out".into()));
    }
    if matches!(change, Change::SitOut(_)) && session.pools().is_none() {
        return Err(refused("disks sit out while a daemon (`cenote serve`) has the pool open".into()));
    }
    let change = &change;
    session
        .change_pool(pool, async |engine: &Engine| match change {
            Change::Setting(setting) => {
                cenote_tasks::set_vdev(engine, guid, setting.clone()).await.map_err(cannot(&what))
            }
            Change::SitOut(sits) => sit_out(engine, guid, *sits).map_err(refused),
        })
        .await
}

fn sit_out(engine: &Engine, leaf: Guid, sits: bool) -> Result<(), String> {
    let until = sits.then(|| engine.runtime().now() + Duration::MAX);
    engine.pool().tree().sit_out(leaf, until).map_err(|error| error.to_string())
}

fn change(name: &str, value: &str) -> Result<Change, String> {
    let text = |name: &str| match value.len() <= MOST_TEXT_BYTES {
        true => Ok(Change::Setting(VdevSetting::Text(name.into(), value.into()))),
        false => Err(format!("property '{name}' has more than {MOST_TEXT_BYTES} bytes")),
    };
    let switch = || match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("property '{name}' must be 'on' or 'off'")),
    };
    let number = |number: u64| Change::Setting(VdevSetting::Number(name.into(), number));
    match name {
        "sit_out" => switch().map(Change::SitOut),
        _ if SWITCHES.contains(&name) => switch().map(|is_on| number(is_on.into())),
        "comment" => text(name),
        "alloc_bias" => match value {
            "none" => Ok(Change::Setting(VdevSetting::Class(VdevClass::Normal))),
            value => match VdevClass::from_name(value) {
                Some(class) => Ok(Change::Setting(VdevSetting::Class(class))),
                None => Err(format!("property '{name}' must be none, log, special or dedup")),
            },
        },
        _ if name.contains(':') => text(name),
        _ if LIMITS.contains(&name) => match value {
            "none" => Ok(number(u64::MAX)),
            _ => value.parse().map(number).map_err(|_| format!("'{value}' is not a number, or 'none'")),
        },
        _ => match crate::zpool::shown::vdev_properties::check(name) {
            Ok(()) => Err(format!("'{name}' can't be set here")),
            Err(_) => Err(format!("invalid property '{name}'")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_their_properties_demand() {
        let stored = |name: &str, number| Ok(Change::Setting(VdevSetting::Number(name.into(), number)));
        assert_eq!(change("autosit", "on"), stored("autosit", 1));
        assert_eq!(change("slow_io_events", "off"), stored("slow_io_events", 0));
        assert_eq!(change("io_n", "25"), stored("io_n", 25));
        assert_eq!(change("io_n", "none"), stored("io_n", u64::MAX));
        assert_eq!(change("sit_out", "off"), Ok(Change::SitOut(false)));
        let special = Ok(Change::Setting(VdevSetting::Class(VdevClass::Special)));
        assert_eq!(change("alloc_bias", "special"), special);
        for (name, value) in [
            ("autosit", "1"),
            ("io_n", "-1"),
            ("guid", "1"),
            ("nonsense", "1"),
            ("path", "/x"),
            ("alloc_bias", "fast"),
            ("rotational", "on"),
        ] {
            change(name, value).unwrap_err();
        }
        assert!(change("a:b", &"x".repeat(5000)).is_err());
    }
}
