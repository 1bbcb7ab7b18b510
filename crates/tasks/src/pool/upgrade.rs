//! Upgrades numbered versions to feature flags: `zpool upgrade`.
//!
//! Idea: versions from 26 on lack only the feature tables and the checksum salt. Older pools would also need
//! their clones and deadlists converted; that is left to OpenZFS.
//!
//! Source: OpenZFS `spa.c` (`spa_sync_version`, `spa_sync_upgrades`).

use cenote_engine::SyncContext;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::features::{SPA_VERSION_FEATURES, Since};
use cenote_format::uberblock::Uberblock;
use cenote_object::{DatasetError, Result, ZapEdit, ZapValue};

use crate::pool::features::make_feature_tables;

/// Gives the pool feature flags from this txg on, all disabled. Does nothing if it has them.
pub(crate) async fn begin_feature_flags(context: &mut SyncContext) -> Result<()> {
    if context.pool().uberblock().version >= SPA_VERSION_FEATURES {
        return Ok(());
    }
    if !context.has(Since::Deadlists) {
        let why = "its version is older than 26: OpenZFS's `zpool upgrade` can do it";
        return Err(DatasetError::unsuitable(&context.config().name, why));
    }
    make_feature_tables(context).await?;
    let edit = context.edit();
    let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
    if directory.get(names::CHECKSUM_SALT).await?.is_none() {
        let mut salt = [0; 32];
        context.runtime().fill_secret(&mut salt);
        directory.add(names::CHECKSUM_SALT, &ZapValue::new(1, salt.to_vec().into())).await?;
    }
    let uberblock = Uberblock { version: SPA_VERSION_FEATURES, ..*context.pool().uberblock() };
    let pool = context.pool().at(&uberblock);
    context.write_to(pool);
    context.config().version = SPA_VERSION_FEATURES;
    context.config_has_changed();
    Ok(())
}

/// Refuses features in a pool without feature flags.
pub(crate) fn require_feature_flags(context: &SyncContext) -> Result<()> {
    if context.pool().uberblock().version >= SPA_VERSION_FEATURES {
        return Ok(());
    }
    let why = "the pool has no feature flags yet: `zpool upgrade` brings them";
    Err(DatasetError::unsuitable(&context.config().name, why))
}
