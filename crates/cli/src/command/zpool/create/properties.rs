//! `-o` and `-O` of `zpool create`: what a new pool and its root file system are told.

use cenote_codec::compress::Compression;
use cenote_dataset::ZapValue;
use cenote_format::features::Feature;
use cenote_format::props::{AppliesTo, Prop, PropType};
use cenote_fs::write::NewFilesystem;
use cenote_fs::{CaseSensitivity, Normalization};

use super::compatibility;
use crate::render::parse_bytes;

/// Pool properties that are numbers on disk and that may be set at once.
const POOL_SWITCHES: [&str; 6] =
    ["delegation", "autoreplace", "failmode", "listsnapshots", "autoexpand", "autotrim"];
/// `ZPROP_MAX_COMMENT`.
const MAX_COMMENT_BYTES: usize = 32;

/// What was asked for with `-o`.
#[derive(Debug, Default)]
pub struct PoolProperties {
    /// log2 of the smallest block.
    pub ashift: Option<u32>,
    /// `comment`.
    pub comment: Option<String>,
    /// `compatibility`, if it is not `off`.
    pub compatibility: Option<String>,
    /// Features to enable.
    pub features: Vec<&'static Feature>,
    /// Other properties.
    pub numbers: Vec<(&'static str, u64)>,
}

/// What was asked for with `-O`.
#[derive(Debug)]
pub struct RootProperties {
    /// What only a new file system can be told.
    pub filesystem: NewFilesystem,
    /// As its properties have it on disk.
    pub set: Vec<(String, ZapValue)>,
}

impl PoolProperties {
    /// Reads `-o` options; `none`: no features but those named. The error says what is wrong.
    pub fn parse(options: &[String], none: bool) -> Result<PoolProperties, String> {
        let mut this = PoolProperties::default();
        let mut named = Vec::new();
        let mut compatibility = None;
        for option in options {
            let (name, value) = split(option)?;
            match name {
                "ashift" => this.ashift = ashift(value)?,
                "comment" if value.len() > MAX_COMMENT_BYTES => {
                    return Err(format!("comment: has at most {MAX_COMMENT_BYTES} characters"));
                }
                "comment" => this.comment = Some(value.into()),
                "compatibility" => compatibility = Some(value),
                // Whatever is cached belongs to a kernel that has the pool.
                "cachefile" if value == "none" => {}
                "version" if value == "5000" => {}
                name => match name.strip_prefix("feature@") {
                    Some(feature) => named.push(switch(feature, value)?),
                    None => this.numbers.push(pool_switch(name, value)?),
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
        // What features need is enabled with them: only what nothing can do without is looked for.
        match this.features.iter().any(|feature| feature.name == "lz4_compress") {
            true => Ok(this),
            false => Err("feature@lz4_compress must be enabled: metadata is written with LZ4".into()),
        }
    }
}

fn split(option: &str) -> Result<(&str, &str), String> {
    option.split_once('=').ok_or_else(|| format!("'{option}': write PROPERTY=VALUE"))
}

fn ashift(value: &str) -> Result<Option<u32>, String> {
    match value.parse() {
        Ok(0) => Ok(None),
        Ok(ashift) if cenote_pool::create::ASHIFTS.contains(&ashift) => Ok(Some(ashift)),
        _ => Err(format!("ashift={value}: must be 9 to 16, or 0 to let the devices decide")),
    }
}

fn switch(feature: &str, value: &str) -> Result<(&'static Feature, bool), String> {
    let feature = Feature::by_name(feature).ok_or_else(|| format!("there is no feature '{feature}'"))?;
    match value {
        "enabled" => Ok((feature, true)),
        "disabled" => Ok((feature, false)),
        _ => Err(format!("feature@{}: can be enabled or disabled", feature.name)),
    }
}

fn pool_switch(name: &str, value: &str) -> Result<(&'static str, u64), String> {
    let prop = Prop::zpool(name).ok_or_else(|| format!("there is no pool property '{name}'"))?;
    if !POOL_SWITCHES.contains(&prop.name) {
        return Err(format!("{name} can't be set when a pool is made here"));
    }
    let number = prop.index_number(value).ok_or_else(|| format!("{name}: '{value}' is no value of it"))?;
    Ok((prop.name, number))
}

impl RootProperties {
    /// Reads `-O` options. The error says what is wrong.
    pub fn parse(options: &[String]) -> Result<RootProperties, String> {
        let mut this = RootProperties { filesystem: NewFilesystem::default(), set: Vec::new() };
        for option in options {
            let (name, value) = split(option)?;
            if name.contains(':') {
                this.set.push((name.into(), ZapValue::from_text(value)));
            } else if !this.is_for_good(name, value)? {
                this.set.push((name.into(), dataset_value(name, value)?));
            }
        }
        Ok(this)
    }

    /// Takes what the file system itself keeps; whether it was that.
    fn is_for_good(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let wrong = || format!("{name}: '{value}' is no value of it");
        let new = &mut self.filesystem;
        match name {
            "casesensitivity" => {
                new.case = match value {
                    "sensitive" => CaseSensitivity::Sensitive,
                    "insensitive" => CaseSensitivity::Insensitive,
                    "mixed" => CaseSensitivity::Mixed,
                    _ => return Err(wrong()),
                }
            }
            "normalization" => {
                new.normalization = match value {
                    "none" => Normalization::None,
                    "formC" => Normalization::FormC,
                    "formD" => Normalization::FormD,
                    "formKC" => Normalization::FormKc,
                    "formKD" => Normalization::FormKd,
                    _ => return Err(wrong()),
                }
            }
            "utf8only" => {
                new.utf8_only = Prop::zfs(name).and_then(|p| p.index_number(value)).ok_or_else(wrong)? == 1
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A property of a file system as it is kept on disk.
fn dataset_value(name: &str, value: &str) -> Result<ZapValue, String> {
    let prop = Prop::zfs(name).ok_or_else(|| format!("there is no property '{name}'"))?;
    let not_now = || Err(format!("{name} can't be set when a pool is made here; set it afterwards"));
    if prop.is_read_only() || prop.is_one_time() || !prop.applies.overlaps(AppliesTo::FS) {
        return not_now();
    }
    match (prop.value, name) {
        (PropType::Index { .. }, "version" | "encryption" | "dedup") => not_now(),
        (PropType::Index { .. }, _) => {
            let number =
                prop.index_number(value).ok_or_else(|| format!("{name}: '{value}' is no value of it"))?;
            if name == "compression" && Compression::try_from((number & 0x7f) as u8).is_err() {
                return not_now();
            }
            Ok(ZapValue::from(number))
        }
        (PropType::Number { .. }, "recordsize") => power_of_two(name, value, 512).map(ZapValue::from),
        (PropType::Number { .. }, "special_small_blocks") if value == "0" => Ok(ZapValue::from(0)),
        (PropType::Number { .. }, "special_small_blocks") => {
            power_of_two(name, value, 512).map(ZapValue::from)
        }
        (PropType::String { .. }, "mountpoint")
            if value.starts_with('/') || ["none", "legacy"].contains(&value) =>
        {
            Ok(ZapValue::from_text(value))
        }
        _ => not_now(),
    }
}

/// A size from `least` to 16 MiB that is a power of two.
fn power_of_two(name: &str, value: &str, least: u64) -> Result<u64, String> {
    let bytes =
        parse_bytes(value).filter(|bytes| bytes.is_power_of_two() && (least..=16 << 20).contains(bytes));
    bytes.ok_or_else(|| format!("{name}: '{value}' is no power of two from {least} to 16M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(options: &[&str], none: bool) -> Result<PoolProperties, String> {
        PoolProperties::parse(&options.iter().map(|o| o.to_string()).collect::<Vec<_>>(), none)
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
        assert!(pool(&[], true).is_err());
        for option in ["used=1", "recordsize=100K", "encryption=on", "mountpoint=here", "compression=best"] {
            assert!(RootProperties::parse(&[option.to_owned()]).is_err(), "{option}");
        }
        let fine = ["compression=zstd-3", "recordsize=1M", "mountpoint=/x", "org.me:note=y", "utf8only=on"];
        let root = RootProperties::parse(&fine.map(str::to_owned)).unwrap();
        assert!(root.set.len() == 4 && root.filesystem.utf8_only);
    }
}
