//! `zfs bookmark`: keeps a snapshot's point in time, so that the snapshot can be destroyed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::head_of;

/// Bookmark a snapshot, to send changes since then even after it is destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bookmark {
    /// Full name of a snapshot or bookmark.
    pub source: String,
    /// New bookmark, `DATASET#NAME`.
    pub bookmark: String,
}

impl Verb for Bookmark {
    const NAME: &'static str = "zfs bookmark";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to(format!("create bookmark '{}'", self.bookmark));
        let mos = session.pool_to_ask(&self.bookmark).await?;
        permissions.need(&dataset(&mos, head_of(&self.bookmark)).await?, &["bookmark"]);
        Ok(permissions)
    }

    /// # Errors
    /// The source is missing; the bookmark exists, or belongs to another dataset.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let Bookmark { source, bookmark } = &self;
        if pool_of(source) != pool_of(bookmark) {
            let why = "bookmark is in a different pool";
            return Err(ControlError::Refused(format!("cannot create bookmark '{bookmark}': {why}")));
        }
        let made = session.change_pool(pool_of(bookmark), async |engine| {
            let made = cenote_tasks::bookmark(engine, source, bookmark).await;
            made.map_err(cannot(format!("create bookmark '{bookmark}'")))
        });
        Ok(made.await?.into())
    }
}
