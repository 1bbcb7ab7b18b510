//! Enables feature flags.
//!
//! Source: OpenZFS `zfeature.c` (`feature_enable_sync`).

use cenote_engine::SyncContext;
use cenote_format::dsl::names::pool as names;
use cenote_format::features::Feature;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{Result, ZapEdit, ZapValue};

const ENABLED_TXG: &str = "enabled_txg";

/// Creates a new pool's feature tables.
pub(crate) async fn make_feature_tables(context: &mut SyncContext) -> Result<()> {
    for name in [names::FEATURES_FOR_READ, names::FEATURES_FOR_WRITE, names::FEATURE_DESCRIPTIONS] {
        context.make_linked_zap(name).await?;
    }
    Ok(())
}

/// Enables a feature and its dependencies, unless enabled already.
pub(crate) async fn enable_feature(context: &mut SyncContext, feature: &'static Feature) -> Result<()> {
    let mut pending = vec![feature];
    while let Some(&feature) = pending.last() {
        let mut missing = Vec::new();
        for name in feature.depends {
            if let Some(needed) = Feature::by_name(name)
                && context.count_of(needed).await?.is_none()
            {
                missing.push(needed);
            }
        }
        if !missing.is_empty() {
            pending.extend(missing);
            continue;
        }
        pending.pop();
        if context.count_of(feature).await?.is_none() {
            enable_one(context, feature).await?;
        }
    }
    Ok(())
}

async fn enable_one(context: &mut SyncContext, feature: &'static Feature) -> Result<()> {
    let edit = context.edit();
    let descriptions = context.directory_object(names::FEATURE_DESCRIPTIONS).await?;
    let text = ZapValue::from_text(feature.description);
    ZapEdit::new(&edit, descriptions).update(feature.guid, &text).await?;
    let table = context.directory_object(table_of(feature)).await?;
    let count = u64::from(feature.activate_on_enable);
    ZapEdit::new(&edit, table).update(feature.guid, count).await?;
    context.note_in_labels(feature, count);
    if FeatureCounts::of(&edit).count(ENABLED_TXG).await?.is_some() {
        let groups = match context.find_directory_object(names::FEATURE_ENABLED_TXG).await? {
            Some(id) => id,
            None => context.make_linked_zap(names::FEATURE_ENABLED_TXG).await?,
        };
        context.use_feature(ENABLED_TXG, 1).await?;
        ZapEdit::new(&edit, groups).add(feature.guid, context.txg().0).await?;
    }
    Ok(())
}

/// The table with a feature's reference count.
fn table_of(feature: &Feature) -> &'static str {
    if feature.readonly_compatible { names::FEATURES_FOR_WRITE } else { names::FEATURES_FOR_READ }
}
