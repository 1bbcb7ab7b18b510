//! Notes in the history that a file system's version was raised (`zfs upgrade`).
//!
//! Source: OpenZFS `zfs_vfsops.c` (`zfs_set_version`).

use cenote_boxed::boxed;
use cenote_engine::{Engine, SpaceCheck};
use cenote_format::units::ObjectId;
use cenote_object::Result;

/// Notes an upgrade of a file system from a version to another.
///
/// # Errors
/// No such file system.
#[boxed]
pub async fn note_upgrade(engine: &Engine, name: &str, (from, to): (u64, u64)) -> Result<()> {
    let name = name.to_owned();
    engine
        .run_within(SpaceCheck::Normal, move |context| {
            // The file system itself was upgraded where it is open.
            context.touch_nothing();
            Box::pin(async move {
                let head = ObjectId(context.mos().await?.dataset(&name).await?.id().0);
                context.log_of_dataset((&name, head), "upgrade", &format!("from {from} to {to}")).await
            })
        })
        .await
}
