//! From a version with a number to feature flags: `zpool upgrade`.
//!
//! Idea: pools of the versions since 26 have all that those with feature flags have, but for the tables of features and the salt of checksums.
//! Of older pools clones and deadlists would have to be brought up to date, too: that is left to OpenZFS.
//!
//! Source: OpenZFS `spa.c` (`spa_sync_version`, `spa_sync_upgrades`).

use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::features::{SPA_VERSION_FEATURES, Since};
use cenote_format::uberblock::Uberblock;

use super::SyncContext;
use crate::error::{DatasetError, Result};
use crate::zap::{ZapEdit, ZapValue};

impl SyncContext {
    /// From this group on the pool has feature flags, none of them enabled. One that has them already stays as it is.
    pub(super) async fn begin_feature_flags(&mut self) -> Result<()> {
        if self.group.pool.version() >= SPA_VERSION_FEATURES {
            return Ok(());
        }
        if !self.has(Since::Deadlists) {
            let why = "its version is older than 26: OpenZFS's `zpool upgrade` can do it";
            return Err(DatasetError::unsuitable(&self.engine.config.lock().name, why));
        }
        self.make_feature_tables().await?;
        let edit = self.edit();
        let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
        if directory.get(names::CHECKSUM_SALT).await?.is_none() {
            let mut salt = [0; 32];
            self.engine.runtime.fill_secret(&mut salt);
            directory.add(names::CHECKSUM_SALT, &ZapValue::new(1, salt.to_vec().into())).await?;
        }
        let uberblock = Uberblock { version: SPA_VERSION_FEATURES, ..*self.group.pool.uberblock() };
        self.group.pool = self.group.pool.at(&uberblock);
        self.engine.config.lock().version = SPA_VERSION_FEATURES;
        self.config_changed = true;
        Ok(())
    }

    /// Refuses features to a pool that has no tables for them.
    pub(super) fn require_feature_flags(&self) -> Result<()> {
        if self.group.pool.version() >= SPA_VERSION_FEATURES {
            return Ok(());
        }
        let why = "the pool has no feature flags yet: `zpool upgrade` brings them";
        Err(DatasetError::unsuitable(&self.engine.config.lock().name, why))
    }
}
