//! Features needed to read or write a pool.

use cenote_boxed::boxed;
use cenote_format::dsl::names::pool as names;
use cenote_format::features::Feature;
use cenote_format::units::ObjectId;
use cenote_object::{DatasetError, Objset, Result, Zap};
use cenote_pool::Pool;

use crate::mos::Mos;

/// Refuses a pool with an unknown active feature that reading needs. Features needed only to write do not
/// matter.
pub(super) async fn check(pool: &Pool, objset: &Objset, directory: &Zap) -> Result<()> {
    let unknown = active_without(objset, directory, names::FEATURES_FOR_READ, Feature::is_readable).await?;
    if unknown.is_empty() {
        return Ok(());
    }
    Err(DatasetError::UnsupportedFeatures { pool: pool.name().into(), features: unknown.join(", ").into() })
}

impl Mos {
    /// Active features that Cenote does not write, with descriptions where available; they make the pool
    /// read-only.
    ///
    /// # Errors
    /// A feature table is damaged.
    #[boxed]
    pub async fn features_in_the_way(&self) -> Result<Vec<String>> {
        let is_written = |guid: &str| Feature::by_guid(guid).is_some();
        let mut features = Vec::new();
        for table in [names::FEATURES_FOR_READ, names::FEATURES_FOR_WRITE] {
            features.extend(active_without(self.objset(), self.directory()?, table, is_written).await?);
        }
        Ok(features)
    }
}

/// The active features in a table, less those that are no obstacle.
async fn active_without(
    objset: &Objset,
    directory: &Zap,
    table: &str,
    is_fine: impl Fn(&str) -> bool,
) -> Result<Vec<String>> {
    let Some(table) = directory.get_u64(table).await? else { return Ok(Vec::new()) };
    // Only for messages, so damage is tolerated.
    let descriptions = match directory.get_u64(names::FEATURE_DESCRIPTIONS).await? {
        Some(id) => Zap::open_id(objset, ObjectId(id)).await.ok(),
        None => None,
    };
    let mut found = Vec::new();
    for entry in Zap::open_id(objset, ObjectId(table)).await?.to_vec().await? {
        let guid = entry.name_text();
        if entry.value.as_u64() == Some(0) || is_fine(&guid) {
            continue;
        }
        let text = match (Feature::of_later_version(&guid), &descriptions) {
            (Some(later), _) => Some(later.description.to_owned()),
            (None, Some(zap)) => {
                zap.lookup(&entry.name).await.ok().flatten().and_then(|value| value.as_text())
            }
            (None, None) => None,
        };
        found.push(match text.filter(|text| !text.is_empty()) {
            Some(text) => format!("{guid} ({text})"),
            None => guid,
        });
    }
    Ok(found)
}
