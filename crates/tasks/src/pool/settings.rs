//! Pool properties: `zpool set`, `upgrade`, and renaming (`zpool import OLD NEW`).
//!
//! Properties in labels (name, comment, compatibility) are part of the configuration; the rest are in a table
//! of the MOS.
//!
//! Source: OpenZFS `spa.c` (`spa_sync_props`), `zfeature.c` (`spa_feature_enable`).

mod vdev;

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::features::{Feature, SPA_VERSION_FEATURES};
use cenote_object::{DatasetError, NewZap, Result, ZapEdit, ZapValue};
use cenote_pool::FailMode;

use crate::pool::expand::autoexpand;
use crate::pool::features::enable_feature;
use crate::pool::upgrade::{begin_feature_flags, require_feature_flags};

pub use vdev::{VdevSetting, set_vdev};

/// A setting of a pool.
#[derive(Debug, Clone)]
pub enum PoolSetting {
    /// Its name.
    Name(String),
    /// `comment`; empty for none.
    Comment(String),
    /// `compatibility`; `off` for none.
    Compatibility(String),
    /// A numeric property.
    Number(String, u64),
    /// A user property, with a colon in its name; empty to remove it.
    Text(String, String),
    /// Upgrades an older version to feature flags.
    FeatureFlags,
    /// Enables a feature and its dependencies.
    Feature(&'static Feature),
}

/// Changes a setting of the pool.
///
/// # Errors
/// The feature can't be enabled, or the version can't be upgraded.
#[boxed]
pub async fn set_pool(engine: &Engine, setting: PoolSetting) -> Result<()> {
    let expands = matches!(&setting, PoolSetting::Number(name, 1) if name == "autoexpand");
    let stops_trim = matches!(&setting, PoolSetting::Number(name, 0) if name == "autotrim");
    let failmode = match &setting {
        PoolSetting::Number(name, number) if name == "failmode" => Some(FailMode::of_property(*number)),
        _ => None,
    };
    engine
        .run(move |context| {
            // The pool's name is in those of its datasets.
            if !matches!(setting, PoolSetting::Name(_)) {
                context.touch_nothing();
            }
            Box::pin(async move { set_pool_sync(context, setting).await })
        })
        .await?;
    // A pool without a failmode is not held open: its commands get errors.
    if failmode.is_some() && engine.pool().suspension().failmode().is_some() {
        engine.pool().suspension().set_failmode(failmode);
    }
    if stops_trim {
        engine.allocator().set_trims(false);
    }
    // Wakes autotrim.
    engine.background().passes.order();
    if expands { autoexpand(engine).await } else { Ok(()) }
}

/// Makes a pool held open wait for devices that fail beyond redundancy, as its property `failmode` says.
///
/// # Errors
/// Properties can't be read.
#[boxed]
pub async fn obey_failmode(engine: &Engine) -> Result<()> {
    let properties = engine.mos().await?.pool_properties().await?;
    let failmode = properties.iter().find(|entry| entry.name == "failmode");
    let failmode = FailMode::of_property(failmode.and_then(|entry| entry.value.as_u64()).unwrap_or(0));
    engine.pool().suspension().set_failmode(Some(failmode));
    Ok(())
}

pub(crate) async fn set_pool_sync(context: &mut SyncContext, setting: PoolSetting) -> Result<()> {
    let event = match setting {
        PoolSetting::Name(name) => {
            context.config().name = name;
            context.config_has_changed();
            return Ok(());
        }
        PoolSetting::Comment(text) => {
            let comment = Some(text.clone()).filter(|text| !text.is_empty());
            context.config().comment.clone_from(&comment);
            context.config_has_changed();
            context.pool().tree().set_beside(|config| config.comment = comment);
            format!("comment={text}")
        }
        PoolSetting::Compatibility(text) => {
            let compatibility = Some(text.clone()).filter(|text| text != "off");
            context.config().compatibility.clone_from(&compatibility);
            context.config_has_changed();
            context.pool().tree().set_beside(|config| config.compatibility = compatibility);
            format!("compatibility={text}")
        }
        PoolSetting::Number(name, number) => {
            store_pool_property(context, &name, Some(ZapValue::from(number))).await?;
            if name == "multihost" {
                context.set_multihost(number != 0);
            }
            format!("{name}={number}")
        }
        PoolSetting::Text(name, text) => {
            let value = (!text.is_empty()).then(|| ZapValue::from_text(&text));
            store_pool_property(context, &name, value).await?;
            format!("{name}={text}")
        }
        PoolSetting::FeatureFlags => {
            begin_feature_flags(context).await?;
            format!("version={SPA_VERSION_FEATURES}")
        }
        PoolSetting::Feature(feature) => {
            require_feature_flags(context)?;
            refuse_conversion(context, feature).await?;
            enable_feature(context, feature).await?;
            context.refresh_policies().await?;
            format!("feature@{}=enabled", feature.name)
        }
    };
    context.log_event("set", &event).await
}

async fn store_pool_property(context: &mut SyncContext, name: &str, value: Option<ZapValue>) -> Result<()> {
    let edit = context.edit();
    let props = match context.find_directory_object(names::PROPS).await? {
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

/// `head_errlog` changes the form of error logs (`spa_upgrade_errlog`): only empty ones need no conversion.
async fn refuse_conversion(context: &SyncContext, feature: &Feature) -> Result<()> {
    if feature.name != "head_errlog" {
        return Ok(());
    }
    for log in [names::ERRLOG_LAST, names::ERRLOG_SCRUB] {
        if context.find_directory_object(log).await?.is_some_and(|object| object.0 != 0) {
            let why = "feature@head_errlog: the error log would have to be converted; `zpool clear` and \
                       scrub first";
            return Err(DatasetError::unsuitable(&context.config().name, why));
        }
    }
    Ok(())
}
