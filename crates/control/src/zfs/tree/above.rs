//! Ancestors of a new dataset: the nearest existing one, and the missing ones to create.

use cenote_dataset::{Dataset, Mos};
use cenote_engine::Engine;
use cenote_object::DatasetError;
use cenote_tasks::Settings;

use super::fill;
use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::Session;

/// Creates the missing file systems above a dataset; returns the uppermost.
pub async fn create_ancestors(
    session: &Session,
    engine: &Engine,
    name: &str,
) -> Result<Option<String>, ControlError> {
    let mut uppermost = None;
    let above = name.match_indices('/').map(|(at, _)| &name[..at]);
    for ancestor in above {
        let mos = engine.mos().await?;
        match mos.dataset(ancestor).await {
            Err(DatasetError::NoDataset { .. }) => {}
            found => {
                found?;
                continue;
            }
        }
        let parent = nearest_above(&mos, ancestor).await?;
        let (new, quotas) = (fill::as_parent(&parent).await?, fill::quotas_of_parent(&parent).await?);
        let fill = fill::filesystem(session, new, fill::has_projects(&mos).await?, quotas);
        let made = cenote_tasks::create_filesystem(engine, ancestor, Settings::new(), fill).await;
        made.map_err(cannot(format!("create '{ancestor}'")))?;
        uppermost.get_or_insert_with(|| ancestor.to_owned());
    }
    Ok(uppermost)
}

/// The nearest existing ancestor of a new dataset.
pub async fn nearest_above(mos: &Mos, name: &str) -> Result<Dataset, ControlError> {
    let mut at = name;
    while let Some((above, _)) = at.rsplit_once('/') {
        at = above;
        if let Ok(found) = mos.dataset(above).await {
            return Ok(found);
        }
    }
    Ok(mos.root_dataset().await?)
}
