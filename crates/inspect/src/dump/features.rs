//! Feature flags: which are enabled, since when, and their reference counts.

use cenote_dataset::Mos;
use cenote_format::dsl::names::pool as names;
use cenote_format::features::Feature;

use super::{Sink, Value};
use crate::error::Result;

/// A table of the pool's features by guid.
///
/// # Errors
/// The feature tables are damaged.
pub async fn features(sink: &mut dyn Sink, mos: &Mos) -> Result<()> {
    let enabled = mos.directory_zap(names::FEATURE_ENABLED_TXG).await?;
    let columns = [
        "guid",
        "name",
        "needed_for",
        "references",
        "enabled_txg",
        "depends_on",
        "active_from_first",
        "description",
    ];
    sink.table("features", &columns);
    for (directory, needed_for) in [(names::FEATURES_FOR_READ, "read"), (names::FEATURES_FOR_WRITE, "write")]
    {
        let Some(zap) = mos.directory_zap(directory).await? else { continue };
        let mut entries = zap.to_vec().await?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let guid = entry.name_text();
            let known = Feature::by_guid(&guid);
            let later = Feature::of_later_version(&guid).map(|later| match Feature::is_readable(&guid) {
                true => format!("read only: {}", later.description),
                false => format!("not known: {}", later.description),
            });
            let since = match &enabled {
                Some(zap) => zap.get_u64(&guid).await?,
                None => None,
            };
            sink.row(vec![
                guid.into(),
                known.map(|feature| feature.name).into(),
                needed_for.into(),
                entry.value.as_u64().into(),
                since.into(),
                known.map(|feature| feature.depends.join(" ")).filter(|names| !names.is_empty()).into(),
                known.map(|feature| feature.first_use).into(),
                known.map_or_else(
                    || Value::Text(later.unwrap_or_else(|| "unknown to this version".into())),
                    |known| known.description.into(),
                ),
            ]);
        }
    }
    sink.close();
    Ok(())
}
