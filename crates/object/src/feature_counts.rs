//! Counts of a pool's feature users.
//!
//! Source: OpenZFS `zfeature.c`.

use cenote_boxed::boxed;
use cenote_format::dsl::names::pool as names;
use cenote_format::features::SPA_FEATURES;
use cenote_format::units::ObjectId;

use crate::error::Result;
use crate::live::Edit;
use crate::zap::ZapEdit;

/// `DMU_POOL_DIRECTORY_OBJECT`.
pub const POOL_DIRECTORY: ObjectId = ObjectId(1);

/// Feature counts of a MOS.
#[derive(Debug, Clone, Copy)]
pub struct FeatureCounts<'a>(&'a Edit);

impl<'a> FeatureCounts<'a> {
    /// Of this MOS.
    pub fn of(mos: &'a Edit) -> FeatureCounts<'a> {
        FeatureCounts(mos)
    }

    /// Users of a feature (named as after `feature@`); 0: enabled only; `None`: disabled or unknown.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn count(&self, name: &str) -> Result<Option<u64>> {
        let Some((table, guid)) = self.place(name).await? else { return Ok(None) };
        Ok(ZapEdit::new(self.0, table).get(guid).await?.and_then(|count| count.as_u64()))
    }

    /// Changes and returns a feature's count. The caller rewrites the labels if they list the feature and it
    /// becomes active or inactive.
    ///
    /// # Errors
    /// Not enabled; fewer users than that; damage.
    #[boxed]
    pub async fn change(&self, name: &str, delta: i64) -> Result<u64> {
        let no_feature = || self.0.damaged(POOL_DIRECTORY, &format!("has no feature {name} enabled"));
        let (table, guid) = self.place(name).await?.ok_or_else(no_feature)?;
        let counts = ZapEdit::new(self.0, table);
        let count = counts.get(guid).await?.and_then(|count| count.as_u64()).ok_or_else(no_feature)?;
        let changed = count.checked_add_signed(delta);
        let changed = changed.ok_or_else(|| self.0.damaged(table, "uses a feature less often than none"))?;
        counts.update(guid, changed).await?;
        Ok(changed)
    }

    async fn place(&self, name: &str) -> Result<Option<(ObjectId, &'static str)>> {
        let Some(feature) = SPA_FEATURES.iter().find(|feature| feature.name == name) else { return Ok(None) };
        let table = match feature.readonly_compatible {
            true => names::FEATURES_FOR_WRITE,
            false => names::FEATURES_FOR_READ,
        };
        let table = ZapEdit::new(self.0, POOL_DIRECTORY).get(table).await?.and_then(|id| id.as_u64());
        Ok(table.map(|table| (ObjectId(table), feature.guid)))
    }
}
