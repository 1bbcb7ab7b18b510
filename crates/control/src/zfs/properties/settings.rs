//! Turns typed properties and values into stored values.
//!
//! This module interprets the text; the engine decides whether a dataset can have the value
//! (`dsl::check_settings`).
//!
//! Source: OpenZFS `libzfs_util.c` (`zprop_parse_value`, `zfs_nicestrtonum`), including the wording.

use cenote_dataset::Value;
use cenote_format::props::{IndexValue, Prop, PropType, ZFS_PROPS};
use cenote_fs::write::NewFilesystem;
use cenote_fs::{CaseSensitivity, Counted, FsError, FsWriter, Normalization, SpaceBy, default_limit};
use cenote_object::Edit;
use cenote_tasks::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::parse_bytes;
use crate::zfs::owner::OwnerProp;

/// Limits that store `none` as the largest number.
const COUNTS: [&str; 2] = ["filesystem_limit", "snapshot_limit"];
/// The oldest version of new file systems, `ZPL_VERSION_FUID`.
const OLDEST_WRITTEN: u64 = 3;

/// A property and its new value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Name, or column heading.
    pub property: String,
    /// As in zfsprops(7): `10G`, `on`, `none`. The meaning of `auto` depends on the dataset.
    pub value: String,
}

impl Setting {
    /// Splits `PROPERTY=VALUE`.
    ///
    /// # Errors
    /// No `=`; in OpenZFS's words.
    pub fn parse(option: &str) -> Result<Setting, String> {
        let missing = || format!("missing '=' for property=value argument '{option}'");
        let (property, value) = option.split_once('=').ok_or_else(missing)?;
        Ok(Setting { property: property.into(), value: value.into() })
    }

    /// Splits several.
    ///
    /// # Errors
    /// As [`Setting::parse`].
    pub fn parse_all(options: &[String]) -> Result<Vec<Setting>, String> {
        options.iter().map(|option| Setting::parse(option)).collect()
    }
}

/// Reads settings, each property once. `auto_bytes` is the value of `refreservation=auto`; `None` if it has
/// none.
pub fn read_all(typed: &[Setting], auto_bytes: Option<u64>) -> Result<Settings, String> {
    let mut settings = Settings::new();
    for Setting { property, value } in typed {
        let (name, value) = read(property, value, auto_bytes)?;
        if settings.iter().any(|(other, _)| *other == name) {
            return Err(format!("property '{name}' specified multiple times"));
        }
        settings.push((name, value));
    }
    Ok(settings)
}

/// A property by name or column heading; `None` for a user property (with a colon in its name).
pub fn find(typed: &str) -> Result<Option<&'static Prop>, String> {
    match ZFS_PROPS.iter().find(|prop| prop.is_named(typed)) {
        Some(prop) => Ok(Some(prop)),
        None if typed.contains(':') => Ok(None),
        None if typed.contains('@') => match OwnerProp::parse(typed).map_err(|error| error.to_string())? {
            Some(owner) if owner.limit().is_some() => Ok(None),
            _ => Err(format!("'{typed}' is readonly")),
        },
        None => Err(format!("invalid property '{typed}'")),
    }
}

fn read(typed: &str, text: &str, auto_bytes: Option<u64>) -> Result<(String, Value), String> {
    let Some(prop) = find(typed)? else {
        let value = match typed.contains(':') {
            true => Value::Text(text.into()),
            false => Value::Number(owner_limit(text)?),
        };
        return Ok((typed.into(), value));
    };
    let value = match prop.value {
        // A read-only property is refused with any value.
        _ if prop.is_read_only() => return Err(format!("'{}' is readonly", prop.name)),
        PropType::String { .. } => Value::Text(text.into()),
        PropType::Number { .. } => Value::Number(number(prop.name, text, auto_bytes)?),
        PropType::Index { values, .. } => Value::Number(
            prop.index_number(text)
                .ok_or_else(|| format!("'{}' must be one of '{}'", prop.name, choices(values)))?,
        ),
    };
    Ok((prop.name.into(), value))
}

fn number(name: &str, text: &str, auto_bytes: Option<u64>) -> Result<u64, String> {
    match text {
        "none" if COUNTS.contains(&name) => Ok(u64::MAX),
        "none" => Ok(0),
        "auto" if name == "refreservation" => {
            auto_bytes.ok_or_else(|| format!("'{name}=auto' only allowed on volumes"))
        }
        "auto" if !matches!(name, "quota" | "refquota") => {
            Err(format!("'auto' is invalid value for '{name}'"))
        }
        text => match if text == "auto" { 0 } else { size(text)? } {
            0 if matches!(name, "quota" | "refquota") => Err("use 'none' to disable quota/refquota".into()),
            number => Ok(number),
        },
    }
}

/// A quota of a user, group or project.
fn owner_limit(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        text => match size(text)? {
            0 => Err("use 'none' to disable {user|group|project}quota".into()),
            limit => Ok(limit),
        },
    }
}

/// A quota of a user, group or project.
#[derive(Clone, Copy)]
pub struct OwnerQuota {
    /// Users, groups or projects.
    pub by: SpaceBy,
    /// Bytes or objects.
    pub counted: Counted,
    /// A user's or group's FUID, or a project's number; `None`: the default quota.
    pub owner: Option<u64>,
    /// Bytes or objects; 0 is none.
    pub limit: u64,
}

impl OwnerQuota {
    /// The quota set by a property; `None` for other properties.
    pub fn parse(property: &str, limit: u64) -> Option<OwnerQuota> {
        for by in SpaceBy::ALL {
            for counted in [Counted::Bytes, Counted::Objects] {
                if property == default_limit(by, counted) {
                    return Some(OwnerQuota { by, counted, owner: None, limit });
                }
            }
        }
        let (by, counted, owner) = OwnerProp::parse(property).ok().flatten()?.limit()?;
        Some(OwnerQuota { by, counted, owner: Some(owner), limit })
    }

    /// Sets it in a file system.
    pub async fn set(self, fs: &FsWriter, edit: &Edit) -> Result<(), FsError> {
        let OwnerQuota { by, counted, owner, limit } = self;
        match owner {
            Some(owner) => fs.set_quota(edit, by, counted, owner, limit).await,
            None => fs.set_default_quota(edit, by, counted, limit).await,
        }
    }
}

/// Removes owner quotas from a new file system's settings: its object set stores them.
pub fn take_quotas(settings: &mut Settings) -> Vec<OwnerQuota> {
    let mut quotas = Vec::new();
    settings.retain(|(property, value)| {
        let quota = match value {
            Value::Number(limit) => OwnerQuota::parse(property, *limit),
            Value::Text(_) => None,
        };
        quotas.extend(quota);
        quota.is_none()
    });
    quotas
}

/// The names of values, with levels abbreviated: `gzip | gzip-[1-9]`.
fn choices(values: &[IndexValue]) -> String {
    let mut shown: Vec<(&str, Vec<(u64, u64)>)> = Vec::new();
    for (name, _) in values {
        let level = name.rsplit_once('-').and_then(|(kind, level)| Some((kind, level.parse().ok()?)));
        match (level, shown.last_mut()) {
            (Some((kind, level)), Some((last, runs))) if *last == kind && !runs.is_empty() => {
                match runs.last_mut() {
                    Some((_, end)) if *end + 1 == level => *end = level,
                    _ => runs.push((level, level)),
                }
            }
            (Some((kind, level)), _) => shown.push((kind, vec![(level, level)])),
            (None, _) => shown.push((name, Vec::new())),
        }
    }
    let run = |(start, end): &(u64, u64)| match start == end {
        true => start.to_string(),
        false => format!("{start}-{end}"),
    };
    let text = |(name, runs): &(&str, Vec<(u64, u64)>)| match runs.is_empty() {
        true => (*name).to_owned(),
        false => format!("{name}-[{}]", runs.iter().map(run).collect::<Vec<_>>().join(",")),
    };
    shown.iter().map(text).collect::<Vec<_>>().join(" | ")
}

/// A size or another number.
pub fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| format!("bad numeric value '{text}'"))
}

/// The number set for a property.
pub fn number_of(settings: &Settings, name: &str) -> Option<u64> {
    settings.iter().find_map(|(property, value)| match value {
        Value::Number(number) if property == name => Some(*number),
        _ => None,
    })
}

/// Fixes the permanent properties of a new file system: missing ones are inherited from the parent, and
/// implied settings are added.
pub fn filesystem(settings: &mut Settings, parent: NewFilesystem) -> Result<NewFilesystem, String> {
    let form = number_of(settings, "normalization");
    match (form, number_of(settings, "utf8only")) {
        (Some(1..), Some(0)) => return Err("'utf8only' must be set 'on' if normalization chosen".into()),
        (Some(1..), None) => settings.push(("utf8only".into(), Value::Number(1))),
        (None, Some(0)) => settings.push(("normalization".into(), Value::Number(0))),
        _ => {}
    }
    let mut new = parent;
    new.version = number_of(settings, "version");
    if new.version.is_some_and(|version| version < OLDEST_WRITTEN) {
        return Err("file systems of versions 1 and 2 are only read".into());
    }
    if let Some(case) = number_of(settings, "casesensitivity") {
        new.case = case_of(case);
    }
    if let Some(form) = number_of(settings, "normalization") {
        new.normalization = form_of(form);
    }
    if let Some(only) = number_of(settings, "utf8only") {
        new.utf8_only = only == 1;
    }
    Ok(new)
}

/// Decodes `casesensitivity`.
pub fn case_of(number: u64) -> CaseSensitivity {
    match number {
        1 => CaseSensitivity::Insensitive,
        2 => CaseSensitivity::Mixed,
        _ => CaseSensitivity::Sensitive,
    }
}

/// Decodes `normalization`, a set of `u8_textprep` flags.
pub fn form_of(number: u64) -> Normalization {
    let name = Prop::zfs("normalization").and_then(|prop| prop.index_name(number));
    match name {
        Some("formC") => Normalization::FormC,
        Some("formD") => Normalization::FormD,
        Some("formKC") => Normalization::FormKc,
        Some("formKD") => Normalization::FormKd,
        _ => Normalization::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str], auto_bytes: Option<u64>) -> Result<Settings, String> {
        let typed: Result<Vec<Setting>, String> = options.iter().map(|one| Setting::parse(one)).collect();
        read_all(&typed?, auto_bytes)
    }

    fn one(option: &str) -> Result<Value, String> {
        Ok(parse(&[option], Some(7))?.remove(0).1)
    }

    #[test]
    fn texts_become_what_is_stored() {
        assert_eq!(one("recsize=1M"), Ok(Value::Number(1 << 20)));
        assert_eq!(one("quota=none"), Ok(Value::Number(0)));
        assert_eq!(one("snapshot_limit=none"), Ok(Value::Number(u64::MAX)));
        assert_eq!(one("refreservation=auto"), Ok(Value::Number(7)));
        assert_eq!(one("userobjquota@1000=5"), Ok(Value::Number(5)));
        assert_eq!(one("defaultuserobjquota=5"), Ok(Value::Number(5)));
        assert_eq!(one("defaultgroupquota=none"), Ok(Value::Number(0)));
        assert_eq!(one("atime=off"), Ok(Value::Number(0)));
        assert_eq!(one("org.me:note=a=b"), Ok(Value::Text("a=b".into())));
        for (wrong, why) in [
            ("recordsize", "missing '='"),
            ("nonsense=1", "invalid property 'nonsense'"),
            ("used=1", "'used' is readonly"),
            ("written@x=1", "readonly"),
            ("userused@1=1", "readonly"),
            ("userquota@1=0", "use 'none'"),
            ("compression=best", "gzip | gzip-[1-9] | zle"),
            ("compression=best", "zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]"),
            ("quota=0", "use 'none'"),
            ("quota=auto", "use 'none'"),
            ("reservation=auto", "'auto' is invalid"),
            ("quota=big", "bad numeric value"),
            ("quota= 5M", "bad numeric value ' 5M'"),
            ("atime=maybe", "must be one of 'on | off'"),
        ] {
            let said = one(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
        assert!(parse(&["quota=1", "quota=2"], None).unwrap_err().contains("multiple times"));
    }

    #[test]
    fn normalization_and_names_in_utf8_go_together() {
        let new = |options: &[&str]| {
            let mut settings = parse(options, None).unwrap();
            filesystem(&mut settings, NewFilesystem::default())
        };
        assert!(new(&["normalization=formD"]).unwrap().utf8_only);
        assert!(new(&["normalization=formD", "utf8only=off"]).is_err());
        let both = new(&["casesensitivity=mixed", "normalization=formKC"]).unwrap();
        assert_eq!((both.case, both.normalization), (CaseSensitivity::Mixed, Normalization::FormKc));
    }
}
