//! Sets and inherits properties: `zfs set`, `zfs inherit`.
//!
//! Idea: a setting is an entry in the property table of the dataset's directory, or of the snapshot. Limits
//! are also copied to the object that enforces them; reservations count as used space.
//!
//! Source: OpenZFS `dsl_prop.c` (`dsl_prop_set_sync_impl`), `dsl_dir.c` and `dsl_dataset.c` (`*_set_quota`,
//! `*_set_reservation`), `zfs_ioctl.c` (`zfs_check_settable`).

mod check;

use cenote_boxed::boxed;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_dataset::properties::PLACED_BY_PROPERTY;
use cenote_dataset::{Dataset, DatasetKind, Value, setting_in};
use cenote_engine::account::Account;
use cenote_engine::features::feature_of;
use cenote_engine::store::space_delta::SpaceDelta;
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::features::Since;
use cenote_format::props::{AppliesTo, Prop, ZPROP_INHERIT_SUFFIX, ZPROP_RECVD_SUFFIX};
use cenote_format::units::ObjectId;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, NewZap, Result, Zap, ZapEdit, ZapValue};

use crate::counts::begin_counting;
use crate::touch::touch_setting;
use crate::whole::readable;

pub(crate) use check::{SetAt, check_setting};
pub use check::{check_changes, check_settings, is_of_owner, is_user_property};

/// The value after a setting is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// The inherited value or the default.
    Inherited,
    /// The received value; without one, the inherited value.
    Received,
}

/// Sizes enforced once set; 0 means none.
pub const SIZES: [&str; 4] = ["quota", "reservation", "refquota", "refreservation"];

/// Sets a native property, or a user property (with a colon in its name).
///
/// # Errors
/// The property or value is invalid for the dataset, or space for a reservation is lacking.
#[boxed]
pub async fn set_property(engine: &Engine, name: &str, property: &str, value: Value) -> Result<()> {
    let (name, property) = (name.to_owned(), property.to_owned());
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                set_property_sync(context, &name, &property, &value).await?;
                touch_setting(context, &name).await
            })
        })
        .await
}

/// Removes a setting in favour of the inherited, default or received value.
///
/// # Errors
/// The property is unknown or not inheritable.
#[boxed]
pub async fn inherit(engine: &Engine, name: &str, property: &str, instead: Instead) -> Result<()> {
    let (name, property) = (name.to_owned(), property.to_owned());
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                inherit_sync(context, &name, &property, instead).await?;
                touch_setting(context, &name).await
            })
        })
        .await
}

pub(crate) async fn set_property_sync(
    context: &mut SyncContext,
    name: &str,
    property: &str,
    value: &Value,
) -> Result<()> {
    let dataset = check_new_setting(context, name, property, value).await?;
    store_setting(context, &dataset, property, value).await?;
    context.refresh_policies_below(name).await
}

/// Checks a new setting; returns its dataset.
pub(crate) async fn check_new_setting(
    context: &SyncContext,
    name: &str,
    property: &str,
    value: &Value,
) -> Result<Dataset> {
    let dataset = readable(context.mos().await?.dataset(name).await?).await?;
    let applies = match dataset.kind().await? {
        DatasetKind::Filesystem => AppliesTo::FS,
        DatasetKind::Volume => AppliesTo::VOL,
        DatasetKind::Snapshot => AppliesTo::SNAP,
    };
    check_setting(name, property, value, applies, SetAt::Existing)?;
    if dataset.is_snapshot() {
        context.require(Since::SnapshotProperties, name)?;
    }
    if property == "keylocation" {
        check_keylocation(&dataset, value).await?;
    }
    require_feature(context, name, property, value).await?;
    check_limit(&dataset, property, value).await?;
    Ok(dataset)
}

/// Checks the end of a setting; returns its dataset.
pub(crate) async fn check_inherit(
    context: &SyncContext,
    name: &str,
    property: &str,
    instead: Instead,
) -> Result<Dataset> {
    let dataset = readable(context.mos().await?.dataset(name).await?).await?;
    let inherits = match Prop::zfs(property) {
        // `Received` also works for noninheritable properties.
        Some(prop) => (prop.is_inheritable() || matches!(instead, Instead::Received)) && !prop.is_one_time(),
        None => property.contains(':'),
    };
    if !inherits {
        return Err(refused(name, property, "property cannot be inherited"));
    }
    Ok(dataset)
}

pub(crate) async fn inherit_sync(
    context: &mut SyncContext,
    name: &str,
    property: &str,
    instead: Instead,
) -> Result<()> {
    let dataset = check_inherit(context, name, property, instead).await?;
    let Some(id) = settings_table(context, &dataset, false).await? else { return Ok(()) };
    let received = format!("{property}{ZPROP_RECVD_SUFFIX}");
    let received = ZapEdit::new(&context.edit(), id).get(received.as_str()).await?;
    if SIZES.contains(&property) && !dataset.is_snapshot() {
        // Sizes have side effects: apply those of the new value.
        let next = Value::Number(received.as_ref().and_then(ZapValue::as_u64).unwrap_or(0));
        check_limit(&dataset, property, &next).await?;
        store_setting(context, &dataset, property, &next).await?;
    }
    let edit = context.edit();
    let table = ZapEdit::new(&edit, id);
    remove_if_there(&table, property).await?;
    remove_if_there(&table, &format!("{property}$iuv")).await?;
    if property == "mountpoint" {
        remove_if_there(&table, PLACED_BY_PROPERTY).await?;
    }
    let hidden = format!("{property}{ZPROP_INHERIT_SUFFIX}");
    match instead {
        // Hides a received value.
        Instead::Inherited if received.is_some() => table.update(hidden.as_str(), 0).await?,
        Instead::Inherited => {}
        Instead::Received => remove_if_there(&table, &hidden).await?,
    }
    let now = context.mos().await?.dataset(name).await?.in_force(property).await?;
    let text = now.map_or(String::new(), |now| stored_text(&now));
    let head = ObjectId(dataset.id().0);
    context.log_of_dataset((name, head), "inherit", &format!("{property}={text}")).await?;
    context.refresh_policies_below(name).await
}

/// Removes a setting without side effects.
pub(crate) async fn forget_setting(
    context: &mut SyncContext,
    dataset: &Dataset,
    property: &str,
) -> Result<()> {
    let Some(table) = settings_table(context, dataset, false).await? else { return Ok(()) };
    remove_if_there(&ZapEdit::new(&context.edit(), table), property).await
}

/// Stores a checked setting and applies its side effects.
pub(crate) async fn store_setting(
    context: &mut SyncContext,
    dataset: &Dataset,
    property: &str,
    value: &Value,
) -> Result<()> {
    let head = ObjectId(dataset.id().0);
    let reserved_before = refreservation(context, head).await?;
    let Some(table) = settings_table(context, dataset, true).await? else { return Ok(()) };
    let edit = context.edit();
    let table = ZapEdit::new(&edit, table);
    remove_if_there(&table, &format!("{property}{ZPROP_INHERIT_SUFFIX}")).await?;
    let stored = match value {
        Value::Number(number) => ZapValue::from_u64(*number),
        Value::Text(text) => ZapValue::from_text(text),
    };
    table.update(property, &stored).await?;
    if property == "mountpoint" {
        note_who_placed(context, &table).await?;
    }
    let text = stored_text(value);
    context.log_of_dataset((dataset.name(), head), "set", &format!("{property}={text}")).await?;
    follow_setting(context, dataset, property, value, reserved_before).await
}

/// Applies a stored setting's side effects. `reserved_before` is the former refreservation.
pub(crate) async fn follow_setting(
    context: &mut SyncContext,
    dataset: &Dataset,
    property: &str,
    value: &Value,
    reserved_before: u64,
) -> Result<()> {
    let (head, dir) = (ObjectId(dataset.id().0), dataset.dir().id());
    match (property, value) {
        ("quota", Value::Number(bytes)) => {
            let mut phys = context.dir_phys(dir).await?;
            phys.quota_bytes = *bytes;
            context.set_dir_phys(dir, &phys).await
        }
        ("reservation", Value::Number(bytes)) => set_reservation(context, dir, *bytes).await,
        ("filesystem_limit" | "snapshot_limit", Value::Number(limit)) if *limit != u64::MAX => {
            begin_counting(context, dataset).await
        }
        ("refreservation", Value::Number(bytes)) => {
            let unique = context.dataset_phys(head).await?.unique_bytes;
            let held_back = |reserved: u64| reserved.saturating_sub(unique) as i64;
            let used = held_back(*bytes) - held_back(reserved_before);
            context
                .use_space(dir, SpaceDelta { used, ..SpaceDelta::default() }, Account::Refreservation)
                .await
        }
        _ => Ok(()),
    }
}

/// Records, in the same txg, an unprivileged user that sets a mount point. The daemon mounts there only on a
/// request for that dataset by name.
async fn note_who_placed(context: &SyncContext, settings: &ZapEdit<'_>) -> Result<()> {
    match context.delegated() {
        Some(who) => settings.update(PLACED_BY_PROPERTY, &ZapValue::from_text(&who.uid.to_string())).await,
        None => remove_if_there(settings, PLACED_BY_PROPERTY).await,
    }
}

/// A dataset's property table; a snapshot's is created on first use.
pub(crate) async fn settings_table(
    context: &mut SyncContext,
    dataset: &Dataset,
    make: bool,
) -> Result<Option<ObjectId>> {
    let id = ObjectId(dataset.id().0);
    let mut phys = context.dataset_phys(id).await?;
    if !phys.is_snapshot() {
        return Ok(Some(context.dir_phys(phys.dir).await?.props_zap));
    }
    if phys.props_zap.0 == 0 && make {
        phys.props_zap = NewZap::of(ObjectType::DSL_PROPS).create(&context.edit()).await?;
        context.set_dataset_phys(id, &phys).await?;
    }
    Ok((phys.props_zap.0 != 0).then_some(phys.props_zap))
}

/// Sets a directory's reservation. Its unused part counts as used by the parent
/// (`dsl_dir_set_reservation_sync_impl`).
pub(crate) async fn set_reservation(context: &mut SyncContext, dir: ObjectId, bytes: u64) -> Result<()> {
    let mut phys = context.dir_phys(dir).await?;
    let accounted = |reserved: u64| phys.used_bytes.max(reserved) as i64;
    let used = accounted(bytes) - accounted(phys.reserved_bytes);
    phys.reserved_bytes = bytes;
    context.set_dir_phys(dir, &phys).await?;
    if phys.parent.0 == 0 || used == 0 {
        return Ok(());
    }
    context
        .use_space(phys.parent, SpaceDelta { used, ..SpaceDelta::default() }, Account::ChildrenReservation)
        .await
}

/// A head's refreservation in bytes. Needs no name: to find that, all its siblings would be looked at.
pub(crate) async fn refreservation(context: &SyncContext, head: ObjectId) -> Result<u64> {
    let phys = context.dataset_phys(head).await?;
    if phys.is_snapshot() {
        return Ok(0);
    }
    match context.dir_phys(phys.dir).await?.props_zap {
        ObjectId(0) => Ok(0),
        props => setting_in(&Zap::open_id(&context.edit().view(), props).await?, "refreservation").await,
    }
}

/// Checks that a limit exceeds current use and that space for a reservation is available.
pub(crate) async fn check_limit(dataset: &Dataset, property: &str, value: &Value) -> Result<()> {
    let Value::Number(bytes) = *value else { return Ok(()) };
    let (name, dir, head) = (dataset.name(), dataset.dir(), dataset.phys());
    let used = dir.phys().used_bytes;
    let why = match property {
        "quota" | "refquota" => "size is less than current used or reserved space",
        _ => "size is greater than available space",
    };
    let enough = |needed_bytes: u64, available_bytes: u64| match needed_bytes <= available_bytes {
        true => Ok(()),
        false => Err(refused(name, property, why)),
    };
    let quota = match dir.phys().quota_bytes {
        0 => u64::MAX,
        quota => quota,
    };
    match property {
        "quota" if bytes != 0 => enough(used.max(dir.phys().reserved_bytes), bytes),
        "refquota" if bytes != 0 => {
            enough(head.referenced_bytes.max(dataset.setting("refreservation").await?), bytes)
        }
        "reservation" => {
            let more = used.max(bytes) - used.max(dir.phys().reserved_bytes).min(used.max(bytes));
            let above = dir.parent().unwrap_or(dir);
            enough(more, if more == 0 { 0 } else { above.available().await? })?;
            enough(bytes, quota)
        }
        "refreservation" => {
            let before = head.unique_bytes.max(dataset.setting("refreservation").await?);
            let more = head.unique_bytes.max(bytes).saturating_sub(before);
            enough(more, if more == 0 { 0 } else { dir.available().await? })?;
            // A growing refreservation must fit the refquota; an older, larger one may stay.
            match dataset.setting("refquota").await? {
                refquota if more > 0 && refquota > 0 => enough(bytes, refquota.min(quota)),
                _ => enough(bytes, quota),
            }
        }
        _ => Ok(()),
    }
}

/// A setting must not need a feature that the pool lacks.
pub(crate) async fn require_feature(
    context: &SyncContext,
    name: &str,
    property: &str,
    value: &Value,
) -> Result<()> {
    let Value::Number(number) = *value else { return Ok(()) };
    match property {
        "dedup" if number != Checksum::Off as u64 => context.require(Since::Dedup, name)?,
        "compression" if number == Compression::Zle as u64 => context.require(Since::Zle, name)?,
        _ => {}
    }
    let Some(feature) = feature_of(property, number) else { return Ok(()) };
    match FeatureCounts::of(&context.edit()).count(feature).await? {
        Some(_) => Ok(()),
        None => Err(not_enabled(name, property, feature)),
    }
}

/// Only encryption roots have a key location (`dsl_crypto_can_set_keylocation`).
async fn check_keylocation(dataset: &Dataset, value: &Value) -> Result<()> {
    let is_none = matches!(value, Value::Text(text) if text == "none");
    let why = match dataset.dir().encryption().await? {
        None if !is_none => "keylocation must be 'none' for unencrypted datasets",
        Some(_) if is_none => "keylocation must not be 'none' for encrypted datasets",
        Some(info) if info.root_dir != dataset.dir().id() => {
            "Keylocation may only be set on encryption roots."
        }
        _ => return Ok(()),
    };
    Err(refused(dataset.name(), "keylocation", why))
}

/// A value as the history shows it, numbers unformatted.
fn stored_text(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Text(text) => text.clone(),
    }
}

pub(crate) async fn remove_if_there(table: &ZapEdit<'_>, name: &str) -> Result<()> {
    match table.remove(name).await {
        Err(DatasetError::NoEntry { .. }) => Ok(()),
        outcome => outcome,
    }
}

/// The error for a setting that needs a disabled feature.
pub(crate) fn not_enabled(name: &str, property: &str, feature: &str) -> DatasetError {
    let why = match feature {
        "large_blocks" => format!("'{property}' must be power of 2 from 512B to 128K (feature@{feature})"),
        _ => {
            format!("pool and or dataset must be upgraded to set this property or value (feature@{feature})")
        }
    };
    refused(name, property, &why)
}

fn refused(name: &str, property: &str, why: &str) -> DatasetError {
    DatasetError::BadProperty { name: name.into(), property: property.into(), why: why.into() }
}
