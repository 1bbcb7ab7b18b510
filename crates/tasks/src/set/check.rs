//! Validates properties and values, independent of the dataset's contents.
//!
//! Source: OpenZFS `libzfs_dataset.c` (`zfs_valid_proplist`), `zfs_ioctl.c` (`zfs_check_settable`), including
//! the wording.

use cenote_dataset::{DatasetKind, Value};
use cenote_format::props::{AppliesTo, Prop, PropType, ZPROP_INHERIT_SUFFIX};
use cenote_object::Result;

use crate::new_dataset::Settings;
use crate::set::refused;

/// `ZAP_MAXVALUELEN`, less the NUL.
const MAX_TEXT_BYTES: usize = 8191;
/// `ZAP_MAXNAMELEN`, less the NUL and the longest suffix.
const MAX_PROPERTY_BYTES: usize = 255 - ZPROP_INHERIT_SUFFIX.len();
/// `SPA_MINBLOCKSIZE` to `SPA_MAXBLOCKSIZE`.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=16 << 20;
/// Properties changed elsewhere, and how.
const SET_ELSEWHERE: [(&str, &str); 3] = [
    ("volsize", "resize the volume itself"),
    ("version", "upgrade the file system with `zfs upgrade`"),
    ("mlslabel", "mlslabels are unsupported"),
];

/// Prefixes of key locations, `zfs_prop_valid_keylocation`.
const KEY_PLACES: [&str; 3] = ["file:///", "https://", "http://"];

/// Whether a property is set at creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetAt {
    Creation,
    Existing,
}

/// Checks the settings of a new dataset of that kind.
///
/// # Errors
/// The first invalid setting, and why.
pub fn check_settings(name: &str, kind: DatasetKind, settings: &Settings) -> Result<()> {
    let applies = applies_to(kind);
    settings
        .iter()
        .try_for_each(|(property, value)| check_setting(name, property, value, applies, SetAt::Creation))
}

/// Checks new settings of an existing dataset of that kind, so that a request with an invalid one changes
/// nothing. Quotas of owners and settings inside the object set are checked elsewhere.
///
/// # Errors
/// The first invalid setting, and why.
pub fn check_changes(name: &str, kind: DatasetKind, settings: &Settings) -> Result<()> {
    let applies = applies_to(kind);
    settings.iter().try_for_each(|(property, value)| {
        let is_inside = kind == DatasetKind::Volume && property == "volsize";
        if is_of_owner(property) || is_inside {
            Ok(())
        } else {
            check_setting(name, property, value, applies, SetAt::Existing)
        }
    })
}

/// Whether a setting is a quota of a user, group or project, or their default.
pub fn is_of_owner(property: &str) -> bool {
    let is_default = property.starts_with("default") && property.ends_with("quota");
    (property.contains('@') || is_default) && !property.contains(':')
}

fn applies_to(kind: DatasetKind) -> AppliesTo {
    match kind {
        DatasetKind::Filesystem => AppliesTo::FS,
        DatasetKind::Volume => AppliesTo::VOL,
        DatasetKind::Snapshot => AppliesTo::SNAP,
    }
}

/// Checks one setting for that kind of dataset.
pub(crate) fn check_setting(
    name: &str,
    property: &str,
    value: &Value,
    applies: AppliesTo,
    at: SetAt,
) -> Result<()> {
    let refuse = |why: String| Err(refused(name, property, &why));
    if property.contains(':') {
        return check_user_property(property, value).or_else(refuse);
    }
    if applies == AppliesTo::SNAP {
        return refuse("this property can not be modified for snapshots".into());
    }
    let Some(prop) = Prop::zfs(property) else { return refuse(format!("invalid property '{property}'")) };
    if !prop.applies.overlaps(applies) {
        return refuse(format!("'{property}' does not apply to datasets of this type"));
    }
    let is_new = at == SetAt::Creation;
    if prop.is_read_only() || prop.is_one_time() && !is_new {
        return refuse(format!("'{property}' is readonly"));
    }
    let elsewhere = SET_ELSEWHERE.iter().find(|(other, _)| *other == property);
    let is_kept_inside = is_new && matches!(property, "volsize" | "version");
    if let Some((_, how)) = elsewhere.filter(|_| !is_kept_inside) {
        return refuse((*how).into());
    }
    check_value(prop, value).or_else(refuse)
}

/// User properties have a colon in their names and text values.
fn check_user_property(property: &str, value: &Value) -> Result<(), String> {
    match value {
        Value::Number(_) => Err(format!("'{property}' must be a string")),
        Value::Text(text) if text.len() > MAX_TEXT_BYTES => Err(format!("'{property}' is too long")),
        Value::Text(_) if property.len() > MAX_PROPERTY_BYTES => {
            Err(format!("property name '{property}' is too long"))
        }
        Value::Text(_) if !is_user_property(property) => Err(format!("invalid property '{property}'")),
        Value::Text(_) => Ok(()),
    }
}

/// Whether a user property may have this name: a colon, lower-case letters, digits and some signs
/// (`zfs_prop_user`).
pub fn is_user_property(name: &str) -> bool {
    let is_valid = |c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_' | '.' | ':');
    name.contains(':') && name.chars().all(is_valid)
}

fn check_value(prop: &Prop, value: &Value) -> Result<(), String> {
    let name = prop.name;
    match (prop.value, value) {
        (PropType::Index { .. }, Value::Number(number)) => match prop.index_name(*number) {
            Some(_) => Ok(()),
            None => Err(format!("{number} is none of the values of '{name}'")),
        },
        (PropType::String { .. }, Value::Text(text)) => check_text(name, text),
        (PropType::Number { .. }, Value::Number(number)) => check_number(name, *number),
        (PropType::String { .. }, Value::Number(_)) => Err(format!("'{name}' must be a string")),
        (_, Value::Text(_)) => Err(format!("'{name}' must be a number")),
    }
}

fn check_text(name: &str, text: &str) -> Result<(), String> {
    match name {
        _ if text.len() > MAX_TEXT_BYTES => Err(format!("'{name}' is too long")),
        "mountpoint" if !text.starts_with('/') && !["none", "legacy"].contains(&text) => {
            Err(format!("'{name}' must be an absolute path, 'none', or 'legacy'"))
        }
        "keylocation"
            if !["none", "prompt"].contains(&text)
                && !KEY_PLACES.iter().any(|scheme| text.starts_with(scheme)) =>
        {
            Err("invalid keylocation: must be 'none', 'prompt' or begin with file:///, https:// or http://"
                .into())
        }
        _ => Ok(()),
    }
}

fn check_number(name: &str, number: u64) -> Result<(), String> {
    let is_block = number.is_power_of_two() && BLOCK_BYTES.contains(&number);
    match name {
        "recordsize" | "volblocksize" if !is_block => {
            Err(format!("'{name}' must be power of 2 from 512B to 16M"))
        }
        "special_small_blocks" if number > *BLOCK_BYTES.end() => {
            Err(format!("invalid '{name}' property: must be between zero and 16M"))
        }
        "volsize" if number == 0 => Err("volume size cannot be zero".into()),
        _ => Ok(()),
    }
}
