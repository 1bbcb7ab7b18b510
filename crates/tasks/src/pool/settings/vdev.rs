//! Settings of vdevs: `zpool set PROPERTY=VALUE POOL VDEV`.
//!
//! They lie in the vdev's ZAP, under the property's name, except `sit_out`, a state of the open pool.
//!
//! Source: OpenZFS `vdev.c` (`vdev_prop_set`, `vdev_props_set_sync`).

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dsl::names::vdev_zap;
use cenote_format::units::{Guid, ObjectId};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, Result, ZapEdit, ZapValue};
use cenote_pool::{VdevClass, VdevConfig};

/// Counts vdevs that are, or were, special or for deduplication tables.
const CLASSES: &str = "allocation_classes";

/// A setting of a vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VdevSetting {
    /// A number.
    Number(String, u64),
    /// A text; empty to remove it.
    Text(String, String),
    /// The class of a top-level vdev from the next import on: `alloc_bias`.
    Class(VdevClass),
}

/// Changes a setting of a vdev, the root if its guid is the pool's tree.
///
/// # Errors
/// It has no table of its own; there is no such vdev.
#[boxed]
pub async fn set_vdev(engine: &Engine, vdev: Guid, setting: VdevSetting) -> Result<()> {
    engine
        .run_on_pool(move |context| Box::pin(async move { set_vdev_sync(context, vdev, setting).await }))
        .await
}

async fn set_vdev_sync(context: &mut SyncContext, vdev: Guid, setting: VdevSetting) -> Result<()> {
    let zap = zap_of(&context.config().vdev_tree, vdev);
    let Some(zap) = zap else {
        let why = "only disks, top-level vdevs and `root` have properties that can be set";
        return Err(DatasetError::unsuitable(context.pool().name(), why));
    };
    if let VdevSetting::Class(class) = setting {
        check_class(context, vdev, class).await?;
    }
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, zap);
    let event = match setting {
        VdevSetting::Class(VdevClass::Normal) => match fields.remove(vdev_zap::ALLOCATION_BIAS).await {
            Ok(()) | Err(DatasetError::NoEntry { .. }) => "alloc_bias=none".into(),
            Err(error) => return Err(error),
        },
        VdevSetting::Class(class) => {
            context.use_feature(CLASSES, 1).await?;
            fields.update(vdev_zap::ALLOCATION_BIAS, ZapValue::from_text(class.name())).await?;
            format!("alloc_bias={}", class.name())
        }
        VdevSetting::Number(name, number) => {
            fields.update(name.as_str(), number).await?;
            format!("{name}={number}")
        }
        VdevSetting::Text(name, text) if text.is_empty() => match fields.remove(name.as_str()).await {
            Ok(()) | Err(DatasetError::NoEntry { .. }) => format!("{name}="),
            Err(error) => return Err(error),
        },
        VdevSetting::Text(name, text) => {
            fields.update(name.as_str(), ZapValue::from_text(&text)).await?;
            format!("{name}={text}")
        }
    };
    context.log_event("vdev_prop_set", &format!("vdev={vdev} {event}")).await
}

/// Data stay where they are: a vdev of another class is read as before. Only log vdevs may be missing, so
/// none becomes one, or stops being one.
async fn check_class(context: &mut SyncContext, vdev: Guid, class: VdevClass) -> Result<()> {
    let name = context.pool().name().to_owned();
    let refuse = |why: &str| Err(DatasetError::unsuitable(&name, why));
    if FeatureCounts::of(&context.edit()).count(CLASSES).await?.is_none() {
        return refuse("feature@allocation_classes is not enabled");
    }
    let mut tops = context.config().vdev_tree.children.clone();
    tops.retain(|top| top.kind.holds_data());
    let Some(top) = tops.iter().find(|top| top.guid == vdev) else {
        return refuse("only top-level vdevs have an allocation class");
    };
    if top.class == VdevClass::Log || class == VdevClass::Log {
        return refuse("log vdevs are added and removed: their class can't change");
    }
    let edit = context.edit();
    for other in tops.iter().filter(|other| other.guid != vdev && other.class != VdevClass::Log) {
        let is_normal = ZapEdit::new(&edit, other.top_zap).get(vdev_zap::ALLOCATION_BIAS).await?.is_none();
        if is_normal {
            return Ok(());
        }
    }
    match class {
        VdevClass::Normal => Ok(()),
        _ => refuse("at least one top-level vdev must stay in the normal class"),
    }
}

fn zap_of(vdev: &VdevConfig, wanted: Guid) -> Option<ObjectId> {
    if vdev.guid == wanted {
        return vdev.own_zap();
    }
    vdev.children.iter().find_map(|child| zap_of(child, wanted))
}
