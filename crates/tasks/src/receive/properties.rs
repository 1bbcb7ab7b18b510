//! Received properties. They apply where no local value is set; `zfs inherit -S` returns to them.
//!
//! Source: OpenZFS `dsl_prop.c` (`dsl_prop_set_sync_impl`, `dsl_prop_set_hasrecvd`), `zfs_ioctl.c`
//! (`zfs_set_prop_nvlist`, `clear_received_props`).

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Value};
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_format::objset::ObjsetType;
use cenote_format::props::{AppliesTo, ZPROP_INHERIT_SUFFIX, ZPROP_RECVD_SUFFIX};
use cenote_format::units::ObjectId;
use cenote_object::{DatasetError, Result, Zap, ZapEdit, ZapValue};

use crate::new_dataset::Settings;
use crate::set::{
    SetAt, check_limit, check_setting, follow_setting, refreservation, remove_if_there, require_feature,
    settings_table,
};
use crate::touch::touch_setting;
use crate::whole::readable;

/// `ZPROP_HAS_RECVD`: the dataset has received properties.
const ZPROP_HAS_RECVD: &str = "$hasrecvd";

/// Stores received properties of a dataset or snapshot, and drops earlier ones missing from this stream.
/// Returns the rejected properties and why.
///
/// # Errors
/// No such dataset.
#[boxed]
pub async fn receive_properties(
    engine: &Engine,
    name: &str,
    settings: Settings,
) -> Result<Vec<(String, DatasetError)>> {
    let name = name.to_owned();
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                let refused = receive_sync(context, &name, settings).await?;
                touch_setting(context, &name).await.map(|()| refused)
            })
        })
        .await
}

async fn receive_sync(
    context: &mut SyncContext,
    name: &str,
    settings: Settings,
) -> Result<Vec<(String, DatasetError)>> {
    let dataset = readable(context.mos().await?.dataset(name).await?).await?;
    let applies = match (dataset.is_snapshot(), dataset.content_type().await?) {
        (true, _) => AppliesTo::SNAP,
        (false, ObjsetType::Zvol) => AppliesTo::VOL,
        (false, _) => AppliesTo::FS,
    };
    let mut refused = Vec::new();
    let mut accepted = Settings::new();
    for (property, value) in settings {
        match check(context, &dataset, applies, &property, &value).await {
            Ok(()) => accepted.push((property, value)),
            Err(error) if error.is_refusal() => refused.push((property, error)),
            Err(error) => return Err(error),
        }
    }
    let is_empty = accepted.is_empty();
    let Some(table) = settings_table(context, &dataset, !is_empty).await? else { return Ok(refused) };
    forget_others(context, table, &accepted).await?;
    if !is_empty {
        let edit = context.edit();
        ZapEdit::new(&edit, table).update(ZPROP_HAS_RECVD, 0).await?;
    }
    for (property, value) in &accepted {
        store(context, &dataset, table, property, value).await?;
    }
    context.refresh_policies_below(name).await?;
    Ok(refused)
}

async fn check(
    context: &SyncContext,
    dataset: &Dataset,
    applies: AppliesTo,
    property: &str,
    value: &Value,
) -> Result<()> {
    let name = dataset.name();
    check_setting(name, property, value, applies, SetAt::Existing)?;
    require_feature(context, name, property, value).await?;
    check_limit(dataset, property, value).await
}

async fn store(
    context: &mut SyncContext,
    dataset: &Dataset,
    table: ObjectId,
    property: &str,
    value: &Value,
) -> Result<()> {
    let head = ObjectId(dataset.id().0);
    let reserved_before = refreservation(context, head).await?;
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, table);
    let stored = match value {
        Value::Number(number) => ZapValue::from_u64(*number),
        Value::Text(text) => ZapValue::from_text(text),
    };
    fields.update(format!("{property}{ZPROP_RECVD_SUFFIX}").as_str(), &stored).await?;
    let is_hidden = fields.get(format!("{property}{ZPROP_INHERIT_SUFFIX}").as_str()).await?.is_some();
    match is_hidden || fields.get(property).await?.is_some() {
        true => Ok(()),
        false => follow_setting(context, dataset, property, value, reserved_before).await,
    }
}

/// Drops properties of an earlier stream that this one lacks.
async fn forget_others(context: &SyncContext, table: ObjectId, kept: &Settings) -> Result<()> {
    let edit = context.edit();
    for entry in Zap::open_id(&edit.view(), table).await?.to_vec().await? {
        let stored = entry.name_text();
        let Some(property) = stored.strip_suffix(ZPROP_RECVD_SUFFIX) else { continue };
        if !kept.iter().any(|(other, _)| other == property) {
            remove_if_there(&ZapEdit::new(&edit, table), &stored).await?;
        }
    }
    Ok(())
}
