//! Properties of the pool itself: `zpool set`, `upgrade`, and a new name (`zpool import OLD NEW`).
//!
//! What labels tell (name, comment, compatibility) is in the configuration; the rest is a table in the MOS.
//!
//! Source: OpenZFS `spa.c` (`spa_sync_props`), `zfeature.c` (`spa_feature_enable`).

use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::features::{Feature, SPA_VERSION_FEATURES};

use super::{Engine, SyncContext};
use crate::error::{DatasetError, Result};
use crate::zap::{NewZap, ZapEdit, ZapValue};

/// What of a pool is set.
#[derive(Debug, Clone)]
pub enum PoolSetting {
    /// Its name.
    Name(String),
    /// `comment`; empty for none.
    Comment(String),
    /// `compatibility`; `off` for none.
    Compatibility(String),
    /// A property that is a number.
    Number(String, u64),
    /// A property of the administrator's own, with a colon in its name; empty to remove it.
    Text(String, String),
    /// Its version, if that is an older one, becomes that of feature flags.
    FeatureFlags,
    /// A feature is enabled, with those that it needs.
    Feature(&'static Feature),
}

impl Engine {
    /// Sets a property of the pool.
    ///
    /// # Errors
    /// A feature can't be enabled, or feature flags be begun with.
    pub async fn set_pool(&self, setting: PoolSetting) -> Result<()> {
        self.run(move |context| Box::pin(async move { context.set_pool(setting).await })).await
    }
}

impl SyncContext {
    async fn set_pool(&mut self, setting: PoolSetting) -> Result<()> {
        let event = match setting {
            PoolSetting::Name(name) => {
                self.engine.config.lock().name = name;
                self.config_changed = true;
                return Ok(());
            }
            PoolSetting::Comment(text) => {
                self.engine.config.lock().comment = Some(text.clone()).filter(|text| !text.is_empty());
                self.config_changed = true;
                format!("comment={text}")
            }
            PoolSetting::Compatibility(text) => {
                self.engine.config.lock().compatibility = Some(text.clone()).filter(|text| text != "off");
                self.config_changed = true;
                format!("compatibility={text}")
            }
            PoolSetting::Number(name, number) => {
                self.store_pool_property(&name, Some(ZapValue::from(number))).await?;
                format!("{name}={number}")
            }
            PoolSetting::Text(name, text) => {
                let value = (!text.is_empty()).then(|| ZapValue::from_text(&text));
                self.store_pool_property(&name, value).await?;
                format!("{name}={text}")
            }
            PoolSetting::FeatureFlags => {
                self.begin_feature_flags().await?;
                format!("version={SPA_VERSION_FEATURES}")
            }
            PoolSetting::Feature(feature) => {
                self.require_feature_flags()?;
                self.refuse_conversion(feature).await?;
                self.enable_feature(feature).await?;
                format!("feature@{}=enabled", feature.name)
            }
        };
        self.log_event("set", &event).await
    }

    async fn store_pool_property(&mut self, name: &str, value: Option<ZapValue>) -> Result<()> {
        let edit = self.edit();
        let props = match self.find_directory_object(names::PROPS).await? {
            Some(props) => props,
            None => {
                let props = NewZap::of(ObjectType::POOL_PROPS).create(&edit).await?;
                ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).add(names::PROPS, props.0).await?;
                props
            }
        };
        let props = ZapEdit::new(&edit, props);
        match value {
            Some(value) => props.update(name, &value).await,
            None => match props.remove(name).await {
                Err(DatasetError::NoEntry { .. }) => Ok(()),
                removed => removed,
            },
        }
    }

    /// With `head_errlog`, logs of errors have another form from then on (`spa_upgrade_errlog`): only empty ones have it already.
    async fn refuse_conversion(&self, feature: &Feature) -> Result<()> {
        if feature.name != "head_errlog" {
            return Ok(());
        }
        for log in [names::ERRLOG_LAST, names::ERRLOG_SCRUB] {
            if self.find_directory_object(log).await?.is_some_and(|object| object.0 != 0) {
                let why = "feature@head_errlog: the error log would have to be converted; `zpool clear` and scrub first";
                return Err(DatasetError::unsuitable(&self.engine.config.lock().name, why));
            }
        }
        Ok(())
    }
}
