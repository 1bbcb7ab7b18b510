//! Settings of vdevs: `zpool set PROPERTY=VALUE POOL VDEV`.
//!
//! They lie in the vdev's ZAP, under the property's name, except `sit_out`, a state of the open pool.
//!
//! Source: OpenZFS `vdev.c` (`vdev_prop_set`, `vdev_props_set_sync`).

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::units::{Guid, ObjectId};
use cenote_object::{DatasetError, Result, ZapEdit, ZapValue};
use cenote_pool::VdevConfig;

/// A setting of a vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VdevSetting {
    /// A number.
    Number(String, u64),
    /// A text; empty to remove it.
    Text(String, String),
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
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, zap);
    let event = match setting {
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

fn zap_of(vdev: &VdevConfig, wanted: Guid) -> Option<ObjectId> {
    if vdev.guid == wanted {
        return vdev.own_zap();
    }
    vdev.children.iter().find_map(|child| zap_of(child, wanted))
}
