//! Properties set: `zfs set`, `zfs inherit`.
//!
//! Idea: a setting is an entry in the table of properties of its directory (of the snapshot itself, for a snapshot). Limits are kept a second
//! time where they are enforced, and what is reserved counts as used.
//!
//! Source: OpenZFS `dsl_prop.c` (`dsl_prop_set_sync_impl`), `dsl_dir.c` and `dsl_dataset.c` (`*_set_quota`, `*_set_reservation`), `zfs_ioctl.c`
//! (`zfs_check_settable`).

use cenote_format::dnode::ObjectType;
use cenote_format::props::{AppliesTo, Prop, PropType, ZPROP_INHERIT_SUFFIX, ZPROP_RECVD_SUFFIX};
use cenote_format::units::{DatasetId, ObjectId};

use super::account::Account;
use super::{Dataset, DatasetKind};
use crate::engine::{Engine, SyncContext, feature_of};
use crate::error::{DatasetError, Result};
use crate::features::FeatureCounts;
use crate::properties::Value;
use crate::sync::blocks::Space;
use crate::zap::{NewZap, ZapEdit, ZapValue};

/// `ZAP_MAXVALUELEN`, less the NUL at the end.
const MAX_TEXT_BYTES: usize = 8191;
/// `ZAP_MAXNAMELEN`, less the NUL and the longest suffix.
const MAX_PROPERTY_BYTES: usize = 255 - ZPROP_INHERIT_SUFFIX.len();
/// Properties that are more than a setting, and how they are changed.
const SET_ELSEWHERE: [(&str, &str); 5] = [
    ("volsize", "resize the volume itself"),
    ("version", "upgrade the file system itself"),
    ("filesystem_limit", "counting file systems can't be begun yet"),
    ("snapshot_limit", "counting snapshots can't be begun yet"),
    ("keylocation", "keys can't be changed yet"),
];

/// When a property is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetAt {
    Creation,
    Existing,
}

impl Engine {
    /// Sets a property, of this package's own or the administrator's (with a colon in its name).
    ///
    /// # Errors
    /// The dataset has no such property, can't have that value, or has no room for what is promised.
    pub async fn set_property(&self, name: &str, property: &str, value: Value) -> Result<()> {
        let (name, property) = (name.to_owned(), property.to_owned());
        self.run(move |context| Box::pin(async move { context.set_property(&name, &property, &value).await }))
            .await
    }

    /// Removes a setting: what is above a dataset, or the default, is in force again.
    ///
    /// # Errors
    /// There is no such property, or it is not one that is inherited.
    pub async fn inherit(&self, name: &str, property: &str) -> Result<()> {
        let (name, property) = (name.to_owned(), property.to_owned());
        self.run(move |context| Box::pin(async move { context.inherit(&name, &property).await })).await
    }
}

impl SyncContext {
    async fn set_property(&mut self, name: &str, property: &str, value: &Value) -> Result<()> {
        let dataset = self.mos().await?.dataset(name).await?;
        let applies = match dataset.kind().await? {
            DatasetKind::Filesystem => AppliesTo::FS,
            DatasetKind::Volume => AppliesTo::VOL,
            DatasetKind::Snapshot => AppliesTo::SNAP,
        };
        check_setting(name, property, value, applies, SetAt::Existing)?;
        if dataset.is_snapshot() && !property.contains(':') {
            return Err(refused(
                name,
                property,
                "only the administrator's own (with ':') can be set on snapshots",
            ));
        }
        self.require_feature(name, property, value).await?;
        self.check_limit(&dataset, property, value).await?;
        self.store_setting(&dataset, property, value).await?;
        self.refresh_policies().await
    }

    async fn inherit(&mut self, name: &str, property: &str) -> Result<()> {
        let dataset = self.mos().await?.dataset(name).await?;
        let inherits = match Prop::zfs(property) {
            Some(prop) => prop.is_inheritable() && !prop.is_one_time(),
            None => property.contains(':'),
        };
        if !inherits {
            return Err(refused(name, property, "it is not one that is inherited"));
        }
        let Some(table) = self.settings_table(&dataset, false).await? else { return Ok(()) };
        let edit = self.edit();
        let table = ZapEdit::new(&edit, table);
        remove_if_there(&table, property).await?;
        remove_if_there(&table, &format!("{property}$iuv")).await?;
        // What a receive brought must not come forth instead.
        if table.get(format!("{property}{ZPROP_RECVD_SUFFIX}").as_str()).await?.is_some() {
            table.update(format!("{property}{ZPROP_INHERIT_SUFFIX}").as_str(), 0).await?;
        }
        self.refresh_policies().await
    }

    /// Stores a setting that was checked, with what follows from it.
    pub(super) async fn store_setting(
        &mut self,
        dataset: &Dataset,
        property: &str,
        value: &Value,
    ) -> Result<()> {
        let (head, dir) = (ObjectId(dataset.id().0), dataset.dir().id());
        let reserved_before = self.refreservation(head).await?;
        let Some(table) = self.settings_table(dataset, true).await? else { return Ok(()) };
        let edit = self.edit();
        let table = ZapEdit::new(&edit, table);
        remove_if_there(&table, &format!("{property}{ZPROP_INHERIT_SUFFIX}")).await?;
        let stored = match value {
            Value::Number(number) => ZapValue::from_u64(*number),
            Value::Text(text) => ZapValue::from_text(text),
        };
        table.update(property, &stored).await?;
        match (property, value) {
            ("quota", Value::Number(bytes)) => {
                let mut phys = self.dir_phys(dir).await?;
                phys.quota_bytes = *bytes;
                self.set_dir_phys(dir, &phys).await
            }
            ("reservation", Value::Number(bytes)) => self.set_reservation(dir, *bytes).await,
            ("refreservation", Value::Number(bytes)) => {
                let unique = self.dataset_phys(head).await?.unique_bytes;
                let held_back = |reserved: u64| reserved.saturating_sub(unique) as i64;
                let used = held_back(*bytes) - held_back(reserved_before);
                self.use_space(dir, Space { used, ..Space::default() }, Account::Refreservation).await
            }
            _ => Ok(()),
        }
    }

    /// The table that a dataset's settings are in; a snapshot's is made when it is needed first.
    async fn settings_table(&mut self, dataset: &Dataset, make: bool) -> Result<Option<ObjectId>> {
        let id = ObjectId(dataset.id().0);
        let mut phys = self.dataset_phys(id).await?;
        if !phys.is_snapshot() {
            return Ok(Some(self.dir_phys(phys.dir).await?.props_zap));
        }
        if phys.props_zap.0 == 0 && make {
            phys.props_zap = NewZap::of(ObjectType::DSL_PROPS).create(&self.edit()).await?;
            self.set_dataset_phys(id, &phys).await?;
        }
        Ok((phys.props_zap.0 != 0).then_some(phys.props_zap))
    }

    /// Promises a directory so much; what it does not use of that counts as used above it (`dsl_dir_set_reservation_sync_impl`).
    pub(super) async fn set_reservation(&mut self, dir: ObjectId, bytes: u64) -> Result<()> {
        let mut phys = self.dir_phys(dir).await?;
        let accounted = |reserved: u64| phys.used_bytes.max(reserved) as i64;
        let used = accounted(bytes) - accounted(phys.reserved_bytes);
        phys.reserved_bytes = bytes;
        self.set_dir_phys(dir, &phys).await?;
        if phys.parent.0 == 0 || used == 0 {
            return Ok(());
        }
        self.use_space(phys.parent, Space { used, ..Space::default() }, Account::ChildrenReservation).await
    }

    /// What a head has been promised for itself.
    pub(super) async fn refreservation(&self, head: ObjectId) -> Result<u64> {
        match self.dataset_phys(head).await?.is_snapshot() {
            true => Ok(0),
            false => {
                self.mos().await?.dataset_by_id(DatasetId(head.0)).await?.setting("refreservation").await
            }
        }
    }

    /// Limits must leave room for what is there, and promises must be possible to keep.
    pub(super) async fn check_limit(&self, dataset: &Dataset, property: &str, value: &Value) -> Result<()> {
        let Value::Number(bytes) = *value else { return Ok(()) };
        let (name, dir, head) = (dataset.name(), dataset.dir(), dataset.phys());
        let used = dir.phys().used_bytes;
        let enough = |needed_bytes: u64, available_bytes: u64| match needed_bytes <= available_bytes {
            true => Ok(()),
            false => Err(DatasetError::NoSpace { name: name.into(), needed_bytes, available_bytes }),
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
                enough(bytes, quota)
            }
            _ => Ok(()),
        }
    }

    /// What is set must not make the pool write what its features don't allow.
    pub(super) async fn require_feature(&self, name: &str, property: &str, value: &Value) -> Result<()> {
        let Value::Number(number) = *value else { return Ok(()) };
        let Some(feature) = feature_of(property, number) else { return Ok(()) };
        match FeatureCounts::of(&self.edit()).count(feature).await? {
            Some(_) => Ok(()),
            None => Err(refused(name, property, &format!("feature@{feature} is not enabled in this pool"))),
        }
    }
}

/// Whether a dataset of that kind can have such a setting.
pub(super) fn check_setting(
    name: &str,
    property: &str,
    value: &Value,
    applies: AppliesTo,
    at: SetAt,
) -> Result<()> {
    let refuse = |why: &str| Err(refused(name, property, why));
    if property.contains(':') {
        return match value {
            Value::Number(_) => refuse("such properties hold text"),
            Value::Text(text) if text.len() > MAX_TEXT_BYTES => refuse("its value is longer than 8191 bytes"),
            Value::Text(_) if property.len() > MAX_PROPERTY_BYTES => refuse("its name is too long"),
            Value::Text(_) => Ok(()),
        };
    }
    let Some(prop) = Prop::zfs(property) else { return refuse("there is no such property") };
    if !prop.applies.overlaps(applies) {
        return refuse("datasets of this kind don't have it");
    }
    if prop.is_read_only() {
        return refuse("it says what is, and can't be set");
    }
    let is_new = at == SetAt::Creation;
    if prop.is_one_time() && !is_new {
        return refuse("it can be set only when the dataset is made");
    }
    if matches!(property, "encryption" | "keyformat" | "pbkdf2iters" | "pbkdf2salt") {
        return refuse("encrypted datasets can't be made yet");
    }
    let elsewhere = SET_ELSEWHERE.iter().find(|(other, _)| *other == property);
    let is_kept_inside = is_new && matches!(property, "volsize" | "version");
    if let Some((_, how)) = elsewhere.filter(|_| !is_kept_inside) {
        return refuse(how);
    }
    match (prop.value, value) {
        (PropType::Index { .. }, Value::Number(number)) if prop.index_name(*number).is_none() => {
            refuse(&format!("{number} is none of its values"))
        }
        (PropType::String { .. }, Value::Text(text)) if text.len() > MAX_TEXT_BYTES => {
            refuse("its value is longer than 8191 bytes")
        }
        (PropType::String { .. }, Value::Text(_)) => Ok(()),
        (PropType::Number { .. } | PropType::Index { .. }, Value::Number(_)) => Ok(()),
        (PropType::String { .. }, Value::Number(_)) => refuse("it holds text"),
        (_, Value::Text(_)) => refuse("it holds a number"),
    }
}

async fn remove_if_there(table: &ZapEdit<'_>, name: &str) -> Result<()> {
    match table.remove(name).await {
        Err(DatasetError::NoEntry { .. }) => Ok(()),
        outcome => outcome,
    }
}

fn refused(name: &str, property: &str, why: &str) -> DatasetError {
    DatasetError::BadProperty { name: name.into(), property: property.into(), why: why.into() }
}
