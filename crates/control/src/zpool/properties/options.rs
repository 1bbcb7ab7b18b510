//! Typed properties of new pools and vdevs.

use cenote_engine::Host;
use cenote_format::features::Feature;
use cenote_format::props::{Prop, ZPOOL_PROPS};

use super::compatibility;
use crate::zfs::properties::settings::{Setting, size};

/// Pool properties stored as numbers that may be set at creation.
const POOL_SWITCHES: [&str; 7] =
    ["delegation", "autoreplace", "failmode", "listsnapshots", "autoexpand", "autotrim", "multihost"];
/// `ZPROP_MAX_COMMENT`.
const MAX_COMMENT_BYTES: usize = 32;

/// The parsed `-o` options.
#[derive(Debug, Default)]
pub struct PoolProperties {
    /// log2 of the smallest block.
    pub ashift: Option<u32>,
    /// `comment`.
    pub comment: Option<String>,
    /// `compatibility`, if not `off`.
    pub compatibility: Option<String>,
    /// Features to enable.
    pub features: Vec<&'static Feature>,
    /// Other properties.
    pub numbers: Vec<(&'static str, u64)>,
}

impl PoolProperties {
    /// Reads settings; with `none`, only named features are enabled.
    ///
    /// # Errors
    /// An unknown property or an invalid value.
    pub fn read(settings: &[Setting], none: bool, host: &Host) -> Result<PoolProperties, String> {
        let mut this = PoolProperties::default();
        let mut named = Vec::new();
        let mut compatibility = None;
        for Setting { property, value } in settings {
            match own_name(property) {
                "ashift" => this.ashift = ashift(value)?,
                "comment" => this.comment = Some(comment(value)?),
                "compatibility" => compatibility = Some(&**value),
                // Applies only to a kernel that imports the pool.
                "altroot" => {}
                "cachefile" if value == "none" => {}
                "version" if value == "5000" => {}
                name => match name.strip_prefix("feature@") {
                    Some(feature) => named.push(switch(feature, value)?),
                    None => this.numbers.push(pool_switch(name, value, host)?),
                },
            }
        }
        let set = match (none, compatibility) {
            (true, _) => "legacy",
            (false, value) => value.unwrap_or(compatibility::DEFAULT),
        };
        this.features = compatibility::features(set)?;
        this.compatibility = (!none && set != "off").then(|| set.to_owned());
        for (feature, wanted) in named {
            this.features.retain(|known| known.name != feature.name);
            if wanted {
                this.features.push(feature);
            }
        }
        Ok(this)
    }
}

fn ashift(value: &str) -> Result<Option<u32>, String> {
    match value.parse() {
        Ok(0) => Ok(None),
        Ok(ashift) if cenote_pool::create::ASHIFTS.contains(&ashift) => Ok(Some(ashift)),
        _ => Err(format!("ashift={value}: must be 9 to 16, or 0 to let the devices decide")),
    }
}

/// The ashift; no other property is valid here.
///
/// # Errors
/// Another property, or an invalid value.
pub fn only_ashift(settings: &[Setting]) -> Result<Option<u32>, String> {
    let mut found = None;
    for Setting { property, value } in settings {
        found = match property.as_str() {
            "ashift" => ashift(value)?,
            name => return Err(format!("-o {name}: only ashift is accepted")),
        };
    }
    Ok(found)
}

/// The same as a number.
///
/// # Errors
/// An invalid value.
pub fn check_ashift(wanted: Option<u32>) -> Result<Option<u32>, String> {
    wanted.map_or(Ok(None), |number| ashift(&number.to_string()))
}

/// Checks the length of a comment.
pub fn comment(value: &str) -> Result<String, String> {
    match value.len() > MAX_COMMENT_BYTES {
        true => Err(format!("comment must not exceed {MAX_COMMENT_BYTES} characters")),
        false => Ok(value.into()),
    }
}

fn switch(feature: &str, value: &str) -> Result<(&'static Feature, bool), String> {
    let feature = Feature::by_name(feature).ok_or_else(|| format!("unknown feature '{feature}'"))?;
    match value {
        "enabled" => Ok((feature, true)),
        "disabled" => Ok((feature, false)),
        _ => Err(format!("feature@{}: can be enabled or disabled", feature.name)),
    }
}

/// A property's name from its name or column heading.
pub fn own_name(typed: &str) -> &str {
    ZPOOL_PROPS.iter().find(|prop| prop.is_named(typed)).map_or(typed, |prop| prop.name)
}

/// A property that is stored as a number; `host` would own the pool.
pub fn pool_switch(name: &str, value: &str, host: &Host) -> Result<(&'static str, u64), String> {
    let prop = Prop::zpool(name).ok_or_else(|| format!("unknown pool property '{name}'"))?;
    if prop.name == "dedup_table_quota" {
        let bytes = match value {
            "none" => 0,
            "auto" => u64::MAX,
            value => match size(value)? {
                0 => return Err("use 'none' to disable ddt table quota".into()),
                bytes => bytes,
            },
        };
        return Ok((prop.name, bytes));
    }
    if !POOL_SWITCHES.contains(&prop.name) {
        return Err(format!("{name} can't be set here"));
    }
    let number = prop.index_number(value).ok_or_else(|| format!("{name}: '{value}' is not a valid value"))?;
    if prop.name == "multihost" && host.hostid().is_none() {
        return Err("multihost requires a non-zero system hostid: `zgenhostid` sets one".into());
    }
    Ok((prop.name, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(options: &[&str], none: bool) -> Result<PoolProperties, String> {
        let options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
        let host = Host { id: 1, name: "host".into() };
        PoolProperties::read(&Setting::parse_all(&options)?, none, &host)
    }

    #[test]
    fn features_come_from_the_set_and_by_name() {
        let names = |options: &[&str], none| -> Vec<&str> {
            pool(options, none).unwrap().features.iter().map(|feature| feature.name).collect()
        };
        assert!(names(&[], false).contains(&"draid") && !names(&[], false).contains(&"block_cloning"));
        assert_eq!(pool(&[], false).unwrap().compatibility.as_deref(), Some("openzfs-2.1-linux"));
        assert_eq!(pool(&["compatibility=off"], false).unwrap().compatibility, None);
        assert_eq!(names(&["feature@lz4_compress=enabled"], true), ["lz4_compress"]);
        assert!(!names(&["feature@encryption=disabled"], false).contains(&"encryption"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for option in
            ["ashift=8", "ashift=17", "nonsense=1", "size=3", "failmode=maybe", "feature@x=enabled", "x"]
        {
            assert!(pool(&[option], false).is_err(), "{option}");
        }
        assert!(pool(&[], true).unwrap().features.is_empty());
    }
}
