//! Encryption roots of a raw package: as the sender's, once all its streams are received.
//!
//! Idea: a raw stream brings its dataset's wrapped key, but only the package knows which datasets share a
//! user's key. A new dataset arrives as a root of its own; an existing one stays as it was, although the
//! sender may have changed, inherited or moved its key since.
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`recv_fix_encryption_hierarchy`).

use cenote_boxed::boxed;
use cenote_dataset::Value;
use cenote_engine::Engine;
use cenote_object::DatasetError;
use cenote_tasks::{move_to_root, set_property};

use crate::receive::Order;
use crate::receive::error::Result;
use crate::receive::package::Package;

/// Makes the encryption roots at and below `top` those of the package, with their key locations.
#[boxed]
pub(super) async fn settle(engine: &Engine, order: &Order, package: &Package, top: &str) -> Result<()> {
    let mos = engine.mos().await?;
    let heads = match mos.dataset(top).await {
        // Nothing was received there.
        Err(DatasetError::NoDataset { .. }) => return Ok(()),
        top => top?.descendants().await?,
    };
    let is_asked_for = order.settings.iter().any(|(name, _)| name == "keylocation");
    // Parents come first: datasets below take a root that is settled.
    for head in heads {
        let Some(info) = head.dir().encryption().await? else { continue };
        let snapshots = head.snapshots().await?;
        let sent = snapshots.iter().find_map(|snapshot| package.owner(snapshot.guid()));
        let Some((sent, _)) = sent else { continue };
        let (name, is_clone) = (head.name(), head.origin().await?.is_some());
        let was_root = info.root_dir == head.dir().id();
        // The top of a package never takes the root above.
        let is_root = (sent.is_encryption_root && !is_clone) || (was_root && (is_clone || name == top));
        if is_root != was_root {
            move_to_root(engine, name, is_root).await?;
        }
        let here = info.keylocation.as_deref().filter(|_| was_root).unwrap_or("prompt");
        if let Some(location) = sent.keylocation.as_deref().filter(|_| is_root && !is_asked_for)
            && sent.is_encryption_root
            && location != here
        {
            set_property(engine, name, "keylocation", Value::Text(location.into())).await?;
        }
    }
    Ok(())
}
