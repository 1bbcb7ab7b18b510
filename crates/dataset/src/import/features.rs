//! Which features a pool needs to be read, and whether this program has them.

use cenote_format::dsl::names::pool as names;
use cenote_format::features::Feature;
use cenote_format::units::ObjectId;
use cenote_object::{DatasetError, Objset, Result, Zap};
use cenote_pool::Pool;

/// Refuses a pool with an active feature that reading needs and that is not known here. A feature that only
/// writing needs is no obstacle.
pub(super) async fn check(pool: &Pool, objset: &Objset, directory: &Zap) -> Result<()> {
    let Some(needed) = directory.get_u64(names::FEATURES_FOR_READ).await? else { return Ok(()) };
    // They only describe what is unknown: a pool does without them.
    let descriptions = match directory.get_u64(names::FEATURE_DESCRIPTIONS).await? {
        Some(id) => Zap::open_id(objset, ObjectId(id)).await.ok(),
        None => None,
    };
    let mut unknown = Vec::new();
    for entry in Zap::open_id(objset, ObjectId(needed)).await?.to_vec().await? {
        let guid = entry.name_text();
        if entry.value.as_u64() == Some(0) || Feature::by_guid(&guid).is_some() {
            continue;
        }
        let text = match &descriptions {
            Some(zap) => zap.lookup(&entry.name).await.ok().flatten().and_then(|value| value.as_text()),
            None => None,
        };
        unknown.push(match text.filter(|text| !text.is_empty()) {
            Some(text) => format!("{guid} ({text})"),
            None => guid,
        });
    }
    if unknown.is_empty() {
        return Ok(());
    }
    Err(DatasetError::UnsupportedFeatures { pool: pool.name().into(), features: unknown.join(", ").into() })
}
